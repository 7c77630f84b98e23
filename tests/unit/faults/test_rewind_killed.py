"""A rewind interrupted at any step leaves the checkpoint unchanged, or is finished by the same command, or undone."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import apply, history
from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.planning.request import LastBatches, RewindContext, RewindRequest, RewindTarget, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.planning.undo import plan_undo
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.storage.local import LocalReader, LocalWriter
from support.checkpoints import unpack

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
NEWEST = LastBatches(1)
_CHANGING = ("create", "replace", "move", "delete", "prune", "sync")


class Injected(Exception):
    """A fault of the test's own."""


class Failing:
    """Files whose n-th change fails, before anything is done or right after it."""

    def __init__(self, files: LocalWriter, at: int | None, fail: Callable[[], None], after: bool = False) -> None:
        self._files = files
        self._at = at
        self._fail = fail
        self._after = after
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._files, name)
        if name not in _CHANGING:
            return attribute

        def change(*words: Any) -> Any:
            self.changes += 1
            if self.changes - 1 == self._at and not self._after:
                self._fail()
            result = attribute(*words)
            if self.changes - 1 == self._at and self._after:
                self._fail()
            return result

        return change


def fail() -> None:
    raise Injected


def rewind_plan(checkpoint: Path, target: RewindTarget = NEWEST, **more: Any) -> Journal:
    plan = plan_rewind(
        CheckpointSnapshot(LocalReader(checkpoint)),
        RewindRequest(target, words="x", allow_data_loss=True, **more),
        RewindContext(now=NOW, ours=True),
    )
    assert not plan.refusals
    return plan.journal


def contents(checkpoint: Path) -> dict[str, int]:
    """What Spark sees, which is all but respool's own folder: each file by its inode, which no move changes."""
    inodes = {}
    for folder, folders, names in os.walk(checkpoint):
        if folder == str(checkpoint):
            folders[:] = [name for name in folders if name != "_respool"]
        for name in names:
            path = os.path.join(folder, name)
            inodes[os.path.relpath(path, checkpoint)] = os.stat(path).st_ino
    return inodes


@pytest.fixture(scope="module", params=["rocksdb", "transform-ids"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"), request.param)


@pytest.fixture
def copies(golden: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes copies of the golden checkpoint; by hard links, as no file is ever changed in place."""
    made = 0

    def copy() -> Path:
        nonlocal made
        made += 1
        return Path(shutil.copytree(golden, tmp_path / str(made), copy_function=os.link))

    return copy


@pytest.mark.parametrize("after", [False, True], ids=["before a change", "after a change"])
def test_an_error_at_any_step_leaves_a_checkpoint_unchanged_or_resumable(
    copies: Callable[[], Path], after: bool
) -> None:
    before, done = contents(copies()), copies()
    whole = Failing(LocalWriter(done), None, fail)
    apply.apply(rewind_plan(done), whole)
    rewound = contents(done)
    assert rewound.keys() < before.keys()
    for at in range(whole.changes):
        checkpoint = copies()
        journal = rewind_plan(checkpoint)
        with pytest.raises(Injected):
            apply.apply(journal, Failing(LocalWriter(checkpoint), at, fail, after))
        _as_before_or_fenced(checkpoint, journal, before, rewound)

        cut_off = history.pending(LocalReader(checkpoint))
        back = Path(shutil.copytree(checkpoint, f"{checkpoint}-back", copy_function=os.link))
        if cut_off is None:  # nothing was begun, or all was done
            assert contents(checkpoint) in (before, rewound)
            continue
        assert cut_off == journal
        apply.finish(cut_off, LocalWriter(checkpoint))
        assert contents(checkpoint) == rewound
        assert history.pending(LocalReader(checkpoint)) is None
        assert [entry.id for entry in history.past(LocalReader(checkpoint))] == [journal.id]

        if not (back / history.path_of(journal)).exists():  # else it counts as done, and `undo` is the usual one
            apply.apply_undo(plan_undo(CheckpointSnapshot(LocalReader(back)), NOW), LocalWriter(back))
            assert contents(back) == before


def _as_before_or_fenced(checkpoint: Path, journal: Journal, before: dict[str, int], rewound: dict[str, int]) -> None:
    """Spark can start only on a checkpoint that is whole: as it was, or rewound to the end."""
    now = contents(checkpoint)
    if now.pop(journal.fence, None) is not None:
        assert (checkpoint / journal.fence).read_bytes().startswith(apply.FENCE)
    else:
        assert now in (before, rewound)


def test_an_error_at_any_step_of_an_undo_leaves_what_can_be_finished(copies: Callable[[], Path]) -> None:
    before, done = contents(copies()), copies()
    apply.apply(rewind_plan(done), LocalWriter(done))
    rewound = contents(done)
    whole = Failing(LocalWriter(Path(shutil.copytree(done, f"{done}-whole", copy_function=os.link))), None, fail)
    apply.apply(plan_undo(CheckpointSnapshot(whole), NOW), whole)
    for at in range(whole.changes):
        checkpoint = Path(shutil.copytree(done, f"{done}-{at}", copy_function=os.link))
        journal = plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW)
        with pytest.raises(Injected):
            apply.apply(journal, Failing(LocalWriter(checkpoint), at, fail))
        _as_before_or_fenced(checkpoint, journal, before, rewound)
        cut_off = history.pending(LocalReader(checkpoint))
        if cut_off is not None:
            assert plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW) == cut_off
            apply.finish(cut_off, LocalWriter(checkpoint))
            assert contents(checkpoint) == before


_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from test_rewind_killed import Failing, rewind_plan
from respool.checkpoint.journal import apply
from respool.storage.local import LocalReader, LocalWriter

checkpoint, at = Path(sys.argv[1]), int(sys.argv[2])
apply.apply(rewind_plan(checkpoint), Failing(LocalWriter(checkpoint), at, lambda: os.kill(os.getpid(), signal.SIGKILL)))
"""


@pytest.mark.parametrize("golden", ["rocksdb"], indirect=True)  # one kind is enough: each step starts a process
def test_kill_9_at_any_step_leaves_a_checkpoint_unchanged_or_resumable(
    copies: Callable[[], Path],
) -> None:
    before, done = contents(copies()), copies()
    whole = Failing(LocalWriter(done), None, fail)
    apply.apply(rewind_plan(done), whole)
    rewound = contents(done)
    here = Path(__file__).parent
    for at in range(whole.changes):
        checkpoint = copies()
        words = [sys.executable, "-c", _KILLED, str(checkpoint), str(at), str(here), str(here.parents[1])]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        cut_off = history.pending(LocalReader(checkpoint))
        if cut_off is None:
            assert contents(checkpoint) in (before, rewound)
            continue
        _as_before_or_fenced(checkpoint, cut_off, before, rewound)
        apply.finish(cut_off, LocalWriter(checkpoint))
        assert contents(checkpoint) == rewound


def test_a_batch_that_is_written_after_the_plan_stops_the_rewind(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    journal = rewind_plan(checkpoint)
    newest = journal.newest.offsets
    shutil.copy(checkpoint / "offsets" / str(newest), checkpoint / "offsets" / str(newest + 1))
    before = contents(checkpoint)
    with pytest.raises(CheckpointError, match=r"it runs, or has run\. Nothing was changed"):
        apply.apply(journal, LocalWriter(checkpoint))
    assert contents(checkpoint) == before
    assert history.pending(LocalReader(checkpoint)) is None


def test_a_commit_that_is_written_after_the_plan_stops_the_rewind(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    newest = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    commit = (checkpoint / "commits" / str(newest)).read_bytes()
    (checkpoint / "commits" / str(newest)).unlink()  # a batch is running
    journal = rewind_plan(checkpoint)
    (checkpoint / "commits" / str(newest)).write_bytes(commit)
    before = contents(checkpoint)
    with pytest.raises(CheckpointError, match="it runs, or has run"):
        apply.apply(journal, LocalWriter(checkpoint))
    assert contents(checkpoint) == before


def test_two_concurrent_changes_are_refused(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    journal = rewind_plan(checkpoint)
    with pytest.raises(Injected):
        apply.apply(journal, Failing(LocalWriter(checkpoint), 3, fail))
    half = contents(checkpoint)
    with pytest.raises(CheckpointError, match="Another change to this checkpoint is in progress"):
        apply.apply(journal, LocalWriter(checkpoint))
    assert contents(checkpoint) == half


def test_an_undo_is_refused_once_the_query_has_run(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    journal = rewind_plan(checkpoint)
    apply.apply(journal, LocalWriter(checkpoint))
    (checkpoint / "offsets" / str(journal.batch)).write_text("v1\n{}\n-")
    with pytest.raises(CheckpointError, match=r"The query has run since .*offsets/\d+ is new.*Nothing was changed"):
        plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW)


def test_rewinds_are_undone_newest_first(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    files = LocalWriter(checkpoint)
    seen = [contents(checkpoint)]
    for number, batch in enumerate((12, 9, 5)):
        world = RewindContext(now=NOW.replace(minute=number), ours=True)
        apply.apply(plan_rewind(CheckpointSnapshot(files), RewindRequest(ToBatch(batch)), world).journal, files)
        seen.append(contents(checkpoint))
    for number, expected in enumerate(reversed(seen[:-1])):
        apply.apply(plan_undo(CheckpointSnapshot(files), NOW.replace(minute=10 + number)), files)
        assert contents(checkpoint) == expected
    with pytest.raises(CheckpointError, match="has no change to undo"):
        plan_undo(CheckpointSnapshot(files), NOW)


def test_a_purged_change_cannot_be_undone(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    journal = rewind_plan(checkpoint)
    apply.apply(journal, LocalWriter(checkpoint))
    rewound = contents(checkpoint)
    apply.purge(journal, LocalWriter(checkpoint), NOW)
    assert not (checkpoint / "_respool" / "aside" / journal.id).exists()
    assert contents(checkpoint) == rewound
    [past] = history.past(LocalReader(checkpoint))
    assert past.purged == NOW
    with pytest.raises(CheckpointError, match="was purged"):
        plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW)


def test_a_new_query_id_is_undone_too(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    before = (checkpoint / "metadata").read_bytes()
    journal = rewind_plan(checkpoint, new_query_id=True)
    apply.apply(journal, LocalWriter(checkpoint))
    assert CheckpointSnapshot(LocalReader(checkpoint)).query_id not in before.decode()
    assert not (checkpoint / ".metadata.crc").exists()
    apply.apply(plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW), LocalWriter(checkpoint))
    assert (checkpoint / "metadata").read_bytes() == before


def test_a_start_from_nothing_leaves_no_empty_folder_in_the_state(copies: Callable[[], Path]) -> None:
    checkpoint = copies()
    before = contents(checkpoint)
    apply.apply(rewind_plan(checkpoint, ToBatch(0)), LocalWriter(checkpoint))
    assert not (checkpoint / "state").exists()
    assert not [name for name in contents(checkpoint) if name.startswith(("offsets/", "commits/"))]
    apply.apply(plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW), LocalWriter(checkpoint))
    assert contents(checkpoint) == before
