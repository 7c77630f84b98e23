"""Where forks, restores, promotions and savepoints must not go: into another checkpoint, a savepoint, a table."""

import subprocess
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.savepoint.copying import copy_to
from respool.savepoint.placement import require_place, require_store_place
from respool.savepoint.promote import plan_promote
from respool.savepoint.restore import plan_restore, require_new
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.storage.local import LocalReader
from respool.storage.open import open_writer
from support.checkpoints import unpack
from support.savepoints import fork, save

WORLD = RewindContext(now=datetime(2026, 1, 2, tzinfo=timezone.utc), ours=True)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return unpack(tmp_path, "hdfs")


@pytest.fixture
def savepoint(tmp_path: Path, checkpoint: Path) -> StoredSavepoint:
    return save(checkpoint, SavepointStore(str(tmp_path / "store")))


def forbidden(tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint) -> dict[str, Path]:
    """Places that are inside something else, and what is said of them."""
    (tmp_path / "link").symlink_to(checkpoint)
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / f"{0:020}.json").touch()
    (tmp_path / "output" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "output" / "_spark_metadata" / "0").touch()
    return {
        f"is inside the checkpoint {checkpoint}": checkpoint / "new",
        f"is inside the checkpoint {tmp_path}/link": tmp_path / "link" / "new",
        "is inside the checkpoint": checkpoint / "state" / "deep" / "new",
        f"is inside the savepoint {savepoint.location}": Path(savepoint.location) / "new",
        "is inside the checkpoint|savepoint": Path(savepoint.data) / "new",
        f"is inside the savepoint store {tmp_path}/store": tmp_path / "store" / "new",
        f"is inside the table {tmp_path}/table": tmp_path / "table" / "new",
        f"is inside the table {tmp_path}/output": tmp_path / "output" / "new",
    }


def test_a_fork_a_restore_and_a_promotion_do_not_go_into_something_else(
    tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint
) -> None:
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), allow_data_loss=True)
    other = tmp_path / "other"
    fork(savepoint, other)
    forked = CheckpointSnapshot(LocalReader(other))
    for reason, where in forbidden(tmp_path, checkpoint, savepoint).items():
        with pytest.raises(CheckpointError, match=rf"{reason}.*Nothing was changed"):
            require_new(str(where), [])
        with pytest.raises(CheckpointError, match=reason):
            plan_restore(savepoint, None, str(where), request, WORLD)
        with pytest.raises(CheckpointError, match=reason):
            plan_promote(forked, None, str(where), request, WORLD, None)
        assert not where.exists()


def test_savepoints_are_not_kept_inside_something_else(
    tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint
) -> None:
    for reason, where in forbidden(tmp_path, checkpoint, savepoint).items():
        with pytest.raises(CheckpointError, match=reason):
            copy_to(savepoint, SavepointStore(str(where)))
        with pytest.raises(CheckpointError, match=reason):
            save(checkpoint, SavepointStore(str(where)), "two")
        assert not where.exists()
    with pytest.raises(CheckpointError, match=r"is a checkpoint\. Savepoints need their own folder"):
        copy_to(savepoint, SavepointStore(str(checkpoint)))
    with pytest.raises(CheckpointError, match="is a savepoint"):
        copy_to(savepoint, SavepointStore(savepoint.location))


def test_a_checkpoint_is_not_put_around_others(tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint) -> None:
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), allow_data_loss=True)
    (tmp_path / "all" / "of" / "them").mkdir(parents=True)
    checkpoint.rename(tmp_path / "all" / "of" / "them" / "mine")
    with pytest.raises(CheckpointError, match=r"contains the checkpoint .*all/of/them/mine"):
        plan_restore(savepoint, None, str(tmp_path / "all"), request, WORLD)
    with pytest.raises(CheckpointError, match=r"is a savepoint\. A checkpoint needs"):
        plan_restore(savepoint, None, savepoint.location, request, WORLD)
    with pytest.raises(CheckpointError, match="is a savepoint store"):
        plan_restore(savepoint, None, str(tmp_path / "store"), request, WORLD)


def test_usual_places_are_fine(tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / f"{0:020}.json").touch()
    for where in (tmp_path / "new", checkpoint, tmp_path / "a" / "b", tmp_path / "table" / "_checkpoint"):
        require_place(str(where))
    require_store_place(str(tmp_path / "store"))
    require_store_place(str(tmp_path / "another"))


def test_the_same_holds_on_an_object_store(checkpoint: Path, savepoint: StoredSavepoint) -> None:
    url = f"memory://{uuid4().hex}/team"
    files = open_writer(f"{url}/mine")
    for path in ("metadata", "offsets/0", "commits/0"):
        files.create(path, (checkpoint / path).read_bytes())
    copied = copy_to(savepoint, SavepointStore(f"{url}/store"))
    for where, reason in (
        (f"{url}/mine/fork", "is inside the checkpoint"),
        (f"{url}/mine/a/b/c", "is inside the checkpoint"),
        (f"{copied.location}/fork", "is inside the savepoint"),
        (url, "contains the checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            require_place(where)
    require_place(f"{url}/fork")


def test_the_command_refuses_and_changes_nothing(
    respool: str, tmp_path: Path, checkpoint: Path, savepoint: StoredSavepoint
) -> None:
    command = [respool, "savepoint", "fork", savepoint.location, str(checkpoint / "fork")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"is inside the checkpoint {checkpoint}" in done.stderr
    assert not (checkpoint / "fork").exists()
