"""One contract for a folder on a local disk and for one on a filesystem that fsspec knows."""

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


@pytest.fixture(params=["local", "file:", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FolderWriter:
    match request.param:
        case "local":
            return open_writer(str(tmp_path))
        case "file:":
            return open_writer(tmp_path.as_uri())
    return open_writer(f"memory://{uuid.uuid4().hex}/checkpoint")


def test_what_is_created_is_listed_and_read(files: FolderWriter) -> None:
    files.create("offsets/0", b"zero")
    files.create("state/0/1/2.delta", b"two")
    files.create("metadata", b"{}")
    files.create("_respool/run.json", b"own")
    found = files.walk()
    assert not found.unreadable
    assert {folder: sorted(names) for folder, names in found.folders.items() if names} == {
        "": ["metadata"],
        "offsets": ["0"],
        "state/0/1": ["2.delta"],
    }
    assert files.read("offsets/0") == b"zero"
    assert files.names("offsets") == ["0"]
    assert files.names("nowhere") == []
    assert files.names("_respool") == ["run.json"]
    assert {path: one.size for path, one in files.facts(["offsets/0", "nothing"]).items()} == {"offsets/0": 4}
    many = files.read_many(["metadata", "nothing"])
    assert many["metadata"] == b"{}"
    assert isinstance(many["nothing"], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.read("nothing")


def test_what_is_there_is_not_created_again(files: FolderWriter) -> None:
    files.create("a", b"1")
    with pytest.raises(FileExistsError):
        files.create("a", b"2")
    assert files.read("a") == b"1"
    files.replace("a", b"3")
    assert files.read("a") == b"3"
    assert files.names("") == ["a"]  # nothing temporary is left


def test_a_move_can_be_done_again(files: FolderWriter) -> None:
    files.create("a/b", b"1")
    files.move("a/b", "_respool/aside/x/a/b")
    files.move("a/b", "_respool/aside/x/a/b")
    assert files.names("a") == []
    assert files.read("_respool/aside/x/a/b") == b"1"
    with pytest.raises(CheckpointError, match="c has vanished"):
        files.move("c", "d")


def test_what_is_gone_can_be_deleted_and_pruned(files: FolderWriter) -> None:
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


def test_a_copy_that_was_cut_off_is_made_again() -> None:
    files = open_writer(f"memory://{uuid.uuid4().hex}/checkpoint")
    files.create("a", b"whole")
    files.create("b", b"who")  # the copy of a run that was cut off
    files.move("a", "b")
    assert files.read("b") == b"whole"
    assert files.names("") == ["b"]
    files.create("c", b"whole")
    files.create("d", b"whole")  # all but the deletion was done
    files.move("c", "d")
    assert sorted(files.names("")) == ["b", "d"]


def test_a_move_never_writes_over_a_file(tmp_path: Path) -> None:
    files = LocalWriter(tmp_path)
    files.create("a", b"1")
    files.create("b", b"2")
    with pytest.raises(CheckpointError, match="both exist"):
        files.move("a", "b")
    assert (files.read("a"), files.read("b")) == (b"1", b"2")


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
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


@pytest.fixture(params=["local", "memory"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    return str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


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


def test_a_lease_whose_process_died_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_store_that_is_out_of_reach_is_a_warning_only() -> None:
    held = lease.hold("nosuch://bucket/checkpoint")
    assert held is not None
    assert held.warning is not None
    assert "nosuch://bucket/checkpoint is not locked against a second run" in held.warning
    held.close()
