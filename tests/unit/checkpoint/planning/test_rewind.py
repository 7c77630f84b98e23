"""The plan of a rewind, its effect, and its undo; on small checkpoints."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import apply, history
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import LogEnds, Move, Prune, Replace, Restore, journal_id
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import PlannedRewind, plan_rewind
from respool.checkpoint.planning.undo import plan_undo
from respool.checkpoint.snapshot import topics
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.sinks.address import MoveSinkFiles, ReplayOutcome
from respool.storage.local import LocalReader, LocalWriter
from support import small_checkpoint
from support.small_checkpoint import commit, offsets, written

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
WORLD = RewindContext(now=NOW, ours=True)
TABLE = RestoreTable("/tables/a", 7, 3, "an-id", 9, 4)


def plan(root: Path, batch: int, world: RewindContext = WORLD, **more: Any) -> PlannedRewind:
    return plan_rewind(written(root, {}), RewindRequest(ToBatch(batch), words="--to-batch", **more), world)


def test_a_plan_says_what_runs_again_and_from_where(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    result = plan(tmp_path, 2, reason="why")
    assert (result.batch, result.again, result.state_version, result.watermark_ms) == (2, 4, 2, 1000)
    (reading,) = result.readings
    assert (reading.parts[0].start, reading.parts[0].end, reading.records) == (20, 50, 30)
    assert result.kinds == {"deltas": 3, "commits": 3, "offsets": 3}
    assert result.size == sum((tmp_path / move.source).stat().st_size for move in result.journal.moves)
    journal = result.journal
    assert (journal.operation, journal.of, journal.request, journal.reason) == ("rewind", None, "--to-batch", "why")
    assert (journal.batch, journal.same_range, journal.started) == (2, False, NOW)
    assert (journal.newest, journal.left) == (LogEnds(4, 4), LogEnds(1, 1))
    assert journal.query_ids == ("8491b5b1-af43-4266-97d6-99e64b7a775c",)
    assert journal.id == "20260102T030405.000006Z-2" == journal_id(NOW, 2)


def test_a_batch_as_it_was_starts_at_its_own_watermark_and_keeps_its_offsets(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    result = plan(tmp_path, 3, same_range=True)
    assert result.watermark_ms == 2000
    assert result.journal.left == LogEnds(3, 2)
    assert result.journal.same_range


def test_the_watermark_is_the_later_of_what_the_batch_before_had_and_left(tmp_path: Path) -> None:
    more = {
        "commits/1": commit(500),
        "offsets/1": offsets({"visits": {"0": 20}}, watermark=800, shuffle_partitions="1"),
    }
    small_checkpoint.kafka(tmp_path, more=more)
    assert plan(tmp_path, 2).watermark_ms == 800
    assert plan(tmp_path, 3).watermark_ms == 2000
    assert plan(tmp_path, 1).watermark_ms == 0


def test_a_start_over_empties_the_state(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, more={"sources/0/0": '\0v1\n{"visits":{"0":7}}'})
    result = plan(tmp_path, 0)
    assert result.journal.steps[-1] == Prune("state")
    assert result.journal.left == LogEnds(-1, -1)
    assert (result.watermark_ms, result.readings[0].records) == (0, 43)
    assert Prune("state") not in plan(tmp_path, 1).journal.steps


def test_a_batch_that_was_not_committed_is_planned_again(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 5, 4)
    result = plan(tmp_path, 4)
    assert (result.journal.newest, result.journal.left) == (LogEnds(4, 3), LogEnds(3, 3))
    assert [move.source for move in result.journal.moves] == ["offsets/4"]


def test_the_first_batch_of_all_is_not_committed(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 1, 0)
    assert plan(tmp_path, 0).journal.newest == LogEnds(0, -1)


def test_there_is_nothing_to_rewind(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    with pytest.raises(CheckpointError, match="Batch 5 is the next to run already"):
        plan(tmp_path, 5)
    with pytest.raises(CheckpointError, match="Batch 5 has no range yet"):
        plan(tmp_path, 5, same_range=True)
    assert plan(tmp_path, 5, new_query_id=True).journal.left == LogEnds(4, 4)


def test_a_query_without_state_has_no_version(tmp_path: Path) -> None:
    files = {
        f"{folder}/{batch}": text
        for batch in range(2)
        for folder, text in (("offsets", offsets(batch)), ("commits", commit()))
    }
    written(tmp_path, {"metadata": '{"id":"a"}'} | files)
    assert plan(tmp_path, 1).state_version is None


@pytest.mark.parametrize("same_range", [False, True])
def test_a_batch_that_cannot_be_reached_is_refused_with_those_that_can(tmp_path: Path, same_range: bool) -> None:
    small_checkpoint.kafka(tmp_path)
    (tmp_path / "state/0/0/2.delta").unlink()
    with pytest.raises(CheckpointError, match=r"Batch 3 cannot be rewound to: .* Batches that can: 0 to 1\."):
        plan(tmp_path, 3, same_range=same_range)


def test_no_batch_can_be_reached(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    for batch in range(4):
        (tmp_path / f"offsets/{batch}").unlink()
    with pytest.raises(CheckpointError, match="leave --same-range out"):
        plan(tmp_path, 4, same_range=True)


def test_a_folder_that_cannot_be_listed_stops_the_plan(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path)
    checkpoint.listing = replace(checkpoint.listing, unreadable={"state": "no permission"})
    with pytest.raises(CheckpointError, match="state cannot be read: no permission"):
        plan_rewind(checkpoint, RewindRequest(ToBatch(2)), WORLD)


def test_topics_of_the_newest_batch(tmp_path: Path) -> None:
    assert topics(small_checkpoint.kafka(tmp_path / "a")) == {"visits"}
    assert topics(written(tmp_path / "b", {"metadata": "{}"})) == set()


def test_input_files_after_the_batch_are_read_again_and_the_log_is_cut(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"metadata": '{"id":"a"}'}
    for number in range(4):
        files[f"offsets/{number}"] = offsets({"logOffset": number})
        files[f"commits/{number}"] = commit()
        files[f"sources/0/{number}"] = "v1\n" + json.dumps({"path": f"file:///in/{number}", "batchId": number})
    written(tmp_path, files)
    for batch, same_range, again, logs in (
        (2, False, 2, ["3", "2"]),
        (2, True, 2, ["3"]),
        (1, False, 3, ["3", "2", "1"]),
        (0, True, 4, ["3", "2", "1"]),
        (0, False, 4, ["3", "2", "1", "0"]),
    ):
        result = plan(tmp_path, batch, same_range=same_range)
        assert result.readings[0].files == again
        moved = [move.source for move in result.journal.moves if move.source.startswith("sources")]
        assert moved == [f"sources/0/{name}" for name in logs]
        assert "Input files are gone" in result.refusals[0].why
        assert not any("does not name all files" in note for note in result.notes)


# The sink, and the query's id


def world(restore: Any, **more: Any) -> RewindContext:
    return replace(WORLD, replay=ReplayOutcome("sink", "text", restore=restore, **more))


def test_the_sink_follows_when_that_is_wanted(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    steps = plan(tmp_path, 2, world(TABLE), restore_sink=True).journal.steps
    assert [step for step in steps if isinstance(step, Restore)] == [Restore(TABLE)]
    files = MoveSinkFiles("/sinks/a", ("part-0", "part-1"))
    steps = plan(tmp_path, 2, world(files), restore_sink=True).journal.steps
    aside = "_respool/aside/20260102T030405.000006Z-2"
    assert [step for step in steps if isinstance(step, Move) and step.sink] == [
        Move(name, f"{aside}/{name}", 0, "/sinks/a") for name in ("part-0", "part-1")
    ]
    for restore, wanted in ((TABLE, False), (None, True)):
        steps = plan(tmp_path, 2, world(restore), restore_sink=wanted).journal.steps
        assert all(isinstance(step, Move) and step.sink is None for step in steps)
    assert plan(tmp_path, 2, restore_sink=True).journal.moves


@pytest.mark.parametrize(
    ("more", "needs", "new"),
    [
        ({}, False, False),
        ({}, True, False),
        ({"restore_sink": True}, True, True),
        ({"restore_sink": True}, False, False),
        ({"new_query_id": True}, False, True),
    ],
)
def test_the_query_gets_a_new_id_when_it_is_wanted_or_its_sink_needs_it(
    tmp_path: Path, more: dict[str, bool], needs: bool, new: bool
) -> None:
    small_checkpoint.kafka(tmp_path)
    steps = plan(tmp_path, 2, world(TABLE, new_query_id=needs), **more).journal.steps
    replaced = [step for step in steps if isinstance(step, Replace)]
    assert bool(replaced) is new
    if new:
        assert replaced[0].path == "metadata"
        assert replaced[0].old == (tmp_path / "metadata").read_text()
        assert replaced[0].new is not None
        assert json.loads(replaced[0].new)["id"] != json.loads(replaced[0].old or "")["id"]


def test_a_lost_id_is_replaced_by_a_new_id(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    (tmp_path / "metadata").unlink()
    steps = plan(tmp_path, 2, new_query_id=True).journal.steps
    assert [step.old for step in steps if isinstance(step, Replace)] == [None]


def test_all_ids_that_the_query_had_the_newest_last(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    first = "8491b5b1-af43-4266-97d6-99e64b7a775c"
    apply.apply(plan(tmp_path, 4, new_query_id=True).journal, LocalWriter(tmp_path))
    second = json.loads((tmp_path / "metadata").read_text())["id"]
    assert query_ids(written(tmp_path, {})) == (first, second)
    later = replace(WORLD, now=NOW + timedelta(seconds=1))
    apply.apply(plan(tmp_path, 3, later).journal, LocalWriter(tmp_path))
    assert query_ids(written(tmp_path, {})) == (first, second)
    (tmp_path / "metadata").unlink()
    assert query_ids(written(tmp_path, {})) == (first, second)


def test_an_undone_id_still_belongs_to_the_query(tmp_path: Path) -> None:
    """A savepoint that was made under it is not of another query."""
    small_checkpoint.kafka(tmp_path)
    files = LocalWriter(tmp_path)
    apply.apply(plan(tmp_path, 4, new_query_id=True).journal, files)
    second = json.loads((tmp_path / "metadata").read_text())["id"]
    apply.apply(plan(tmp_path, 3, replace(WORLD, now=NOW + timedelta(seconds=1))).journal, files)
    for seconds in (2, 3):
        apply.apply(undo(tmp_path, seconds), files)
    assert query_ids(written(tmp_path, {})) == (second, "8491b5b1-af43-4266-97d6-99e64b7a775c")


# Undo


def undo(root: Path, seconds: int = 60) -> Any:
    return plan_undo(written(root, {}), NOW + timedelta(seconds=seconds), "reason")


def content(root: Path) -> dict[str, bytes]:
    files = (file for file in root.rglob("*") if file.is_file() and "_respool" not in file.parts)
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@pytest.mark.parametrize(("committed", "following"), [(5, 5), (4, 4)])
def test_an_undo_puts_everything_back(tmp_path: Path, committed: int, following: int) -> None:
    small_checkpoint.kafka(tmp_path, 5, committed)
    before = content(tmp_path)
    apply.apply(plan(tmp_path, 2).journal, LocalWriter(tmp_path))
    assert content(tmp_path) != before
    journal = undo(tmp_path)
    assert (journal.operation, journal.of, journal.reason) == ("undo", "20260102T030405.000006Z-2", "reason")
    assert (journal.newest, journal.left) == (LogEnds(1, 1), LogEnds(4, committed - 1))
    assert (journal.batch, journal.same_range) == (following, False)
    assert journal.id.endswith("-4-undo")
    apply.apply(journal, LocalWriter(tmp_path))
    assert content(tmp_path) == before
    with pytest.raises(CheckpointError, match="has no change to undo"):
        undo(tmp_path, 120)


@pytest.mark.parametrize("path", ["offsets/2", "commits/2", "state/0/0/3.delta"])
def test_an_undo_is_refused_once_the_query_has_run(tmp_path: Path, path: str) -> None:
    small_checkpoint.kafka(tmp_path)
    apply.apply(plan(tmp_path, 2).journal, LocalWriter(tmp_path))
    written(tmp_path, {path: "new"})
    with pytest.raises(CheckpointError, match="The query has run since the rewind"):
        undo(tmp_path)


def test_an_undo_is_refused_once_a_batch_is_gone(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    apply.apply(plan(tmp_path, 2).journal, LocalWriter(tmp_path))
    (tmp_path / "commits/1").unlink()
    with pytest.raises(CheckpointError, match="batch 1 is new"):
        undo(tmp_path)


def test_a_start_over_can_be_undone(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    before = content(tmp_path)
    apply.apply(plan(tmp_path, 0).journal, LocalWriter(tmp_path))
    apply.apply(undo(tmp_path), LocalWriter(tmp_path))
    assert content(tmp_path) == before


def test_what_was_purged_cannot_be_undone(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    apply.apply(plan(tmp_path, 2).journal, LocalWriter(tmp_path))
    (done,) = history.past(LocalReader(tmp_path))
    apply.purge(done, LocalWriter(tmp_path), NOW)
    assert not [file for file in (tmp_path / "_respool/aside").rglob("*") if file.is_file()]
    with pytest.raises(CheckpointError, match="was purged; it cannot be undone"):
        undo(tmp_path)


def test_a_change_that_was_interrupted_is_undone_from_where_it_was(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    before = content(tmp_path)
    journal = plan(tmp_path, 2).journal
    files = LocalWriter(tmp_path)
    written_down = apply.begin(journal, files)
    for move in journal.moves[:4]:
        files.move(move.source, move.target)
    assert history.pending(files) == written_down
    back = undo(tmp_path)
    assert back.operation == "undo"
    apply.apply_undo(back, files)
    assert content(tmp_path) == before
    assert history.pending(files) is None


def test_an_undo_that_was_interrupted_is_that_undo(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    files = LocalWriter(tmp_path)
    apply.apply(plan(tmp_path, 2).journal, files)
    begun = apply.begin(undo(tmp_path), files)
    assert undo(tmp_path, 300) == begun


def test_a_sink_that_was_written_to_since_stops_the_undo(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path / "c")
    sink = tmp_path / "sink"
    sink.mkdir()
    (sink / "part-0").write_text("old")
    moved = MoveSinkFiles(str(sink), ("part-0",))
    apply.apply(plan(tmp_path / "c", 2, world(moved), restore_sink=True).journal, LocalWriter(tmp_path / "c"))
    assert not (sink / "part-0").exists()
    assert undo(tmp_path / "c").operation == "undo"
    (sink / "part-0").write_text("new")
    with pytest.raises(CheckpointError, match="part-0 is new since the rewind"):
        undo(tmp_path / "c")


def test_batches_that_were_never_run_again_in_such_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_checkpoint.kafka(tmp_path)
    monkeypatch.setattr("respool.checkpoint.planning.rewind._MOST_AGAIN", 2)
    assert plan(tmp_path, 2).batch == 2
    with pytest.raises(CheckpointError, match="offsets/4 is 3 batches after batch 1; at most 2"):
        plan(tmp_path, 1)


def test_records_of_batch_1_are_read_from_where_batch_0_ended(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, more={"sources/0/0": '\0v1\n{"visits":{"0":7}}'})
    assert plan(tmp_path, 1).readings[0].records == 40


def test_a_spark_that_is_not_tested_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_checkpoint.kafka(tmp_path)

    class Writer:
        def __init__(self, warning: str | None) -> None:
            self.warning = warning

    def noted(warnings: dict[int, str | None], batch: int) -> list[str]:
        monkeypatch.setattr(
            "respool.checkpoint.planning.rewind.model.writer_of",
            lambda batch: Writer(warnings.get(batch.timestamp_ms // 1000 - 1)),
        )
        return [note for note in plan(tmp_path, batch).notes if note in ("A", "B")]

    assert noted({0: "A", 4: "B"}, 1) == ["A"]
    assert noted({4: "B"}, 1) == ["B"]
    assert noted({4: "B"}, 0) == ["B"]
    assert noted({0: "A", 4: None}, 1) == ["A"]
    assert noted({}, 1) == []


def test_a_restore_that_was_interrupted_before_it_moved_in_is_undone_without_that(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    files = LocalWriter(tmp_path)
    written(tmp_path, {"_respool/staged/ID/offsets/4": "new"})
    steps = (
        Move("offsets/4", "_respool/aside/ID/offsets/4", 1),
        Prune("sources"),
        Move("_respool/staged/ID/offsets/4", "offsets/4", 1),
    )
    journal = replace(plan(tmp_path, 4).journal, id="ID", operation="restore", steps=steps, left=LogEnds(4, 4))
    apply.begin(journal, files)
    assert undo(tmp_path).steps == (Prune("sources"), Move("_respool/aside/ID/offsets/4", "offsets/4", 1))
    apply.finish(journal, files)
    assert len(undo(tmp_path).steps) == 3
    assert undo(tmp_path).newest == LogEnds(4, 4)


def test_what_is_new_is_named(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    apply.apply(plan(tmp_path, 4).journal, LocalWriter(tmp_path))
    written(tmp_path, {"state/0/0/5.delta": "new"})
    with pytest.raises(CheckpointError, match=r": state/0/0/5\.delta is new"):
        undo(tmp_path)


def test_a_rewind_that_leaves_several_batches_can_be_undone(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    apply.apply(plan(tmp_path, 4).journal, LocalWriter(tmp_path))
    assert undo(tmp_path).newest == LogEnds(3, 3)
