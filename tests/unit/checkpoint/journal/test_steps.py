"""Journals: what they do, how they are undone, and as text."""

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import history, installation
from respool.checkpoint.journal.steps import (
    Journal,
    LogEnds,
    Move,
    Operation,
    Origin,
    Prune,
    Replace,
    Restore,
    Step,
    backwards,
    from_json,
    to_json,
)
from respool.checkpoint.planning.request import (
    LastBatches,
    RewindRequest,
    RewindTarget,
    ToBatch,
    ToOffsets,
    ToTime,
    copy_identity,
    identity_from_words,
    is_requested,
)
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.storage.local import LocalReader, LocalWriter

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = RestoreTable("/tables/a", 7, 3, "an-id", 9, 4)
STEPS = (
    Move("offsets/4", "_respool/aside/ID/offsets/4", 12),
    Move("part-0", "_respool/aside/ID/part-0", 3, "/sinks/a"),
    Replace("metadata", "old", "new"),
    Prune("state"),
    Restore(TABLE),
)
JOURNAL = Journal(
    id="ID",
    operation="rewind",
    of=None,
    request="--to-batch 4",
    reason="two\nlines",
    started=NOW,
    batch=4,
    same_range=True,
    newest=LogEnds(6, 5),
    left=LogEnds(4, 3),
    steps=STEPS,
    query_ids=("a", "b"),
    undone=NOW + timedelta(minutes=1),
    purged=NOW + timedelta(minutes=2),
    origin=Origin("host", "user", "/place", "seal"),
)


def changed(**facts: Any) -> bytes:
    return json.dumps(to_json(JOURNAL) | facts).encode()


def test_a_journal_is_read_as_it_was_written() -> None:
    again = from_json("x", history.text_of(JOURNAL))
    assert again == JOURNAL
    assert again.origin == JOURNAL.origin
    bare = replace(JOURNAL, reason=None, undone=None, purged=None, query_ids=(), origin=None, steps=())
    assert from_json("x", history.text_of(bare)) == bare
    assert from_json("x", history.text_of(bare)).origin is None


def test_a_journal_is_shown_in_one_line() -> None:
    assert repr(JOURNAL) == "Journal('ID', 'rewind', batch=4)"


def test_the_journal_of_a_checkpoint_without_a_batch_can_be_written() -> None:
    journal = replace(JOURNAL, batch=-1, newest=LogEnds(-1, -1), left=LogEnds(-1, -1))
    assert from_json("x", history.text_of(journal)) == journal
    assert journal.fence == "offsets/0"


def test_the_table_of_a_query_without_a_batch_in_it_can_be_written() -> None:
    step = Restore(replace(TABLE, from_batch=None, to_batch=-1, to_version=None), back=True)
    other = Restore(replace(TABLE, from_batch=-1))
    assert from_json("x", history.text_of(replace(JOURNAL, steps=(step, other)))).steps == (step, other)


@pytest.mark.parametrize(
    "facts",
    [
        {"batch": -2},
        {"newest": {"offsets": -2, "commits": 0}},
        {"newest": {"offsets": 0, "commits": -2}},
        {"left": {"offsets": 2**63 - 1, "commits": 0}},
        {"left": {"offsets": 0, "commits": 2**63 - 1}},
        {"operation": "delete"},
        {"id": "../x"},
        {"of": "a/b"},
        {"request": "a\nb"},
        {"query_ids": ["a\x1b"]},
        {"new_field": 1},
        {"steps": [{"step": "Delete", "path": "a"}]},
        {"steps": [{"step": "Move", "source": "../a", "target": "b", "size": 1, "sink": None}]},
        {"steps": [{"step": "Move", "source": "a", "target": "/b", "size": 1, "sink": None}]},
        {"steps": [{"step": "Move", "source": "a", "target": "b", "size": -1, "sink": None}]},
        {"steps": [{"step": "Replace", "path": "../metadata", "old": None, "new": None}]},
        {"steps": [{"step": "Prune", "folder": ".."}]},
        {"steps": [{"step": "Restore", "table": asdict(replace(TABLE, from_batch=-2)), "back": False}]},
        {"steps": [{"step": "Restore", "table": asdict(replace(TABLE, to_batch=-2)), "back": False}]},
    ],
)
def test_a_journal_that_respool_would_not_write_is_damaged(facts: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"here is damaged: .* Nothing was changed\."):
        from_json("here", changed(**facts))


def test_the_newest_batch_can_be_the_last_that_has_a_successor() -> None:
    journal = replace(JOURNAL, newest=LogEnds(2**63 - 2, 2**63 - 2))
    assert from_json("x", history.text_of(journal)) == journal


@pytest.mark.parametrize("version", [0, 3])
def test_a_journal_of_another_version_is_refused(version: int) -> None:
    with pytest.raises(CheckpointError, match=f"format version {version}"):
        from_json("here", changed(version=version))


def test_a_plan_that_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(CheckpointError, match="cannot be recorded"):
        to_json(replace(JOURNAL, steps=(Move("a\nb", "c", 1),)))


def test_steps_are_undone_in_reverse_order() -> None:
    assert backwards(STEPS) == (
        Restore(TABLE, back=True),
        Prune("state"),
        Replace("metadata", "new", "old"),
        Move("_respool/aside/ID/part-0", "part-0", 3, "/sinks/a"),
        Move("_respool/aside/ID/offsets/4", "offsets/4", 12),
    )
    assert backwards(backwards(STEPS)) == STEPS


def test_the_fence_is_behind_the_newest_batch_before_and_after() -> None:
    assert JOURNAL.fence == "offsets/7"
    assert replace(JOURNAL, left=LogEnds(9, 9)).fence == "offsets/10"


def test_moves_are_those_of_the_checkpoint_and_of_a_sink() -> None:
    assert JOURNAL.moves == list(STEPS[:2])


@pytest.mark.parametrize(
    ("operation", "command"),
    [
        ("rewind", "respool checkpoint rewind PATH WHAT"),
        ("undo", "respool checkpoint undo PATH"),
        ("promote", "respool promote WHAT PATH"),
        ("restore", "respool savepoint restore WHAT PATH"),
        ("fork", "respool savepoint fork WHAT PATH"),
    ],
)
def test_an_interrupted_change_says_how_to_finish_or_undo_it(operation: Any, command: str) -> None:
    journal = replace(JOURNAL, operation=operation, request="WHAT")
    text = journal.interruption("PATH")
    assert f"A {operation} of the checkpoint PATH was interrupted" in text
    assert f"Finish it with: {command}" in text
    assert ("undo it with: respool checkpoint undo PATH" in text) is (operation not in ("undo", "fork"))
    assert ("delete the folder" in text) is (operation == "fork")


# History


@pytest.fixture
def files(tmp_path: Path) -> LocalWriter:
    (tmp_path / history.FOLDER).mkdir(parents=True)
    return LocalWriter(tmp_path)


def keep(files: LocalWriter, journal: Journal) -> None:
    (Path(files.root) / history.path_of(journal)).write_bytes(history.text_of(journal))


def test_history_is_sorted_by_time_then_by_name(files: LocalWriter) -> None:
    journals = [
        replace(JOURNAL, steps=(), id="c", started=NOW),
        replace(JOURNAL, steps=(), id="b", started=NOW + timedelta(seconds=1)),
        replace(JOURNAL, steps=(), id="a", started=NOW + timedelta(seconds=1)),
    ]
    for journal in journals:
        keep(files, journal)
    folder = Path(files.root) / history.FOLDER
    (folder / ".d.json").write_text("not finished")
    (folder / "d.tmp").write_text("not finished")
    assert [journal.id for journal in history.past(files)] == ["c", "a", "b"]


def test_there_is_no_history_at_first(tmp_path: Path) -> None:
    assert history.past(LocalReader(tmp_path)) == []
    assert history.pending(LocalReader(tmp_path)) is None


def test_a_pending_journal_is_read(files: LocalWriter) -> None:
    (Path(files.root) / history.PENDING).write_bytes(history.text_of(JOURNAL))
    assert history.pending(files) == JOURNAL


def test_a_journal_that_cannot_be_read_is_named(files: LocalWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(files, JOURNAL)
    monkeypatch.setattr(files, "read_many", lambda paths: {path: PermissionError("no") for path in paths})
    with pytest.raises(CheckpointError, match=r"_respool/history/ID\.json cannot be read: no"):
        history.past(files)


def test_a_journal_under_the_name_of_another_is_damaged(files: LocalWriter) -> None:
    keep(files, JOURNAL)
    folder = Path(files.root) / history.FOLDER
    (folder / "ID.json").rename(folder / "OTHER.json")
    with pytest.raises(CheckpointError, match=r"OTHER\.json is damaged: it is the journal of another change, ID\."):
        history.past(files)


def test_the_newest_change_that_is_not_undone_is_undone_first() -> None:
    def journal(operation: Any, undone: bool = False) -> Journal:
        return replace(JOURNAL, operation=operation, undone=NOW if undone else None)

    for operation in ("rewind", "restore", "promote"):
        assert history.undoable(journal(operation))
        assert not history.undoable(journal(operation, undone=True))
    assert not history.undoable(journal("undo"))
    assert not history.undoable(journal("fork"))
    rewind, restore = journal("rewind"), journal("restore")
    assert history.last_change([rewind, restore, journal("promote", undone=True), journal("undo")]) is restore
    assert history.last_change([journal("fork"), journal("undo")]) is None


OUTSIDE: list[Step] = [
    Move("offsets/4", "_respool/aside/OTHER/offsets/4", 1),
    Move("offsets/4", "_respool/aside/ID/offsets/5", 1),
    Move("offsets/4", "commits/4", 1),
    Move("_respool/run.json", "_respool/aside/ID/_respool/run.json", 1),
    Move("_respool/aside/ID/_respool/run.json", "_respool/run.json", 1),
    Move("_respool/staged/ID/part-0", "part-0", 1, "/sinks/a"),
    Replace("_respool/history/x.json", None, "x"),
    Prune("_respool/aside"),
]
INSIDE: list[Step] = [
    Move("offsets/4", "_respool/aside/ID/offsets/4", 1),
    Move("_respool/aside/ID/offsets/4", "offsets/4", 1),
    Move("_respool/staged/ID/offsets/4", "offsets/4", 1),
    Move("offsets/4", "_respool/staged/ID/offsets/4", 1),
    Move("_respool/aside/OF/offsets/4", "offsets/4", 1),
    Move("part-0", "_respool/aside/ID/part-0", 1, "/sinks/a"),
    Replace("metadata", None, "x"),
    Replace("_respool/run.json", None, "x"),
    Replace("_respool/fork.json", "x", None),
    Prune("state"),
    Restore(TABLE),
]


@pytest.mark.parametrize("step", INSIDE)
def test_steps_that_respool_plans_are_read(files: LocalWriter, step: Step) -> None:
    journal = replace(JOURNAL, of="OF", steps=(step,))
    keep(files, journal)
    assert history.past(files) == [journal]


@pytest.mark.parametrize("step", OUTSIDE)
def test_a_journal_with_a_step_that_no_change_has_is_damaged(files: LocalWriter, step: Step) -> None:
    keep(files, replace(JOURNAL, steps=(STEPS[0], step)))
    with pytest.raises(CheckpointError, match=r"ID\.json is damaged: a step .*, which no change does"):
        history.past(files)


ASKED = RewindRequest(ToOffsets({("visits", 0): 120, ("visits", 1): 95}), same_range=True)
# As an earlier version wrote it.
VERSION_1 = {
    "version": 1,
    "id": "ID",
    "operation": "rewind",
    "of": None,
    "request": """--to-offsets '{"visits": {"1": 95, "0": 120}}' --same-range""",
    "reason": None,
    "started": "2025-09-04T07:00:00+00:00",
    "batch": 4,
    "same_range": True,
    "newest": {"offsets": 6, "commits": 5},
    "left": {"offsets": 4, "commits": 3},
    "steps": [],
    "query_ids": ["a"],
    "undone": None,
    "purged": None,
    "origin": None,
}


def test_a_journal_of_version_1_is_read_and_its_request_recognized() -> None:
    journal = from_json("x", json.dumps(VERSION_1).encode())
    assert journal.asked is None
    assert is_requested(journal, ASKED.identity(), "in any words")
    assert not is_requested(journal, replace(ASKED, same_range=False).identity(), "in any words")
    assert from_json("x", history.text_of(journal)) == journal


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("--to-batch 4", ToBatch(4)),
        ("--last 2", LastBatches(2)),
        ("--to-time 2025-09-04T07:00:00+00:00", ToTime(datetime(2025, 9, 4, 9, tzinfo=timezone(timedelta(hours=2))))),
        ("""--to-offsets '{"a b":{"0":1}}'""", ToOffsets({("a b", 0): 1})),
    ],
)
def test_the_words_of_version_1_are_read(words: str, target: RewindTarget) -> None:
    assert identity_from_words("rewind", words) == RewindRequest(target).identity()
    flags = " --same-range --restore-sink --new-query-id"
    assert identity_from_words("rewind", words + flags) == RewindRequest(target, True, True, True).identity()


DEEP = f"--to-offsets '{'[' * 50_000}'"


@pytest.mark.parametrize(
    "words", ["", "x", "--to-batch", "--to-batch x", "--to-offsets '[]'", DEEP, "--to 4", "--last '"]
)
def test_words_that_respool_did_not_write_are_no_request(words: str) -> None:
    journal = replace(JOURNAL, request=words)
    assert not is_requested(journal, RewindRequest(ToBatch(4)).identity(), "--to-batch 4")


@pytest.mark.parametrize("operation", ["restore", "fork", "promote"])
def test_a_copy_is_recognized_by_where_it_comes_from(operation: Operation) -> None:
    journal = replace(JOURNAL, operation=operation, request="one", asked=copy_identity(operation, "/store/one"))
    assert is_requested(journal, copy_identity(operation, "/store/one"), "/store/../store/one")
    assert not is_requested(journal, copy_identity(operation, "/other/one"), "one")
    old = replace(journal, asked=None)  # of version 1, which kept the words only
    assert is_requested(old, copy_identity(operation, "/store/one"), "one")
    assert not is_requested(old, copy_identity(operation, "/store/two"), "two")


def test_what_was_asked_for_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    signed = installation.sign(replace(JOURNAL, asked=ASKED.identity()), str(tmp_path))
    assert installation.foreign(signed, str(tmp_path)) is None
    other = replace(signed, asked=RewindRequest(ToBatch(0)).identity())
    assert "was changed after it was written" in str(installation.foreign(other, str(tmp_path)))
