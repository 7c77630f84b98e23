"""The power fails at any moment of a change: nothing half-made counts, and every change can be finished or undone.

What is not synced is lost, in three ways: all of it; the data of files but not their names; names after some moment.
See `support/power_cut.py` for what a disk is taken to keep.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from respool.checkpoint.journal import apply, history
from respool.cli.app import app
from respool.savepoint.store import SavepointStore
from respool.savepoint.verify import verify
from respool.storage.local import LocalReader
from support.checkpoints import unpack
from support.power_cut import Loss, Recording

_CUTS = 8  # moments of a change at which the power fails, in each of the three ways

Files = dict[str, bytes]


@dataclass(frozen=True)
class Machine:
    """All that the power cut can reach: a checkpoint, a store of savepoints, a home."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        return self.root / "rocksdb"

    @property
    def fork(self) -> Path:
        return self.root / "fork"

    @property
    def store(self) -> SavepointStore:
        return SavepointStore(str(self.root / "store"))

    def run(self, *words: str) -> str:
        store = ("--savepoints", self.store.location) if words[0] != "checkpoint" else ()
        result = CliRunner().invoke(app, [*words, "--home", str(self.root / "home"), *store], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return str(result.output)

    def cut(self, *words: str) -> "Iterator[Callable[[], None]]":
        """Record a command, then let the power fail at moments of it; yield after each.

        What is yielded puts everything back to right after that power cut.
        """
        recording = Recording(self.root)
        with recording.record():
            self.run(*words)
        assert len(recording) > _CUTS
        moments = {0, len(recording), *random.Random(18).sample(range(1, len(recording)), _CUTS)}
        for at in sorted(moments):
            for number, loss in enumerate(get_args(Loss)):

                def rebuild(at: int = at, loss: Loss = loss, number: int = number) -> None:
                    recording.rebuild(at, loss, seed=at + number)

                rebuild()
                yield rebuild


def contents(folder: Path) -> Files:
    """What Spark sees of a checkpoint: all but respool's own folder and unfinished files."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.relative_to(folder).parts[0] != "_respool" and not file.name.endswith(".tmp")
    }


def is_startable(folder: Path) -> bool:
    """Whether Spark would start there: there is a batch, and no fence."""
    batches = [file for file in folder.glob("offsets/*") if file.name.isdecimal()]
    return bool(batches) and not any(file.read_bytes().startswith(apply.FENCE) for file in batches)


def is_pending(folder: Path) -> bool:
    return folder.is_dir() and history.pending(LocalReader(folder)) is not None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # outside of recordings: nothing is lost there
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "machine"
    root.mkdir()
    unpack(root, "rocksdb")
    return Machine(root)


def check_change(machine: Machine, before: Files, after: Files, *words: str) -> None:
    """Cut a change of the checkpoint: it never starts half-changed, and the change can be finished and undone."""
    interrupted = 0
    for rebuild in machine.cut(*words):
        now = contents(machine.checkpoint)
        assert now in (before, after) or not is_startable(machine.checkpoint)
        pending = is_pending(machine.checkpoint)
        interrupted += pending
        if pending or now != after:
            assert pending or now == before  # else nobody knows what was being done
            machine.run(*words)
        assert contents(machine.checkpoint) == after
        assert not list(machine.checkpoint.glob("_respool/staged/*/*"))
        if pending:
            rebuild()
            machine.run("checkpoint", "undo", str(machine.checkpoint), "--yes")
            assert contents(machine.checkpoint) == before
    assert interrupted > 5


def test_rewind(machine: Machine) -> None:
    words = (
        "checkpoint",
        "rewind",
        str(machine.checkpoint),
        "--to-batch",
        "4",
        "--yes",
        "--stopped",
        "--allow-data-loss",
    )
    original = Path(shutil.copytree(machine.checkpoint, machine.root.parent / "original"))
    machine.run(*words)
    after = contents(machine.checkpoint)
    shutil.rmtree(machine.checkpoint)
    shutil.copytree(original, machine.checkpoint)
    check_change(machine, contents(original), after, *words)


def test_undo(machine: Machine) -> None:
    before = contents(machine.checkpoint)
    machine.run(
        "checkpoint", "rewind", str(machine.checkpoint), "--to-batch", "4", "--yes", "--stopped", "--allow-data-loss"
    )
    rewound = contents(machine.checkpoint)
    words = ("checkpoint", "undo", str(machine.checkpoint), "--yes")
    for _ in machine.cut(*words):
        now = contents(machine.checkpoint)
        assert now in (before, rewound) or not is_startable(machine.checkpoint)
        if is_pending(machine.checkpoint) or now != before:
            machine.run(*words)
        assert contents(machine.checkpoint) == before


def test_restore(machine: Machine) -> None:
    machine.run("savepoint", "create", str(machine.checkpoint), "early", "--batch", "5")
    words = ("savepoint", "restore", "early", str(machine.checkpoint), "--yes", "--stopped", "--allow-data-loss")
    original = Path(shutil.copytree(machine.checkpoint, machine.root.parent / "original"))
    machine.run(*words)
    after = contents(machine.checkpoint)
    shutil.rmtree(machine.checkpoint)
    shutil.copytree(original, machine.checkpoint)
    check_change(machine, contents(original), after, *words)
    assert not verify(machine.store.get("early")).wrong


def test_savepoint_create(machine: Machine) -> None:
    before = contents(machine.checkpoint)
    words = ("savepoint", "create", str(machine.checkpoint), "now")
    for _ in machine.cut(*words):
        assert contents(machine.checkpoint) == before
        if "now" not in machine.store.names():
            machine.run(*words)
        assert not verify(machine.store.get("now")).wrong


def test_savepoint_delete(machine: Machine) -> None:
    machine.run("savepoint", "create", str(machine.checkpoint), "old")
    for _ in machine.cut("savepoint", "delete", "old", "--yes"):
        if "old" in machine.store.names():
            assert not verify(machine.store.get("old")).wrong
        else:  # what is left is in nobody's way
            machine.run("savepoint", "create", str(machine.checkpoint), "old")
            assert not verify(machine.store.get("old")).wrong


def test_fork(machine: Machine) -> None:
    machine.run("savepoint", "create", str(machine.checkpoint), "now")
    words = ("savepoint", "fork", "now", str(machine.fork), "--yes")
    for _ in machine.cut(*words):
        if not is_startable(machine.fork) or is_pending(machine.fork):
            machine.run(*words)
        assert is_startable(machine.fork)
        assert "A restart will find all it needs" in machine.run("checkpoint", "verify", str(machine.fork))
        assert not verify(machine.store.get("now")).wrong


def test_promote(machine: Machine) -> None:
    machine.run("savepoint", "create", str(machine.checkpoint), "early", "--batch", "5")
    machine.run("savepoint", "fork", "early", str(machine.fork), "--allow-data-loss")
    words = ("promote", str(machine.fork), str(machine.checkpoint), "--yes", "--stopped", "--keep-as", "old")
    copy = Path(shutil.copytree(machine.root, machine.root.parent / "copy"))
    before, forked = contents(machine.checkpoint), contents(machine.fork)
    machine.run(*words)
    after = contents(machine.checkpoint)
    shutil.rmtree(machine.root)
    shutil.copytree(copy, machine.root)
    check_change(machine, before, after, *words)
    assert contents(machine.fork) == forked
