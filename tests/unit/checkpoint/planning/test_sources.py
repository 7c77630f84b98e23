"""Whether sources still have what a rewound, restored or forked query will read; on checkpoints of real queries."""

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from respool.checkpoint.planning import sources
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import PlannedRewind, plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.summary import summarize
from respool.errors import Refusal
from respool.operations import plans
from respool.savepoint.planning import PlannedInstall
from respool.savepoint.promote import plan_promote
from respool.savepoint.restore import plan_fork, plan_restore
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.storage.local import LocalReader
from respool.storage.open import open_writer
from support.checkpoints import unpack
from support.savepoints import fork, save

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
WORLD = RewindContext(now=NOW, ours=True)


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    return SavepointStore(str(tmp_path / "store"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A query on files, which are in `tmp_path / "input"`: batch N has read the file NNN.json."""
    folder = unpack(tmp_path, "stateless")
    (tmp_path / "input").mkdir()
    for entry in (folder / "sources" / "0").glob("[0-9]*"):
        entry.write_text(entry.read_text().replace("file:///tmp/golden/stateless/input", f"file://{tmp_path}/input"))
        (entry.parent / f".{entry.name}.crc").unlink()
    for number in range(14):
        (tmp_path / "input" / f"{number:03}.json").write_text("{}")
    return folder


def opened(folder: Path) -> CheckpointSnapshot:
    return CheckpointSnapshot(LocalReader(folder))


def rewind(folder: Path, batch: int, same_range: bool = False, world: RewindContext = WORLD) -> PlannedRewind:
    return plan_rewind(opened(folder), RewindRequest(ToBatch(batch), same_range), world)


def restore(savepoint: StoredSavepoint, folder: Path, world: RewindContext = WORLD) -> PlannedInstall:
    there = opened(folder) if folder.exists() else None
    return plan_restore(savepoint, there, str(folder), RewindRequest(ToBatch(savepoint.manifest.next_batch)), world)


def forked(savepoint: StoredSavepoint, folder: Path, world: RewindContext = WORLD) -> PlannedInstall:
    return plan_fork(savepoint, str(folder), RewindRequest(ToBatch(savepoint.manifest.next_batch)), world)


def why(refusals: tuple[Refusal, ...]) -> str:
    return " | ".join(f"{refusal.why} {refusal.way_out}" for refusal in refusals)


# Input files


def test_a_batch_on_the_records_that_it_had_needs_its_own_input_file(checkpoint: Path, tmp_path: Path) -> None:
    for same_range in (False, True):
        plan = rewind(checkpoint, 8, same_range)
        assert not plan.refusals
        assert plan.readings[0].files == 6
        assert "6 input files are read again." in plan.notes
    (tmp_path / "input" / "008.json").unlink()
    for same_range in (False, True):
        assert "Input files are gone: 1 of 6: " in why(rewind(checkpoint, 8, same_range).refusals)
        assert "008.json" in why(rewind(checkpoint, 8, same_range).refusals)
        assert not rewind(checkpoint, 9, same_range).refusals
    allowed = plan_rewind(opened(checkpoint), RewindRequest(ToBatch(8), same_range=True, allow_data_loss=True), WORLD)
    assert not allowed.refusals


def test_the_input_files_of_a_compacted_log_are_listed(checkpoint: Path, tmp_path: Path) -> None:
    for number in range(9):
        (checkpoint / "sources" / "0" / str(number)).unlink()
    (tmp_path / "input" / "004.json").unlink()
    assert "Input files are gone: 1 of 10: " in why(rewind(checkpoint, 4, same_range=True).refusals)
    assert not rewind(checkpoint, 5, same_range=True).refusals


def test_a_log_that_no_longer_names_all_input_files_is_noted(checkpoint: Path) -> None:
    (checkpoint / "sources" / "0" / "11").write_text("v1\nnot JSON")
    plan = rewind(checkpoint, 8)
    assert any("does not name all files" in note for note in plan.notes)
    assert not any("does not name all files" in note for note in rewind(checkpoint, 12).notes)


def test_a_restore_and_a_fork_need_the_input_files_that_were_read_since(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    savepoint = save(checkpoint, store, batch=7)
    for plan in (restore(savepoint, checkpoint), forked(savepoint, tmp_path / "fork")):
        assert not plan.refusals
        assert plan.readings[0].files == 6
        assert "files, 6 input files, log 7 → log 13" in str(plans.InstallPlan("", plan)).replace("\n", " ")
    (tmp_path / "input" / "007.json").unlink()  # in the savepoint already
    assert not restore(savepoint, checkpoint).refusals
    (tmp_path / "input" / "008.json").unlink()
    for plan in (restore(savepoint, checkpoint), forked(savepoint, tmp_path / "fork")):
        assert "Input files are gone: 1 of 6: " in why(plan.refusals)
        assert "008.json" in why(plan.refusals)
    assert not restore(save(checkpoint, store, "later", batch=8), checkpoint).refusals
    shutil.rmtree(checkpoint)  # what came after the savepoint is not known any more
    for plan in (restore(savepoint, checkpoint), forked(savepoint, tmp_path / "fork")):
        assert not plan.refusals
        assert any("Spark skips missing files without an error" in note for note in plan.notes)


def test_a_promoted_fork_needs_the_input_files_of_the_batch_that_it_runs_again(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    where = tmp_path / "fork"
    fork(save(checkpoint, store), where)
    newest = opened(where).commits[-1]
    (where / "commits" / str(newest)).unlink()
    (where / "commits" / str(newest - 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    request = RewindRequest(ToBatch(newest), new_query_id=True, stopped=True)
    plan = plan_promote(opened(where), opened(checkpoint), str(checkpoint), request, WORLD, None)
    assert (plan.readings[0].files, why(plan.refusals)) == (1, "")
    (tmp_path / "input" / f"{newest:03}.json").unlink()
    plan = plan_promote(opened(where), opened(checkpoint), str(checkpoint), request, WORLD, None)
    assert "Input files are gone: 1 of 1: " in why(plan.refusals)


def test_input_files_on_an_object_store_are_looked_up_there() -> None:
    url = f"memory://{uuid4().hex}/input"
    files = open_writer(url)
    files.create("a b.json", b"{}")
    paths = (f"{url}/a%20b.json", f"{url}/gone.json", "hdfs://host/input/a.json")
    lookup = sources.find_missing(paths)
    assert (lookup.gone, lookup.unchecked) == (paths[1:2], paths[2:])


# A savepoint that is newer than the checkpoint


def kept(ends: dict[str, dict[str, int]], more: int = 0) -> RewindContext:
    parts = {(topic, int(n)): offset for topic, numbers in ends.items() for n, offset in numbers.items()}
    return RewindContext(
        now=NOW,
        ours=True,
        kept=KafkaRetention(dict.fromkeys(parts, 0), {part: end + more for part, end in parts.items()}),
    )


def moved_back(checkpoint: Path, batch: int) -> None:
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).glob("[0-9]*"):
            if int(file.name) > batch:
                file.unlink()


def test_what_a_newer_savepoint_skips_is_counted_as_skipped(tmp_path: Path, store: SavepointStore) -> None:
    folder = unpack(tmp_path, "kafka")
    savepoint = save(folder, store)
    ends = savepoint.manifest.sources[0].end
    moved_back(folder, 5)
    before = opened(folder).newest_planned().sources[0].end
    count = sum(ends[t][n] - before[t][n] for t in ends for n in ends[t])
    assert count > 0
    plan = restore(savepoint, folder, kept(ends))
    assert not plan.refusals
    assert plan.readings[0].records == 0
    assert sum(part.end - part.start for part in plan.readings[0].skipped) == count
    text = str(plans.InstallPlan("", plan))
    assert f"Kafka, 0 records, {count} skipped" in text
    assert f"visits-0: {before['visits']['0']} → {ends['visits']['0']} skipped" in text
    assert "ahead of the checkpoint" in text
    assert "-" not in text.partition("Source 0")[2].split("records")[0]


def test_kafka_that_ends_before_a_newer_savepoint_refuses_the_restore(tmp_path: Path, store: SavepointStore) -> None:
    folder = unpack(tmp_path, "kafka")
    savepoint = save(folder, store)
    ends = savepoint.manifest.sources[0].end
    moved_back(folder, 5)
    short = kept(ends, more=-1)
    assert "was the topic deleted and created again?" in why(restore(savepoint, folder, short).refusals)
    assert "was the topic deleted and created again?" in why(forked(savepoint, tmp_path / "fork", short).refusals)
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), allow_data_loss=True)
    assert not plan_restore(savepoint, opened(folder), str(folder), request, short).refusals


def test_log_entries_that_a_newer_savepoint_skips_are_shown_forwards(checkpoint: Path, store: SavepointStore) -> None:
    savepoint = save(checkpoint, store)
    moved_back(checkpoint, 2)
    plan = restore(savepoint, checkpoint)
    assert not plan.refusals
    assert "Source 0     files, log 2 → log 13, skipped" in str(plans.InstallPlan("", plan))


def test_a_fork_that_is_ahead_in_one_partition_and_behind_in_another(tmp_path: Path, store: SavepointStore) -> None:
    folder = unpack(tmp_path, "kafka")
    where = tmp_path / "fork"
    fork(save(folder, store), where)
    newest = where / "offsets" / str(opened(where).offsets[-1])
    *head, last = newest.read_text().split("\n")
    ends = json.loads(last)
    ends["visits"]["0"] += 5
    ends["visits"]["1"] -= 3
    newest.write_text("\n".join([*head, json.dumps(ends)]))
    request = RewindRequest(ToBatch(1), new_query_id=True)
    notes = plan_promote(opened(where), opened(folder), str(folder), request, WORLD, None).notes
    assert any("The fork has read 5 records more" in note for note in notes)
    assert any("The pipeline has read 3 records more" in note for note in notes)


# Sources that cannot be replayed


def with_positions(folder: Path, position: object) -> Path:
    """Make a checkpoint that of a source with other positions, made from the number of the batch."""
    for file in (folder / "offsets").glob("[0-9]*"):
        *head, _ = file.read_text().split("\n")
        text = json.dumps(position).replace('"BATCH"', file.name)
        file.write_text("\n".join([*head, text]))
    shutil.rmtree(folder / "sources", ignore_errors=True)
    return folder


def test_a_rate_source_generates_its_rows_again(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "clock")
    plan = rewind(folder, 3)
    assert plan.readings[0].kind == "rate"
    assert not plan.refusals
    assert any("rows are generated again from the start time in sources/0/0" in note for note in plan.notes)
    assert summarize(opened(folder)).batches[3].readings[0].kind == "rate"
    plan = rewind(unpack(tmp_path, "rate"), 3)
    assert plan.readings[0].kind == "rate-micro-batch"
    assert any("rate-micro-batch" in note for note in plan.notes)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    return with_positions(unpack(tmp_path, "stateless"), "BATCH")


def test_a_source_with_bare_numbers_cannot_be_replayed(numbers: Path, store: SavepointStore, tmp_path: Path) -> None:
    plan = rewind(numbers, 3)
    assert plan.readings[0].kind == "number"
    reasons = why(plan.refusals)
    assert "Memory and socket sources cannot be replayed" in reasons
    assert "does not record which source it is" in reasons
    assert "--allow-data-loss" in reasons
    assert "Source 0     memory, socket or custom source, 2 → 13" in str(plans.RewindPlan("", plan))
    allowed = RewindRequest(ToBatch(3), allow_data_loss=True)
    assert not plan_rewind(opened(numbers), allowed, WORLD).refusals
    savepoint = save(numbers, store, batch=7)
    assert "cannot be replayed" in why(restore(savepoint, numbers).refusals)
    fork = forked(savepoint, tmp_path / "fork")
    assert not fork.refusals
    assert any("whether it can continue at 7 cannot be checked" in note for note in fork.notes)


def test_a_rate_source_whose_start_time_is_lost_cannot_be_replayed(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "clock")
    (folder / "sources" / "0" / "0").unlink()
    assert "cannot be replayed" in why(rewind(folder, 3).refusals)


def test_what_cannot_be_checked_is_noted(tmp_path: Path) -> None:
    delta = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": "BATCH", "index": -1}
    for position, words in ((delta, "0 is a Delta table"), ({"sequence": "BATCH"}, "0 is of an unknown kind")):
        folder = with_positions(unpack(tmp_path, "stateless"), position)
        plan = rewind(folder, 3)
        assert not plan.refusals
        assert any(words in note for note in plan.notes)
        shutil.rmtree(folder)
