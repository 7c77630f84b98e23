"""What every folder does for a checkpoint: on a local disk, in memory by fsspec, and on S3."""

import subprocess
import sys
import time
import uuid
from pathlib import Path

import fsspec
import pytest

from respool.errors import CheckpointError, CheckpointNotFoundError
from respool.storage import lease
from respool.storage.folder import FolderWriter
from respool.storage.local import LocalWriter
from respool.storage.open import open_reader, open_writer


@pytest.fixture(params=["local", "file:", "memory", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FolderWriter:
    """An empty folder of each kind, open for writing."""
    match request.param:
        case "local":
            return open_writer(str(tmp_path))
        case "file:":
            return open_writer(tmp_path.as_uri())
    return open_writer(_remote(request))


@pytest.fixture(params=["memory", "s3"])
def remote(request: pytest.FixtureRequest) -> FolderWriter:
    """An empty folder of a filesystem that copies and deletes where a disk renames."""
    return open_writer(_remote(request))


def _remote(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/checkpoint"
    request.getfixturevalue("s3")
    return f"s3://test-bucket/{uuid.uuid4().hex}/checkpoint"


def test_a_created_file_is_listed_and_read(files: FolderWriter) -> None:
    files.create("offsets/0", b"zero")
    files.create("state/0/1/2.delta", b"two")
    files.create("metadata", b"{}")
    files.create("_respool/run.json", b"own")
    listing = files.walk()
    assert not listing.unreadable
    assert {folder: sorted(names) for folder, names in listing.folders.items() if names} == {
        "": ["metadata"],
        "offsets": ["0"],
        "state/0/1": ["2.delta"],
    }
    assert files.read("offsets/0") == b"zero"
    assert files.names("offsets") == ["0"]
    assert files.names("nowhere") == []
    assert files.names("_respool") == ["run.json"]
    assert {path: info.size for path, info in files.facts(["offsets/0", "nothing"]).items()} == {"offsets/0": 4}
    many = files.read_many(["metadata", "nothing"])
    assert many["metadata"] == b"{}"
    assert isinstance(many["nothing"], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.read("nothing")


def test_an_existing_file_is_replaced_but_not_created(files: FolderWriter) -> None:
    files.create("a", b"1")
    with pytest.raises(FileExistsError):
        files.create("a", b"2")
    assert files.read("a") == b"1"
    files.replace("a", b"3")
    assert files.read("a") == b"3"
    assert files.names("") == ["a"]  # nothing temporary is left


def test_a_file_written_in_chunks_takes_the_place_of_another(files: FolderWriter) -> None:
    for content in (b"first", b"second"):
        files.write("a/b", [content[:2], content[2:]])
        files.sync()
        assert files.read("a/b") == content
    assert files.names("a") == ["b"]  # nothing temporary is left


def test_a_move_can_be_repeated(files: FolderWriter) -> None:
    files.create("a/b", b"1")
    files.move("a/b", "_respool/aside/x/a/b")
    files.move("a/b", "_respool/aside/x/a/b")
    assert files.names("a") == []
    assert files.read("_respool/aside/x/a/b") == b"1"
    with pytest.raises(CheckpointError, match="c has vanished"):
        files.move("c", "d")


def test_a_deletion_can_be_repeated_and_empty_folders_are_pruned(files: FolderWriter) -> None:
    files.create("state/0/1/x", b"1")
    files.delete("state/0/1/x")
    files.delete("state/0/1/x")
    files.prune("state")
    files.prune("state")
    files.create("offsets/0", b"")
    assert not [folder for folder in files.walk().folders if folder.startswith("state")]
    files.create("state/0/1/x", b"1")
    files.prune("state")
    assert files.read("state/0/1/x") == b"1"


def test_an_interrupted_copy_is_repeated(remote: FolderWriter) -> None:
    remote.create("a", b"whole")
    remote.create("b", b"who")  # the copy of a run that was interrupted
    remote.move("a", "b")
    assert remote.read("b") == b"whole"
    assert remote.names("") == ["b"]
    remote.create("c", b"whole")
    remote.create("d", b"whole")  # all but the deletion was done
    remote.move("c", "d")
    assert sorted(remote.names("")) == ["b", "d"]


def test_a_move_never_writes_over_a_file(tmp_path: Path) -> None:
    files = LocalWriter(tmp_path)
    files.create("a", b"1")
    files.create("b", b"2")
    with pytest.raises(CheckpointError, match="both exist"):
        files.move("a", "b")
    assert (files.read("a"), files.read("b")) == (b"1", b"2")


SYNCING = """
import sys
from pathlib import Path
from respool.storage.local import LocalWriter

files = LocalWriter(Path(sys.argv[1]))
files.create(sys.argv[2], b"x")
files.sync()
"""


@pytest.mark.parametrize("depth", [0, 1], ids=["/", "a folder in /"])
def test_a_folder_at_the_top_of_the_file_system_is_synced(tmp_path: Path, depth: int) -> None:
    path = (tmp_path / "made" / "file").resolve()
    top = path.parents[len(path.parents) - 1 - depth]
    words = [sys.executable, "-c", SYNCING, str(top), str(path.relative_to(top))]
    subprocess.run(words, check=True, timeout=60)  # it has taken forever
    assert path.read_bytes() == b"x"


def test_a_folder_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointNotFoundError, match="the folder does not exist") as caught:
        open_reader(str(tmp_path / "none"))
    assert caught.value.path == str(tmp_path / "none")
    with pytest.raises(CheckpointNotFoundError, match="it is a file; expected a checkpoint's folder"):
        open_reader(str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="Name a folder, or a URL"):
        open_reader("nosuch://bucket/checkpoint")
    with pytest.raises(
        CheckpointNotFoundError, match="There is no checkpoint memory://none: the folder is missing or empty"
    ):
        open_reader("memory://none").walk()


# Leases


@pytest.fixture(params=["local", "memory", "s3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    return str(tmp_path) if request.param == "local" else _remote(request)


def test_a_checkpoint_is_held_once(checkpoint: str) -> None:
    assert lease.holder(checkpoint) is None
    held = lease.hold(checkpoint)
    assert held is not None
    assert held.warning is None
    assert lease.hold(checkpoint) is None
    assert str(lease.holder(checkpoint)).startswith("process ")
    held.close()
    assert lease.holder(checkpoint) is None
    with lease.hold(checkpoint) or pytest.fail("it is free again"):
        assert lease.hold(checkpoint) is None


def test_the_lease_of_a_dead_process_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    where = f"memory://{uuid.uuid4().hex}"
    held = lease.hold(where)  # never closed: as if its process was killed
    assert held is not None
    assert lease.hold(where) is None
    monkeypatch.setattr(lease, "_SECONDS", 0.0)
    assert lease.holder(where) is None


def test_a_lease_is_renewed_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    monkeypatch.setattr(lease, "_RENEW", 0.01)
    where = f"memory://{uuid.uuid4().hex}"
    held = lease.hold(where)
    assert held is not None
    fs = fsspec.filesystem("memory")
    path = f"{where.removeprefix('memory:/')}/_respool/lease.json"
    first = fs.cat_file(path)
    end = time.monotonic() + 60
    while fs.cat_file(path) == first:
        assert time.monotonic() < end, "it was never written again"
        time.sleep(0.01)
    held.close()
    assert not fs.exists(path)


def test_an_unreachable_store_is_only_a_warning() -> None:
    held = lease.hold("nosuch://bucket/checkpoint")
    assert held is not None
    assert held.warning is not None
    assert "nosuch://bucket/checkpoint is not locked against a second run" in held.warning
    held.close()
