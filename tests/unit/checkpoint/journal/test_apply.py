"""Applying a journal: the fence, interrupted changes, leftovers and purging; on small checkpoints."""

import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import apply, history, installation
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Prune, Replace, Restore, Step
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.storage.local import LocalWriter
from support import small_checkpoint
from support.small_checkpoint import written

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = RestoreTable("/tables/a", 7, 3, "an-id", 9, 4)


def aside(path: str, sink: str | None = None) -> Move:
    return Move(path, f"_respool/aside/ID/{path}", 1, sink)


def staged(path: str) -> Move:
    return Move(f"_respool/staged/ID/{path}", path, 1)


def journal(*steps: Step, **more: Any) -> Journal:
    facts: dict[str, Any] = {
        "id": "ID",
        "operation": "rewind",
        "of": None,
        "request": "",
        "reason": None,
        "started": NOW,
        "batch": 4,
        "same_range": False,
        "newest": LogEnds(4, 4),
        "left": LogEnds(3, 3),
        "steps": steps,
    }
    return Journal(**(facts | more))


REWIND = journal(aside("commits/4"), aside("offsets/4"))


@pytest.fixture
def files(tmp_path: Path) -> LocalWriter:
    small_checkpoint.kafka(tmp_path / "c")
    return LocalWriter(tmp_path / "c")


def names(files: LocalWriter, folder: str) -> list[str]:
    return sorted(files.names(folder))


def test_a_journal_is_carried_out_and_becomes_history(files: LocalWriter) -> None:
    seen: list[int] = []
    apply.apply(REWIND, files, seen.append)
    assert seen == [1, 2]
    assert names(files, "offsets") == names(files, "commits") == ["0", "1", "2", "3"]
    assert history.past(files) == [REWIND]
    assert history.pending(files) is None


def test_two_changes_cannot_be_made_together(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    with pytest.raises(CheckpointError, match="Another change to this checkpoint is in progress"):
        apply.apply(REWIND, files)
    assert history.pending(files) == REWIND


def test_the_fence_stands_while_a_change_is_pending(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    assert files.read("offsets/5") == apply.FENCE + b"\nchange: ID"
    apply.resume(REWIND, files)
    assert names(files, "offsets") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("path", ["offsets/5", "commits/5"])
def test_a_batch_that_was_written_since_the_plan_stops_the_change(files: LocalWriter, path: str) -> None:
    written(Path(files.root), {path: "v1\n{}"})
    before = {path: files.read(path) for path in files.below("") if not path.startswith("_respool")}
    with pytest.raises(
        CheckpointError, match=r"The query has written a batch since the plan was made.*Nothing was chan"
    ):
        apply.apply(REWIND, files)
    assert {path: files.read(path) for path in files.below("") if not path.startswith("_respool")} == before
    assert history.pending(files) is None


def test_offsets_below_the_fence_that_are_new_stop_the_change(files: LocalWriter) -> None:
    old = replace(REWIND, newest=LogEnds(3, 4), left=LogEnds(4, 3))
    with pytest.raises(CheckpointError, match="has written a batch since"):
        apply.apply(old, files)
    assert names(files, "offsets") == ["0", "1", "2", "3", "4"]


def test_commits_that_are_new_stop_the_change(files: LocalWriter) -> None:
    with pytest.raises(CheckpointError, match="has written a batch since"):
        apply.apply(replace(REWIND, newest=LogEnds(4, 3)), files)


def test_a_checkpoint_with_one_batch_is_fenced(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 1)
    change = journal(aside("commits/0"), aside("offsets/0"), newest=LogEnds(0, 0), left=LogEnds(-1, -1))
    apply.apply(change, LocalWriter(tmp_path))
    assert names(LocalWriter(tmp_path), "offsets") == []


def test_a_change_that_was_begun_is_finished_though_newer_batches_are_there(files: LocalWriter) -> None:
    change = replace(REWIND, newest=LogEnds(3, 3), left=LogEnds(4, 3))
    written(Path(files.root), {"_respool/pending.json": history.text_of(change)})
    files.move("commits/4", "_respool/aside/ID/commits/4")
    apply.resume(change, files)
    assert names(files, "offsets") == ["0", "1", "2", "3"]
    assert history.past(files) == [change]


def test_a_query_that_was_started_half_way_is_reported_and_nothing_more_is_done(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    files.move("commits/4", "_respool/aside/ID/commits/4")
    files.delete("offsets/5")
    written(Path(files.root), {"offsets/5": "v1\n{}"})
    with pytest.raises(CheckpointError, match="its fence was deleted and the query was started"):
        apply.resume(REWIND, files)
    assert history.pending(files) == REWIND
    assert "4" in names(files, "offsets")


def test_the_fence_of_another_change_is_left_alone(files: LocalWriter) -> None:
    theirs = apply.FENCE + b"\nchange: OTHER"
    files.create("offsets/5", theirs)
    with pytest.raises(CheckpointError, match=r"offsets/5 is the fence of another change .*; no file or that of ID"):
        apply.apply(REWIND, files)
    assert files.read("offsets/5") == theirs
    assert history.pending(files) is None  # nothing of this change was done, so nothing of it stays


def test_a_change_that_was_begun_stays_pending_under_the_fence_of_another(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    files.move("commits/4", "_respool/aside/ID/commits/4")
    files.replace("offsets/5", apply.FENCE + b"\nchange: OTHER")
    with pytest.raises(CheckpointError, match="is the fence of another change"):
        apply.resume(REWIND, files)
    assert history.pending(files) == REWIND


def test_the_pending_plan_of_another_change_stays_with_its_fence(files: LocalWriter) -> None:
    theirs = replace(REWIND, id="OTHER", steps=())
    apply.begin(theirs, files)
    with pytest.raises(CheckpointError, match="is the fence of another change"):
        apply.resume(REWIND, files)
    assert history.pending(files) == theirs
    files.delete(history.PENDING)
    with pytest.raises(CheckpointError, match="is the fence of another change"):
        apply.resume(REWIND, files)
    assert history.pending(files) is None


def test_only_the_first_move_says_that_a_change_was_begun(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    written(Path(files.root), {"_respool/aside/ID/offsets/4": "another", "offsets/5": "v1\n{}"})
    with pytest.raises(CheckpointError, match="has written a batch since"):
        apply.resume(REWIND, files)


def test_a_change_whose_history_is_written_is_only_tidied_up(files: LocalWriter) -> None:
    apply.begin(REWIND, files)
    written(Path(files.root), {history.path_of(REWIND): history.text_of(REWIND)})
    apply.resume(REWIND, files)
    assert history.pending(files) is None
    assert names(files, "offsets") == ["0", "1", "2", "3", "4"]  # its steps are not done again


# Files that are moved in


def restore(files: LocalWriter, *more: Step) -> Journal:
    written(Path(files.root), {f"_respool/staged/ID/{path}": f"new {path}" for path in ("commits/4", "offsets/4")})
    change = journal(
        aside("commits/4"),
        aside("offsets/4"),
        *more,
        Prune("sources"),
        staged("commits/4"),
        staged("offsets/4"),
        operation="restore",
        left=LogEnds(4, 4),
    )
    return apply.begin(change, files)


@pytest.mark.parametrize("cut", range(5))
def test_a_restore_is_finished_from_wherever_it_was_cut_off(files: LocalWriter, cut: int) -> None:
    change = restore(files)
    old = {path: files.read(path) for path in ("commits/4", "offsets/4")}
    for move in change.moves[:cut]:
        files.move(move.source, move.target)
    seen: list[int] = []
    apply.resume(change, files, seen.append)
    for path, data in old.items():
        assert files.read(path) == f"new {path}".encode()
        assert files.read(f"_respool/aside/ID/{path}") == data
    assert seen[-1] == 5
    assert not files.below("_respool/staged")


@pytest.mark.parametrize("cut", range(5))
def test_only_steps_that_may_have_started_are_undone(files: LocalWriter, cut: int) -> None:
    change = restore(files)
    for move in change.moves[:cut]:
        files.move(move.source, move.target)
    result = apply.started_steps(change.steps, files)
    assert result == (change.steps if cut > 2 else change.steps[:3])


def test_files_of_a_sink_do_not_say_that_a_group_was_begun(files: LocalWriter, tmp_path: Path) -> None:
    steps = (aside("commits/4"), Prune("sources"), aside("part-0", str(tmp_path / "sink")))
    assert apply.started_steps(steps, files) == steps[:2]


def test_copies_that_were_not_moved_in_are_deleted_with_the_undo(files: LocalWriter) -> None:
    restore(files)
    undo = journal(operation="undo", of="ID", id="ID-undo", left=LogEnds(4, 4))
    apply.apply_undo(undo, files)
    assert not files.below("_respool/staged")
    assert [entry.id for entry in history.past(files)] == ["ID-undo"]


# Steps


def test_a_text_is_replaced_without_its_checksum(files: LocalWriter) -> None:
    root = Path(files.root)
    written(root, {".metadata.crc": "x", "a/b/c": "old", "a/b/.c.crc": "x"})
    apply.apply(journal(Replace("metadata", "x", '{"id":"b"}'), Replace("a/b/c", "old", None)), files)
    assert files.read("metadata") == b'{"id":"b"}'
    assert not files.facts([".metadata.crc", "a/b/c", "a/b/.c.crc"])


@pytest.mark.parametrize("back", [False, True])
def test_a_restore_of_a_table_is_applied_or_undone(
    files: LocalWriter, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("respool.delta.restore.run_restore", lambda table: calls.append(f"run {table.table}"))
    monkeypatch.setattr("respool.delta.restore.undo_restore", lambda table: calls.append(f"undo {table.table}"))
    apply.apply(journal(Restore(TABLE, back)), files)
    assert calls == [f"{'undo' if back else 'run'} /tables/a"]


def test_files_of_several_sinks_move_in_their_folders(files: LocalWriter, tmp_path: Path) -> None:
    sinks = [tmp_path / "a", tmp_path / "b"]
    for sink in sinks:
        written(sink, {"part-0": sink.name, "part-1": sink.name})
    steps: list[Step] = [aside("part-0", str(sink)) for sink in sinks]
    steps += [Prune("sources"), aside("part-1", str(sinks[0])), Prune("state/x"), aside("part-1", str(sinks[1]))]
    apply.apply(journal(*steps), files)
    for sink in sinks:
        for name in ("part-0", "part-1"):
            assert (sink / "_respool/aside/ID" / name).read_text() == sink.name


def test_moves_may_run_together_where_the_store_likes_that(files: LocalWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "at_once", 2)
    apply.apply(REWIND, files)
    assert names(files, "offsets") == ["0", "1", "2", "3"]


def test_an_undo_marks_what_it_undoes(files: LocalWriter) -> None:
    apply.apply(REWIND, files)
    undo = journal(
        Move("_respool/aside/ID/offsets/4", "offsets/4", 1),
        Move("_respool/aside/ID/commits/4", "commits/4", 1),
        operation="undo",
        of="ID",
        id="ID-undo",
        started=NOW,
        newest=LogEnds(3, 3),
        left=LogEnds(4, 4),
    )
    apply.apply(undo, files)
    done, undone = history.past(files)
    assert (done.id, done.undone) == ("ID", NOW)
    assert (undone.id, undone.undone) == ("ID-undo", None)


# Purge and leftovers


def test_purge_deletes_what_was_moved_aside_and_not_what_was_moved_in(files: LocalWriter, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    written(sink, {"part-0": "x"})
    change = restore(files, aside("part-0", str(sink)))
    apply.finish(change, files)
    (done,) = history.past(files)
    apply.purge(done, files, NOW)
    assert files.read("offsets/4") == b"new offsets/4"
    assert not files.below("_respool/aside")
    assert not (sink / "_respool/aside/ID/part-0").exists()
    assert history.past(files)[0].purged == NOW


def test_purge_leaves_the_sink_of_a_journal_that_somebody_else_wrote(
    files: LocalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = tmp_path / "sink"
    written(sink, {"part-0": "x"})
    apply.finish(restore(files, aside("part-0", str(sink))), files)
    (done,) = history.past(files)
    monkeypatch.setattr(installation, "foreign", lambda *_: "another host")
    apply.purge(done, files, NOW)
    assert not files.below("_respool/aside")
    assert (sink / "_respool/aside/ID/part-0").exists()


def test_copies_that_nothing_refers_to_are_left_over(files: LocalWriter) -> None:
    root = Path(files.root)
    written(root, {"_respool/staged/OLD/a": "12", "_respool/staged/OLD/b/c": "345", "_respool/staged/NEW/a": "1"})
    assert apply.leftovers(files, but="NEW") == [
        apply.Leftover("_respool/staged/OLD", ("_respool/staged/OLD/a", "_respool/staged/OLD/b/c"), 5)
    ]
    assert [leftover.path for leftover in apply.leftovers(files)] == ["_respool/staged/NEW", "_respool/staged/OLD"]
    assert [leftover.path for leftover in apply.clear_leftovers(files, but="NEW")] == ["_respool/staged/OLD"]
    assert files.below("_respool/staged") == ["_respool/staged/NEW/a"]


def test_an_empty_staged_folder_is_left_over(files: LocalWriter) -> None:
    """A restore that is killed before its first copy leaves one; it must not stop the next change."""
    (Path(files.root) / "_respool/staged/OLD/b").mkdir(parents=True)
    assert apply.clear_leftovers(files) == [apply.Leftover("_respool/staged/OLD", (), 0)]
    assert files.folders("_respool/staged") == []


def test_copies_of_a_pending_change_are_not_left_over(files: LocalWriter) -> None:
    restore(files)
    assert apply.leftovers(files) == []
    undo = journal(operation="undo", of="ID", id="ID-undo", left=LogEnds(4, 4))
    files.replace(history.PENDING, history.text_of(undo))
    assert apply.leftovers(files) == []


def test_temporary_files_are_left_over_wherever_respool_writes(
    files: LocalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ["x.tmp", "offsets/y.tmp", "_respool/z.tmp"]
    written(Path(files.root), dict.fromkeys(paths, "123"))
    monkeypatch.setattr(
        files, "temporary", lambda folder: [path for path in paths if path.rpartition("/")[0] == folder]
    )
    assert apply.leftovers(files) == [apply.Leftover(path, (path,), 3) for path in sorted(paths)]
    apply.clear_leftovers(files)
    assert not files.facts(paths)


def test_a_change_first_removes_the_leftovers_of_earlier_changes(files: LocalWriter) -> None:
    written(Path(files.root), {"_respool/staged/OLD/a": "1", "_respool/staged/ID/a": "2"})
    apply.begin(REWIND, files)
    assert files.below("_respool/staged") == ["_respool/staged/ID/a"]


@pytest.mark.parametrize("again", [apply.resume, apply.apply_undo])
def test_what_another_process_did_is_synced_first(
    files: LocalWriter, monkeypatch: pytest.MonkeyPatch, again: Any
) -> None:
    synced: list[bool] = []
    sync = LocalWriter.sync

    def watched(self: LocalWriter, everything: bool = False) -> None:
        synced.append(everything)
        sync(self, everything)

    begun = apply.begin(REWIND, files)
    monkeypatch.setattr(LocalWriter, "sync", watched)
    again(begun, files)
    assert synced[0]
    assert not any(synced[1:])


@pytest.mark.parametrize("at_once", [1, 2])
def test_moves_run_concurrently_where_the_store_allows_it(
    files: LocalWriter, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    threads: dict[str, bool] = {}
    move, prune = LocalWriter.move, LocalWriter.prune

    def moved(self: LocalWriter, source: str, target: str) -> None:
        threads[source] = threading.current_thread() is threading.main_thread()
        move(self, source, target)

    def pruned(self: LocalWriter, folder: str) -> None:
        threads.setdefault(folder, threading.current_thread() is threading.main_thread())
        prune(self, folder)

    monkeypatch.setattr(LocalWriter, "at_once", at_once)
    monkeypatch.setattr(LocalWriter, "move", moved)
    monkeypatch.setattr(LocalWriter, "prune", pruned)
    apply.apply(journal(aside("commits/4"), aside("offsets/4"), Prune("state")), files)
    in_main = at_once == 1
    assert (threads["commits/4"], threads["offsets/4"], threads["state"]) == (in_main, in_main, True)
