"""Verify passes a sound checkpoint, and reports whatever happens to any file of it."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.storage.folder import FileInfo, FolderListing
from respool.storage.local import LocalWriter
from support import checkpoints
from support.verifying import NOW, command_of, findings, look


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
