"""The target of a rewind, its plan, and when it is refused; on checkpoints that real queries wrote."""

import re
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint import reachability
from respool.checkpoint.journal import apply
from respool.checkpoint.journal.steps import Move
from respool.checkpoint.planning import request
from respool.checkpoint.planning.request import (
    KafkaRetention,
    LastBatches,
    RewindContext,
    RewindRequest,
    RewindTarget,
    ToBatch,
    ToOffsets,
    ToTime,
)
from respool.checkpoint.planning.rewind import PlannedRewind, plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.summary import summarize
from respool.errors import CheckpointError, CheckpointNotFoundError
from respool.sinks.address import ReplayOutcome
from respool.storage.local import LocalReader, LocalWriter
from support.checkpoints import kinds, unpack, versions

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ALL = [(version, kind) for version in versions() for kind in kinds(version)]


def opened(folder: Path) -> CheckpointSnapshot:
    return CheckpointSnapshot(LocalReader(folder))


def plan(folder: Path, goal: RewindTarget, world: RewindContext | None = None, **more: Any) -> PlannedRewind:
    return plan_rewind(opened(folder), RewindRequest(goal, **more), world or RewindContext(now=NOW, ours=True))


@pytest.fixture
def kafka_checkpoint(tmp_path: Path) -> Path:
    return unpack(tmp_path, "kafka")


# Every kind


@pytest.mark.parametrize(("version", "kind"), ALL)
def test_every_recorded_kind_can_be_shown_and_rewound_wherever_it_says(version: str, kind: str, tmp_path: Path) -> None:
    folder = unpack(tmp_path, kind, version)
    checkpoint = opened(folder)
    summary = summarize(checkpoint)
    assert summary.query_id is not None
    assert len(summary.batches) == len(checkpoint.offsets)
    assert all(batch.problem is None for batch in summary.batches)
    assert summary.earliest.batch is not None
    reachable = [batch for span in summary.reachable for batch in range(span.first, span.last + 1)]
    assert reachable[0] == summary.earliest.batch
    for batch in reachable:
        for same_range in (False, True):
            if same_range and reachability.why_unreachable(checkpoint, batch, same_range):
                continue
            made = plan_rewind(checkpoint, RewindRequest(ToBatch(batch), same_range), RewindContext(now=NOW, ours=True))
            assert made.batch == batch
            _leaves_just_what_spark_needs(checkpoint, made, batch, same_range)


def _leaves_just_what_spark_needs(
    checkpoint: CheckpointSnapshot, made: PlannedRewind, batch: int, same_range: bool
) -> None:
    """No offsets, commit or state beyond the batch is left; every checksum goes with its file."""
    moved = {step.source for step in made.journal.steps if isinstance(step, Move)}
    left = [f"{f}/{n}" if f else n for f, names in checkpoint.folders.items() for n in names if f"{f}/{n}" not in moved]
    assert not [path for path in left if path.startswith("offsets/") and _number(path) >= batch + same_range]
    assert not [path for path in left if path.startswith("commits/") and _number(path) >= batch]
    assert not [path for path in left if _is_state(path) and _number(path) > batch]
    for path in moved:
        folder, _, name = path.rpartition("/")
        assert f"{folder}/.{name}.crc" not in left
        assert f"{folder}/{name}.crc" not in left


def _number(path: str) -> int:
    name = path.rpartition("/")[2].lstrip(".")
    digits = name.split("_")[0].split(".")[0]
    return int(digits) if digits.isdecimal() else -1


def _is_state(path: str) -> bool:
    return path.startswith("state/") and any(f".{kind}" in path for kind in ("delta", "snapshot", "zip", "changelog"))


# Where to


def test_the_last_batches_run_again(kafka_checkpoint: Path) -> None:
    newest = opened(kafka_checkpoint).offsets[-1]
    assert plan(kafka_checkpoint, LastBatches(1)).batch == newest
    assert plan(kafka_checkpoint, LastBatches(3)).batch == newest - 2
    with pytest.raises(CheckpointError, match=f"expected 1 to {newest + 1}"):
        plan(kafka_checkpoint, LastBatches(newest + 2))


def test_a_time_means_the_first_batch_planned_at_it_or_after_it(kafka_checkpoint: Path) -> None:
    checkpoint = opened(kafka_checkpoint)
    times = {batch: checkpoint.planned(batch).timestamp_ms for batch in checkpoint.offsets}
    for batch, ms in times.items():
        at = datetime.fromtimestamp(ms / 1000, timezone.utc)
        assert request.resolve(checkpoint, ToTime(at)) == batch
        assert request.resolve(checkpoint, ToTime(at - timedelta(milliseconds=1))) == batch
    late = datetime.fromtimestamp(times[checkpoint.offsets[-1]] / 1000 + 1, timezone.utc)
    with pytest.raises(
        CheckpointError, match=r"No batch was planned at or after .*\. The newest batch was planned at "
    ):
        request.resolve(checkpoint, ToTime(late))


def test_offsets_mean_the_first_batch_that_read_at_or_beyond_any_of_them(kafka_checkpoint: Path) -> None:
    checkpoint = opened(kafka_checkpoint)
    for reading in (batch.readings[0] for batch in summarize(checkpoint).batches):
        for part in reading.parts:
            topic, _, number = part.name.rpartition("-")
            key = (topic, int(number))
            batch = _batch_that_read(checkpoint, part.name, part.start)
            if part.end > part.start:
                assert request.resolve(checkpoint, ToOffsets({key: part.start})) == batch
                assert request.resolve(checkpoint, ToOffsets({key: part.end - 1})) == batch
    newest = summarize(checkpoint).batches[-1].readings[0]
    topic = newest.parts[0].name.rpartition("-")[0]
    with pytest.raises(CheckpointError, match=r"No batch has read as far as these offsets; batch \d+ ends at"):
        request.resolve(checkpoint, ToOffsets({(topic, 0): newest.parts[0].end}))
    with pytest.raises(CheckpointError, match=rf"does not read other-0; it reads {topic}-0"):
        request.resolve(checkpoint, ToOffsets({("other", 0): 1}))


def _batch_that_read(checkpoint: CheckpointSnapshot, part: str, offset: int) -> int:
    for batch in summarize(checkpoint).batches:
        for partition in batch.readings[0].parts:
            if partition.name == part and partition.start <= offset < partition.end:
                return batch.batch
    raise AssertionError(f"no batch read {offset} of {part}")


def test_a_batch_that_is_not_there_is_refused(kafka_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no batch 99: the newest is \d+"):
        plan(kafka_checkpoint, ToBatch(99))
    newest = opened(kafka_checkpoint).offsets[-1]
    with pytest.raises(CheckpointError, match="is the next to run already"):
        plan(kafka_checkpoint, ToBatch(newest + 1))
    with pytest.raises(CheckpointError, match="has no range yet"):
        plan(kafka_checkpoint, ToBatch(newest + 1), same_range=True)


def test_an_early_batch_that_is_no_longer_kept_is_refused_with_those_that_are(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "hdfs-purged")
    summary = summarize(opened(folder))
    assert summary.oldest > 0
    assert summary.earliest.batch is not None
    first, last = summary.reachable[0].first, summary.reachable[-1].last
    message = rf"cannot be rewound to: .* is not kept\. Batches that can: {first} to {last}\. Nothing was changed"
    with pytest.raises(CheckpointError, match=message):
        plan(folder, ToBatch(summary.earliest.batch - 1))
    assert plan(folder, ToBatch(summary.earliest.batch)).batch == summary.earliest.batch
    assert plan(folder, ToBatch(0)).batch == 0  # starting over is always possible


# What a plan says


def test_a_plan_says_what_will_run_again(kafka_checkpoint: Path) -> None:
    checkpoint = opened(kafka_checkpoint)
    newest = checkpoint.offsets[-1]
    batch = newest - 3
    made = plan(kafka_checkpoint, ToBatch(batch))
    assert (made.batch, made.again, made.state_version) == (batch, newest, batch)
    facts = {batch_summary.batch: batch_summary for batch_summary in summarize(checkpoint).batches}
    again = [facts[number].readings[0].records or 0 for number in range(batch, newest + 1)]
    assert made.readings[0].kind == "Kafka"
    assert made.readings[0].records == sum(again) > 0
    assert made.watermark_ms == max(
        checkpoint.planned(batch - 1).watermark_ms, checkpoint.committed(batch - 1).next_watermark_ms
    )
    assert made.size == sum(move.size for move in made.journal.moves)
    assert made.kinds["offsets"] == made.kinds["commits"] == 4
    same = plan(kafka_checkpoint, ToBatch(batch), same_range=True)
    assert same.kinds["offsets"] == 3
    assert same.watermark_ms == checkpoint.planned(batch).watermark_ms


def test_a_plan_changes_nothing(kafka_checkpoint: Path) -> None:
    before = sorted(kafka_checkpoint.rglob("*"))
    plan(kafka_checkpoint, ToBatch(3))
    assert sorted(kafka_checkpoint.rglob("*")) == before


def test_a_batch_that_was_not_finished_can_be_planned_again(kafka_checkpoint: Path) -> None:
    newest = opened(kafka_checkpoint).offsets[-1]
    (kafka_checkpoint / "commits" / str(newest)).unlink()
    assert opened(kafka_checkpoint).next_batch == newest
    made = plan(kafka_checkpoint, ToBatch(newest))
    apply.apply(made.journal, LocalWriter(kafka_checkpoint))
    assert opened(kafka_checkpoint).next_batch == newest
    assert not (kafka_checkpoint / "offsets" / str(newest)).exists()


# Refusals


def refused(made: PlannedRewind) -> str:
    return " | ".join(f"{refusal.why} {refusal.way_out}" for refusal in made.refusals)


def test_records_lost_to_retention_are_named(kafka_checkpoint: Path) -> None:
    goal = ToBatch(3)
    parts = plan(kafka_checkpoint, goal).readings[0].parts
    keys = {(part.name.rpartition("-")[0], int(part.name.rpartition("-")[2])): part for part in parts}
    ends = {key: part.end for key, part in keys.items()}
    world = RewindContext(
        now=NOW, ours=True, kept=KafkaRetention({key: part.start for key, part in keys.items()}, ends)
    )
    assert not plan(kafka_checkpoint, goal, world).refusals

    first, part = next((key, part) for key, part in keys.items() if part.end - part.start > 2)
    assert world.kept is not None
    gone = replace(world, kept=KafkaRetention({**world.kept.first, first: part.start + 2}, ends))
    reasons = refused(plan(kafka_checkpoint, goal, gone))
    assert f"Kafka no longer has 2 of the records of {part.name}" in reasons
    assert f"from offset {part.start}, its first is {part.start + 2}" in reasons
    assert "--allow-data-loss" in reasons
    assert not plan(kafka_checkpoint, goal, gone, allow_data_loss=True).refusals

    anew = replace(world, kept=KafkaRetention({key: 0 for key in keys}, {key: 1 for key in keys}))
    assert "was the topic deleted and created again?" in refused(plan(kafka_checkpoint, goal, anew))
    assert "was the topic deleted?" in refused(
        plan(kafka_checkpoint, goal, replace(world, kept=KafkaRetention({}, {})))
    )


def test_a_query_that_runs_is_not_rewound(kafka_checkpoint: Path) -> None:
    reasons = refused(plan(kafka_checkpoint, ToBatch(3), RewindContext(now=NOW, ours=True, runs="process 7")))
    assert "The query runs: process 7. Stop it first." in reasons


def test_a_foreign_query_that_wrote_a_moment_ago_is_not_rewound(kafka_checkpoint: Path) -> None:
    newest = kafka_checkpoint / "offsets" / str(opened(kafka_checkpoint).offsets[-1])
    newest.touch()
    now = datetime.fromtimestamp(newest.stat().st_mtime, timezone.utc)
    world = RewindContext(now=now + timedelta(seconds=59))
    reasons = refused(plan(kafka_checkpoint, ToBatch(3), world))
    assert "was written to 59 seconds ago: its query may run" in reasons
    assert "--stopped" in reasons
    assert not plan(kafka_checkpoint, ToBatch(3), world, stopped=True).refusals
    assert not plan(kafka_checkpoint, ToBatch(3), RewindContext(now=now + timedelta(seconds=61))).refusals
    assert not plan(kafka_checkpoint, ToBatch(3), replace(world, ours=True)).refusals


def test_a_sink_that_would_skip_the_batches_stops_the_rewind(kafka_checkpoint: Path) -> None:
    world = RewindContext(
        now=NOW, ours=True, replay=ReplayOutcome("a table", "skips", blocked="It skips.", remedy="Do this.")
    )
    assert "It skips. Do this." in refused(plan(kafka_checkpoint, ToBatch(3), world))


def test_a_lost_query_id_stops_the_rewind_unless_a_new_id_is_requested(kafka_checkpoint: Path) -> None:
    (kafka_checkpoint / "metadata").unlink()
    assert "--new-query-id" in refused(plan(kafka_checkpoint, ToBatch(3)))
    made = plan(kafka_checkpoint, ToBatch(3), new_query_id=True)
    assert not made.refusals
    apply.apply(made.journal, LocalWriter(kafka_checkpoint))
    assert len(opened(kafka_checkpoint).query_id) == 36


def test_input_files_that_are_gone_stop_the_rewind(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "stateless")
    reasons = refused(plan(folder, ToBatch(3)))  # the files that it read were on another machine
    assert "Input files are gone: " in reasons
    assert "--allow-data-loss" in reasons


def test_a_log_of_files_that_was_compacted_stays_whole(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "stateless")
    [log] = (folder / "sources").iterdir()
    for number in range(9):
        for name in (str(number), f".{number}.crc"):
            (log / name).unlink()
    assert (log / "9.compact").exists()
    made = plan(folder, ToBatch(3), allow_data_loss=True)
    assert any("are read in one batch" in note for note in made.notes)
    assert not [move for move in made.journal.moves if move.source.startswith("sources/")]
    later = plan(folder, ToBatch(12), allow_data_loss=True)
    assert [move for move in later.journal.moves if move.source.startswith("sources/")]


def test_a_batch_that_spark_cannot_run_as_it_was_is_refused(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "offsets-v2")
    with pytest.raises(CheckpointError, match=r"offsets/5 lacks the number of partitions"):
        plan(folder, ToBatch(5), same_range=True, allow_data_loss=True)
    assert plan(folder, ToBatch(5), allow_data_loss=True).batch == 5


def test_a_folder_that_is_no_checkpoint_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a letter")
    with pytest.raises(CheckpointNotFoundError, match=r"no checkpoint .*: it holds a\.txt; expected the file metadata"):
        summarize(opened(tmp_path))
    with pytest.raises(CheckpointError, match="has planned no batch yet"):
        plan(tmp_path, ToBatch(0))


def test_an_unknown_version_is_refused_by_its_name(kafka_checkpoint: Path) -> None:
    newest = opened(kafka_checkpoint).offsets[-1]
    file = kafka_checkpoint / "offsets" / str(newest - 1)
    file.write_text(file.read_text().replace("v1", "v9", 1))
    with pytest.raises(
        CheckpointError, match=rf"offsets/{newest - 1} has format version v9; this respool supports v1, v2"
    ):
        plan(kafka_checkpoint, ToBatch(newest))


def test_a_damaged_snapshot_is_done_without_when_older_files_serve(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "changelog")
    zips = sorted((int(file.stem), file) for file in (folder / "state" / "0" / "0").glob("*.zip"))
    version, newest = zips[-1]
    newest.write_bytes(newest.read_bytes()[:40])
    made = plan(folder, ToBatch(version), allow_data_loss=True)
    assert any(f"{newest.name} is damaged" in note for note in made.notes)
    apply.apply(made.journal, LocalWriter(folder))
    assert not newest.exists()
    shutil.rmtree(folder)

    folder = unpack(tmp_path, "rocksdb")  # without changelogs nothing else makes that version
    newest = folder / "state" / "0" / "0" / "9.zip"
    newest.write_bytes(newest.read_bytes()[:40])
    with pytest.raises(CheckpointError, match=r"Batch 9 cannot be rewound to: state/0/0/9\.zip is damaged"):
        plan(folder, ToBatch(9), allow_data_loss=True)
    assert plan(folder, ToBatch(8), allow_data_loss=True).batch == 8


def offered(message: str) -> list[int]:
    """The batches that a message offers in place of the refused batch."""
    text = re.search(r"Batches that can: ([\d, to]+)", message)
    spans = [span.split(" to ") for span in text[1].rstrip(", ").split(", ")] if text else []
    return [batch for span in spans for batch in range(int(span[0]), int(span[-1]) + 1)]


def every_offer_can_be_taken(folder: Path, batch: int, same_range: bool) -> list[int]:
    with pytest.raises(CheckpointError) as refused:
        plan(folder, ToBatch(batch), same_range=same_range, allow_data_loss=True)
    batches = offered(str(refused.value))
    for offer in batches:
        assert plan(folder, ToBatch(offer), same_range=same_range, allow_data_loss=True).batch == offer
    return batches


def test_no_batch_is_offered_that_is_refused_too(tmp_path: Path) -> None:
    # Spark 4.2.0 leaves the number of partitions out of the offsets of a query's first run.
    folder = unpack(tmp_path, "offsets-v2")
    checkpoint = opened(folder)
    stated = [batch for batch in checkpoint.offsets if checkpoint.partitions(batch) is not None]
    assert every_offer_can_be_taken(folder, 5, same_range=True) == stated
    for batch in stated:
        file = folder / "offsets" / str(batch)
        file.write_text(re.sub(r'"spark.sql.shuffle.partitions":"\d+",?', "", file.read_text()))
    with pytest.raises(CheckpointError, match=r"cannot be rewound to.*leave --same-range out") as refused:
        plan(folder, ToBatch(5), same_range=True, allow_data_loss=True)
    assert "Batches that can" not in str(refused.value)

    folder = unpack(tmp_path, "rocksdb")
    zip_ = folder / "state" / "0" / "0" / "9.zip"
    zip_.write_bytes(zip_.read_bytes()[:40])
    (folder / "offsets" / "4").write_text("v1\n")
    assert every_offer_can_be_taken(folder, 9, same_range=False) == [0, 1, 2, 3, 4, 7, 8, 10, 11, 12, 13]
