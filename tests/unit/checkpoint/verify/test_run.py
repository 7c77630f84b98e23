"""Verify passes a sound checkpoint, and reports any damage to any of its files."""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.checkpoint.journal import apply, history
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.storage.folder import FileInfo, FolderListing
from respool.storage.local import LocalWriter
from support import checkpoints
from support.checkpoints import crc_of, tables_of, written
from support.verifying import NOW, STORE, Damage, assert_named_and_mended, command_of, cut_off, findings, look


@pytest.mark.parametrize(
    ("version", "kind"), [(version, kind) for version in checkpoints.versions() for kind in checkpoints.kinds(version)]
)
def test_a_sound_checkpoint_is_clean(originals: Callable[[str, str], Path], version: str, kind: str) -> None:
    checks = look(originals(kind, version))
    assert not findings(checks, "broken")
    expected = {"async": ["async progress tracking"], "offsets-v2": ["partitions"], "named": ["partitions"]}
    for finding, word in zip(findings(checks, "note"), expected.get(kind, []), strict=True):
        assert word in finding.what


@pytest.mark.parametrize(
    "kind", ["hdfs", "session", "changelog", "ids-changelog", "join-families", "transform", "rocksdb"]
)
def test_a_sound_checkpoint_without_hidden_checksums_is_clean(copy: Callable[..., Path], kind: str) -> None:
    checkpoint = copy(kind)
    for path in checkpoint.rglob(".*.crc"):
        path.unlink()
    assert all(check.status == "ok" for check in look(checkpoint))


class Altered(LocalWriter):
    """A folder in which one file reads as deleted or changed, though nothing is written."""

    def __init__(self, root: Path, path: str, data: bytes | None) -> None:
        super().__init__(root)
        self._path = path
        self._data = data

    def walk(self) -> FolderListing:
        listing = super().walk()
        folder, _, name = self._path.rpartition("/")
        if self._data is None:
            listing.folders[folder].remove(name)
        return listing

    def read(self, path: str) -> bytes:
        if path != self._path:
            return super().read(path)
        if self._data is None:
            raise FileNotFoundError(path)
        return self._data

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        infos = super().facts(paths)
        if self._path in infos:
            if self._data is None:
                del infos[self._path]
            else:
                infos[self._path] = FileInfo(len(self._data), infos[self._path].modified)
        return infos


@given(data=st.data())
def test_any_damage_to_a_file_is_reported_with_a_remedy_that_can_be_followed(
    originals: Callable[..., Path], data: st.DataObject
) -> None:
    kind = data.draw(
        st.sampled_from([name for name in checkpoints.kinds() if name not in ("join", "join-changelog", "clock")])
    )
    checkpoint = originals(kind)
    paths = sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths))
    content = (checkpoint / path).read_bytes()
    how = data.draw(st.sampled_from(["deleted", "truncated", "flipped"]))
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    changed: bytes | None = None
    if how == "truncated":
        changed = content[:at]
    elif how == "flipped" and content:
        changed = content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :]
    files = Altered(checkpoint, path, changed)
    checks = verify(CheckpointSnapshot(files))
    for finding in findings(checks, "broken") + findings(checks, "note"):
        assert finding.what
        assert finding.remedy
        command = command_of(finding.remedy, checkpoint)
        if command is not None:
            request = RewindRequest(ToBatch(command[0]), new_query_id=command[1], allow_data_loss=True)
            assert not plan_rewind(CheckpointSnapshot(files), request, RewindContext(now=NOW, ours=True)).refusals


def _as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


FOLDERS = [
    Damage(
        "offsets as a file", "hdfs", lambda c: _as_file(c / "offsets"), "offsets is a file; expected a folder", "copy"
    ),
    Damage("a partition as a file", "hdfs", lambda c: _as_file(c / "state/0/1"), "state/0/1 is a file", "copy"),
    Damage("a folder as a batch", "hdfs", lambda c: (c / "offsets/14").mkdir(), "offsets/14 is a folder", to=14),
    Damage(
        "a leftover",
        "hdfs",
        lambda c: (c / STORE / ".15.delta.f00.tmp").write_text("x"),
        f"{STORE}/.15.delta.f00.tmp",
        "may be deleted",
        status="note",
    ),
    Damage(
        "an SST that no zip needs",
        "rocksdb",
        lambda c: shutil.copy(tables_of(c / STORE / "14.zip")[0], c / STORE / "SSTs/000001-x.sst"),
        f"{STORE}/SSTs/000001-x.sst",
        "may be deleted",
        status="note",
    ),
    Damage(
        "a checksum without its delta",
        "hdfs",
        lambda c: shutil.copy(crc_of(c / STORE / "14.delta"), crc_of(c / STORE / "15.delta")),
        f"{STORE}/.15.delta.crc",
        "may be deleted",
        status="note",
    ),
    Damage("a rewind cut off", "hdfs", cut_off, history.PENDING, "respool checkpoint undo"),
    Damage(
        "a damaged journal",
        "hdfs",
        lambda c: written(c / history.PENDING, "{"),
        f"{history.PENDING} is damaged",
        "Ask for help",
    ),
]


@pytest.mark.parametrize("damage", FOLDERS, ids=lambda damage: damage.name)
def test_damage_to_the_folder_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)


def test_a_rewind_that_was_interrupted_is_clean_once_it_is_finished(copy: Callable[..., Path]) -> None:
    checkpoint = copy("hdfs")
    cut_off(checkpoint)
    (finding,) = findings(look(checkpoint), "broken")
    assert f"respool checkpoint rewind {checkpoint} --to-batch 9" in finding.remedy
    files = LocalWriter(checkpoint)
    pending = history.pending(files)
    assert pending is not None
    apply.finish(pending, files)
    assert all(check.status == "ok" for check in look(checkpoint))


@pytest.mark.parametrize(
    ("inside", "what", "remedy"),
    [
        ([], "it is empty", "begins with batch 0"),
        (["notes.txt", "data/part-0.parquet"], "it holds data, notes.txt", "Check the path"),
        (["table/_delta_log/0.json", "_delta_log/0.json"], "a table written by a query", "checkpointLocation"),
        (["visits/offsets/0", "visits/metadata"], "but contains checkpoints: visits", "/visits"),
    ],
    ids=["empty", "foreign", "a table", "the folder above"],
)
def test_a_folder_that_is_not_a_checkpoint_is_reported_as_what_it_is(
    tmp_path: Path, inside: list[str], what: str, remedy: str
) -> None:
    for path in inside:
        written(tmp_path / path, "x")
    (finding,) = findings(look(tmp_path), "broken")
    assert str(tmp_path) in finding.what
    assert what in finding.what
    assert remedy in finding.remedy


def test_a_checkpoint_without_a_batch_is_sound(tmp_path: Path) -> None:
    written(tmp_path / "metadata", '{"id":"8491b5b1-af43-4266-97d6-99e64b7a775c"}')
    assert all(check.status == "ok" for check in look(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
@pytest.mark.parametrize(
    "path", ["state/0/0/14.delta", "offsets/13", "offsets/3", "sources/0/13", "metadata", "state/0/1", "commits", "."]
)
def test_what_may_not_be_read_is_named(originals: Callable[..., Path], path: str) -> None:
    with TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        checkpoint = Path(open_to_all) / "checkpoint"
        shutil.copytree(originals("hdfs"), checkpoint)
        look(checkpoint)  # imports what it needs, which nobody else may read
        (checkpoint / path).chmod(0)
        os.seteuid(65534)
        try:
            checks = look(checkpoint)
        finally:
            os.seteuid(0)
    (finding,) = findings(checks, "broken")
    assert f"{checkpoint if path == '.' else path} cannot be read: " in finding.what
    assert "ermission denied" in finding.what
    assert "Grant this account read access" in finding.remedy
