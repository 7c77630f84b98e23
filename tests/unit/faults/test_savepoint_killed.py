"""kill -9 at any moment of create, restore, fork, promote: nothing half-made counts, nothing of the original is harmed.

Each command is run again and again, and killed before another one of the changes that it makes on disk. After each kill
the test looks at what is left, and lets the same command finish.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from respool.checkpoint.journal import apply, history
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.app import app
from respool.errors import CheckpointError
from respool.savepoint.store import SavepointStore
from respool.savepoint.verify import verify
from respool.storage.local import LocalReader
from support.checkpoints import unpack
from support.kill_server import KillServer

_FIRST, _LAST, _BETWEEN = 6, 20, 25  # so many changes before which a command is killed


def respool(*words: str) -> str:
    """Run a command in this process, and return what it printed; whatever it raises is raised here."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.output)


def contents(folder: Path) -> dict[str, bytes]:
    """What Spark sees of a checkpoint: all but respool's own folder, and what a killed process did not finish."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".tmp"))
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in files
        if file.relative_to(folder).parts[0] != "_respool"
    }


def everything(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def startable(folder: Path) -> bool:
    """Whether Spark would take the folder for a checkpoint to start on: there is a batch, and no fence is up."""
    offsets = list((folder / "offsets").glob("[0-9]*")) if (folder / "offsets").is_dir() else []
    return bool(offsets) and not any(file.read_bytes().startswith(apply.FENCE) for file in offsets)


class Stage:
    """A checkpoint, and a store of savepoints."""

    def __init__(self, folder: Path, kind: str, server: KillServer) -> None:
        self._server = server
        self.folder = folder
        self.checkpoint = unpack(folder, kind)
        self.store = SavepointStore(str(folder / "store"))
        self.options = ("--home", str(folder / "home"), "--savepoints", self.store.location)

    def kills(self, reset: Callable[[], None], *words: str) -> Iterator[int]:
        """Kill a command before its first changes, its last changes, and many in between; yield after each kill.

        Args:
            reset: Restores everything to its state before the command.
            words: The command.
        """
        count = self._server.run(None, *words, *self.options)
        assert count is not None
        assert count > _FIRST + _LAST  # else the changes were not watched
        between = range(_FIRST, count - _LAST)
        chosen = random.Random(1).sample(between, min(_BETWEEN, len(between)))
        for at in sorted({*range(_FIRST), *chosen, *range(count - _LAST, count)}):
            reset()
            if self._server.run(at, *words, *self.options) is None:
                yield at

    def call(self, *words: str) -> str:
        return respool(*words, *(self.options if words[0] != "checkpoint" else self.options[:2]))

    def again(self, original: Path) -> None:
        """Put the checkpoint back to what it was."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(original, self.checkpoint, copy_function=os.link)


@pytest.fixture(scope="module")
def kill_server() -> Iterator[KillServer]:
    server = KillServer()
    yield server
    server.close()


@pytest.fixture
def stage(tmp_path: Path, kill_server: KillServer, monkeypatch: pytest.MonkeyPatch) -> Stage:
    # A killed process loses nothing that it has written, as a machine without power does; waiting for the disk is slow.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "sync", lambda: None)
    return Stage(tmp_path, "transform", kill_server)


def test_create(stage: Stage) -> None:
    before = contents(stage.checkpoint)
    words = ("savepoint", "create", str(stage.checkpoint), "one")
    half = 0
    for _ in stage.kills(lambda: shutil.rmtree(stage.store.location, ignore_errors=True), *words):
        assert contents(stage.checkpoint) == before
        if stage.store.names():  # it was killed when all was done
            assert not verify(stage.store.get("one")).wrong
            continue
        with pytest.raises(CheckpointError, match="There is no savepoint one"):
            stage.store.get("one")
        half += bool(everything(Path(stage.store.location)))
        # The leftovers do no harm, and the next savepoint of that name removes them.
        stage.call(*words)
        _only_the_savepoint_is_there(stage)
    assert half > 10


def _only_the_savepoint_is_there(stage: Stage) -> None:
    savepoint = stage.store.get("one")
    assert not verify(savepoint).wrong
    data = savepoint.manifest.data
    expected = {"one/manifest.json", *(f"one/{data}/{file.path}" for file in savepoint.manifest.files)}
    assert {path for path in everything(Path(stage.store.location)) if not path.endswith(".tmp")} == expected


def test_restore(stage: Stage) -> None:
    stage.call("savepoint", "create", str(stage.checkpoint), "one", "--batch", "9")
    original = Path(shutil.copytree(stage.checkpoint, stage.folder / "original", copy_function=os.link))
    before = contents(stage.checkpoint)
    words = ("savepoint", "restore", "one", str(stage.checkpoint), "--yes", "--stopped", "--allow-data-loss")
    stage.call(*words)
    restored = contents(stage.checkpoint)
    assert restored.keys() < before.keys()
    stage.again(original)
    for _ in stage.kills(lambda: stage.again(original), *words):
        now = contents(stage.checkpoint)
        assert now in (before, restored) or not startable(stage.checkpoint)
        assert not verify(stage.store.get("one")).wrong
        pending = history.pending(LocalReader(stage.checkpoint))
        back = Path(shutil.copytree(stage.checkpoint, stage.folder / "back", copy_function=os.link))
        if now != restored or pending is not None:
            stage.call(*words)
        assert contents(stage.checkpoint) == restored
        if pending is not None or now == restored:
            stage.call("checkpoint", "undo", str(back), "--yes", "--accept-foreign-journal")  # it is a copy
        assert contents(back) == before
        shutil.rmtree(back)


def test_fork(stage: Stage) -> None:
    stage.call("savepoint", "create", str(stage.checkpoint), "one")
    before = contents(stage.checkpoint)
    new = stage.folder / "fork"
    words = ("savepoint", "fork", "one", str(new))
    for _ in stage.kills(lambda: shutil.rmtree(new, ignore_errors=True), *words):
        if startable(new):
            _is_a_whole_fork(stage, new)
        if not startable(new) or history.pending(LocalReader(new)) is not None:
            stage.call(*words, "--yes")  # the same command finishes it
        _is_a_whole_fork(stage, new)
        assert "A restart will find all it needs" in stage.call("checkpoint", "verify", str(new))
        assert not everything(new / "_respool" / "staged")
        assert contents(stage.checkpoint) == before
        assert not verify(stage.store.get("one")).wrong


def _is_a_whole_fork(stage: Stage, new: Path) -> None:
    forked, original = CheckpointSnapshot(LocalReader(new)), CheckpointSnapshot(LocalReader(stage.checkpoint))
    manifest = stage.store.get("one").manifest
    assert forked.query_id != original.query_id
    assert forked.next_batch == manifest.next_batch
    rewritten = {"metadata", ".metadata.crc", *(path for path in contents(new) if "/_metadata/v2/" in path)}
    hidden = {f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.crc" for path in rewritten}
    saved = {file.path for file in manifest.files}
    assert contents(new).keys() - rewritten - hidden == saved - rewritten - hidden


def test_promote(stage: Stage) -> None:
    stage.call("savepoint", "create", str(stage.checkpoint), "one", "--batch", "9")
    fork = stage.folder / "fork"
    stage.call("savepoint", "fork", "one", str(fork), "--allow-data-loss")
    original = Path(shutil.copytree(stage.checkpoint, stage.folder / "original", copy_function=os.link))
    before, forked = contents(stage.checkpoint), contents(fork)
    words = ("promote", str(fork), str(stage.checkpoint), "--yes", "--stopped", "--keep-as", "old")
    stage.call(*words)
    promoted = contents(stage.checkpoint)
    assert CheckpointSnapshot(LocalReader(stage.checkpoint)).query_id == CheckpointSnapshot(LocalReader(fork)).query_id

    def reset() -> None:
        stage.store.delete("old")
        stage.again(original)
        (fork / "_respool" / "promoted.json").unlink(missing_ok=True)

    reset()
    for _ in stage.kills(reset, *words):
        now = contents(stage.checkpoint)
        assert now in (before, promoted) or not startable(stage.checkpoint)
        assert contents(fork) == forked
        if "old" in stage.store.names():
            assert not verify(stage.store.get("old")).wrong
        pending = history.pending(LocalReader(stage.checkpoint))
        back = Path(shutil.copytree(stage.checkpoint, stage.folder / "back", copy_function=os.link))
        if now != promoted or pending is not None:
            stage.call(*words)
        assert contents(stage.checkpoint) == promoted
        assert not verify(stage.store.get("old")).wrong
        assert stage.store.get("old").manifest.batch == max(
            int(name) for name in os.listdir(original / "commits") if name.isdecimal()
        )
        if pending is not None or now == promoted:
            stage.call("checkpoint", "undo", str(back), "--yes", "--accept-foreign-journal")  # it is a copy
        assert contents(back) == before
        shutil.rmtree(back)
