"""Savepoints of every kind of checkpoint: what is in them, and what becomes of them. No Spark."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint import reachability
from respool.checkpoint.journal import apply, history
from respool.checkpoint.ownership import fork_of
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.planning.undo import plan_undo
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify as verify_checkpoint
from respool.errors import CheckpointError
from respool.savepoint import create, install
from respool.savepoint.copying import copy_to
from respool.savepoint.create import SavepointRequest
from respool.savepoint.restore import plan_fork, plan_restore
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.savepoint.verify import verify
from respool.sinks.registry import SinkPosition
from respool.storage.local import LocalReader, LocalWriter
from support import checkpoints
from support.savepoints import fork_plan, restore, save

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
# Spark writes no offsets of all batches when it tracks its progress asynchronously.
KINDS = [
    (version, kind) for version in checkpoints.versions() for kind in checkpoints.kinds(version) if kind != "async"
]


def seen(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if f.relative_to(folder).parts[0] != "_respool"}


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    return SavepointStore(str(tmp_path / "store"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return checkpoints.unpack(tmp_path, "changelog")


@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_a_savepoint_has_what_a_start_needs_and_no_more(
    version: str, kind: str, tmp_path: Path, store: SavepointStore
) -> None:
    folder = checkpoints.unpack(tmp_path, kind, version)
    before = CheckpointSnapshot(LocalReader(folder))
    batches = [span.last - 1 for span in reachability.reachable(before) if span.last > 0]
    for batch in {before.commits[-1], *batches[-1:], *([6] if 7 in _reachable(before) else [])}:
        savepoint = save(folder, store, f"at-{batch}", batch)
        kept = savepoint.checkpoint()
        assert kept.next_batch == batch + 1
        assert kept.offsets == tuple(number for number in (batch - 1, batch) if number >= 0)
        assert kept.commits == (batch,)
        assert reachability.why_unreachable(kept, batch + 1, same_range=False) is None
        newest = [file.version for saved in kept.stores for file in saved.files]
        assert max(newest, default=batch + 1) == batch + 1
        # Nothing of it can be done without.
        for store_ in kept.stores:
            first = min((file.version for file in store_.files), default=0)
            snapshots = [file.version for file in store_.files if file.kind in ("snapshot", "zip")]
            assert len(snapshots) <= 1
            assert not snapshots or snapshots == [first]
        assert seen(Path(savepoint.data)).items() <= seen(folder).items()
        for entry in savepoint.manifest.files:
            data = (folder / entry.path).read_bytes()
            assert (entry.size, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert not verify(savepoint).wrong


def _reachable(checkpoint: CheckpointSnapshot) -> set[int]:
    return {batch for span in reachability.reachable(checkpoint) for batch in range(span.first, span.last + 1)}


@pytest.mark.parametrize("kind", [kind for version, kind in KINDS if version == checkpoints.NEWEST])
def test_a_restored_checkpoint_equals_the_savepoint_and_undo_restores_the_previous_one(
    kind: str, tmp_path: Path, store: SavepointStore
) -> None:
    folder = checkpoints.unpack(tmp_path, kind)
    before, newest = seen(folder), CheckpointSnapshot(LocalReader(folder)).commits[-1]
    savepoint = save(folder, store, batch=newest - 2)
    restore(savepoint, folder)
    after = CheckpointSnapshot(LocalReader(folder))
    assert after.next_batch == newest - 1
    assert after.query_id == savepoint.manifest.query_id
    moved = {path for path in seen(folder) if "/_metadata/v2/" in path}
    saved = {path: data for path, data in seen(Path(savepoint.data)).items() if not _is_sum_of(path, moved)}
    assert seen(folder).keys() == saved.keys()
    assert all(data == saved[path] for path, data in seen(folder).items() if path not in moved)
    assert [check.name for check in verify_checkpoint(after) if check.status == "broken"] == []
    for path in moved:  # the schemas are named by their address
        assert f"file:{folder}/state/" in (folder / path).read_text()
    apply.apply(plan_undo(after, NOW), LocalWriter(folder))
    assert seen(folder) == before
    assert not (folder / "_respool" / "staged").exists()


def _is_sum_of(path: str, others: set[str]) -> bool:
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.removeprefix('.').removesuffix('.crc')}" in others and name.endswith(".crc")


def test_a_lost_checkpoint_is_restored(checkpoint: Path, store: SavepointStore) -> None:
    savepoint = save(checkpoint, store)
    shutil.rmtree(checkpoint)
    restore(savepoint, checkpoint)
    assert seen(checkpoint) == seen(Path(savepoint.data))


def test_purge_keeps_what_a_restore_installed(checkpoint: Path, store: SavepointStore) -> None:
    savepoint = save(checkpoint, store, batch=9)
    restore(savepoint, checkpoint)
    restored = seen(checkpoint)
    files = LocalWriter(checkpoint)
    apply.purge(history.past(files)[-1], files, NOW)
    assert seen(checkpoint) == restored
    assert not list((checkpoint / "_respool" / "aside").rglob("*"))
    with pytest.raises(CheckpointError, match="was purged"):
        plan_undo(CheckpointSnapshot(files), NOW)


def test_an_undo_is_refused_once_the_restored_query_has_run(checkpoint: Path, store: SavepointStore) -> None:
    restore(save(checkpoint, store, batch=9), checkpoint)
    (checkpoint / "offsets" / "10").write_text("v1\n{}\n-")
    with pytest.raises(CheckpointError, match=r"The query has run since the restore .*offsets/10 is new"):
        plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW)


def test_a_fork_is_another_query_and_records_its_origin(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    savepoint = save(checkpoint, store)
    where = tmp_path / "fork"
    plan = fork_plan(savepoint, where)
    install.carry_out_fork(plan.journal, plan.install_set, LocalWriter(where))
    fork, original = CheckpointSnapshot(LocalReader(where)), CheckpointSnapshot(LocalReader(checkpoint))
    assert fork.query_id == plan.journal.query_ids[-1] != original.query_id
    mark = fork_of(fork.files)
    assert mark is not None
    assert (mark.savepoint, mark.batch, mark.checkpoint) == ("one", original.commits[-1], str(checkpoint))
    with pytest.raises(CheckpointError, match="has no change to undo"):
        plan_undo(fork, NOW)


def test_records_that_kafka_has_lost_stop_a_fork_and_a_restore(tmp_path: Path, store: SavepointStore) -> None:
    folder = checkpoints.unpack(tmp_path, "kafka")
    savepoint = save(folder, store)
    ends = savepoint.manifest.sources[0].end
    parts = {(topic, int(number)): offset for topic, numbers in ends.items() for number, offset in numbers.items()}
    lost = RewindContext(
        now=NOW, ours=True, kept=KafkaRetention(dict.fromkeys(parts, 10**6), dict.fromkeys(parts, 10**6 + 5))
    )
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), words="one")
    refused = plan_fork(savepoint, str(tmp_path / "fork"), request, lost).refusals
    assert "Kafka no longer has" in refused[0].why
    shutil.rmtree(folder)
    assert plan_restore(savepoint, None, str(folder), request, lost).refusals
    kept = RewindContext(
        now=NOW, ours=True, kept=KafkaRetention(dict.fromkeys(parts, 0), {part: end + 7 for part, end in parts.items()})
    )
    plan = plan_fork(savepoint, str(tmp_path / "fork"), request, kept)
    assert not plan.refusals
    assert plan.readings[0].records == 7 * len(parts)


def test_a_savepoint_of_another_query_is_not_restored_by_mistake(
    tmp_path: Path, store: SavepointStore, checkpoint: Path
) -> None:
    savepoint = save(checkpoint, store)
    other = checkpoints.unpack(tmp_path, "hdfs")
    request, world = RewindRequest(ToBatch(savepoint.manifest.next_batch)), RewindContext(now=NOW, ours=True)
    plan = plan_restore(savepoint, CheckpointSnapshot(LocalReader(other)), str(other), request, world)
    assert "--other-query" in plan.refusals[0].way_out
    meant = plan_restore(
        savepoint, CheckpointSnapshot(LocalReader(other)), str(other), request, world, other_query=True
    )
    assert not meant.refusals


def _damages(savepoint: StoredSavepoint) -> Iterator[tuple[Path, bytes | None, str]]:
    """Ways to damage a savepoint: a file, its damaged content, and the expected message."""
    data = Path(savepoint.data)
    state = next(file for file in sorted(data.rglob("*.changelog")))
    whole = state.read_bytes()
    yield state, whole[:-3], f"bytes, expected {len(whole):,}"
    yield state, whole[:-1] + bytes([whole[-1] ^ 1]), "other bytes than were saved"
    yield state, None, "is missing"
    yield data / "metadata", b"{}", "bytes, expected"


def test_damage_is_reported_by_verify_and_stops_a_restore_and_a_copy_before_anything_changes(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    savepoint = save(checkpoint, store, batch=9)
    before = seen(checkpoint)
    for file, data, reason in _damages(savepoint):
        whole = file.read_bytes()
        if data is None:
            file.unlink()
        else:
            file.write_bytes(data)
        assert any(reason in problem for problem in verify(savepoint).wrong)
        with pytest.raises(CheckpointError, match=reason):
            restore(savepoint, checkpoint)
        assert seen(checkpoint) == before
        assert history.pending(LocalReader(checkpoint)) is None
        where = tmp_path / "fork"
        plan = fork_plan(savepoint, where)
        if file.name != "metadata":  # a fork has one of its own
            with pytest.raises(CheckpointError, match=reason):
                install.carry_out_fork(plan.journal, plan.install_set, LocalWriter(where))
            assert not seen(where)
        with pytest.raises(CheckpointError, match=reason):
            copy_to(savepoint, SavepointStore(str(tmp_path / "elsewhere")))
        assert not list((tmp_path / "elsewhere").rglob("manifest.json"))
        file.write_bytes(whole)
    assert not verify(savepoint).wrong


@pytest.mark.parametrize(
    ("path", "reason"),
    [("metadata", "metadata is damaged"), ("offsets/13", "offsets/13 is damaged"), ("commits/13", "commits/13")],
)
def test_a_damaged_checkpoint_makes_no_savepoint(
    checkpoint: Path, store: SavepointStore, path: str, reason: str
) -> None:
    (checkpoint / path).write_bytes(b"")
    with pytest.raises(CheckpointError, match=reason):
        save(checkpoint, store)
    assert store.names() == []
    assert not list(Path(store.location).rglob("*"))


def test_a_damaged_state_file_makes_no_savepoint(checkpoint: Path, store: SavepointStore) -> None:
    newest = max(checkpoint.rglob("*.changelog"), key=lambda file: int(file.stem))
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=rf"is damaged: .*{newest.name}"):
        save(checkpoint, store)
    assert store.names() == []


def test_a_batch_that_is_not_kept_is_refused_with_those_that_are(tmp_path: Path, store: SavepointStore) -> None:
    folder = checkpoints.unpack(tmp_path, "changelog-purged")
    with pytest.raises(
        CheckpointError, match=r"Batch 2 cannot be saved: .* is not kept\. Available batches: \d+ to \d+"
    ):
        save(folder, store, batch=2)
    with pytest.raises(CheckpointError, match=r"Batch 99 is not committed; the newest is 13"):
        save(folder, store, batch=99)
    assert store.names() == []


def test_a_checkpoint_without_a_batch_makes_no_savepoint(tmp_path: Path, store: SavepointStore) -> None:
    (tmp_path / "new" / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="has no committed batch yet"):
        save(tmp_path / "new", store)


def test_a_rewind_while_files_are_copied_is_noticed_and_two_lives_are_not_mixed(
    checkpoint: Path, store: SavepointStore
) -> None:
    files = LocalWriter(checkpoint)
    seen_at: list[int] = []

    def rewind_once(snapshot: CheckpointSnapshot, batch: int) -> SinkPosition:
        if not seen_at:
            request = RewindRequest(ToBatch(9), allow_data_loss=True)
            apply.apply(plan_rewind(snapshot, request, RewindContext(now=NOW, ours=True)).journal, files)
        seen_at.append(snapshot.commits[-1])
        return SinkPosition("console")

    made = create.create(SavepointRequest(str(checkpoint), "one", 5), store, rewind_once)
    assert seen_at == [13, 8]  # it was started again
    assert not verify(made).wrong


def test_a_savepoint_is_copied_elsewhere_whole(checkpoint: Path, store: SavepointStore, tmp_path: Path) -> None:
    savepoint = save(checkpoint, store)
    other = SavepointStore(str(tmp_path / "other"))
    copied = copy_to(savepoint, other, "kept")
    assert other.names() == ["kept"]
    assert copied.manifest.files == savepoint.manifest.files
    assert seen(Path(copied.data)) == seen(Path(savepoint.data))
    with pytest.raises(CheckpointError, match="The savepoint kept already exists"):
        copy_to(savepoint, other, "kept")
    assert not verify(other.get("kept")).wrong


def test_a_manifest_of_another_version_is_refused(checkpoint: Path, store: SavepointStore) -> None:
    save(checkpoint, store)
    file = Path(store.location) / "one" / "manifest.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "version": 2}))
    with pytest.raises(CheckpointError, match="has format version 2; this respool supports 1"):
        store.get("one")
    assert store.all() == []
    assert "has format version 2" in store.read_all()[1][0]
    file.write_text("{")
    with pytest.raises(CheckpointError, match=r"is damaged: .*Create another"):
        store.get("one")
