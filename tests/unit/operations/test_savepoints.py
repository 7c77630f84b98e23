"""What `respool.Savepoints` and `respool.Savepoint` promise: whole or not at all, and nothing is overwritten."""

import copy
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from respool import errors
from respool.checkpoint.journal import apply
from respool.errors import CheckpointError, UsageError
from respool.operations.checkpoint import Checkpoint
from respool.operations.plans import InstallPlan, ResumePlan
from respool.operations.savepoints import Savepoint, Savepoints
from respool.settings import Settings
from support.checkpoints import unpack


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def checkpoint(tmp_path: Path, settings: Settings) -> Checkpoint:
    return Checkpoint(unpack(tmp_path, "kafka").rename(tmp_path / "query"), settings=settings)


@pytest.fixture
def savepoints(settings: Settings) -> Savepoints:
    return Savepoints(settings=settings)


@pytest.fixture
def savepoint(savepoints: Savepoints, checkpoint: Checkpoint) -> Savepoint:
    return savepoints.create(checkpoint, "monday")


def contents(folder: str | Path) -> dict[str, bytes]:
    root = Path(folder)
    files = [file.relative_to(root) for file in root.rglob("*") if file.is_file()]
    return {str(file): (root / file).read_bytes() for file in files if "_respool" not in file.parts}


def test_savepoints_are_created_listed_found_and_deleted(savepoints: Savepoints, checkpoint: Checkpoint) -> None:
    copied: list[tuple[int, int]] = []
    created = savepoints.create(
        checkpoint, "monday", batch=12, reason="before v2", on_progress=lambda *counts: copied.append(counts)
    )
    assert copied[-1] == (len(created.manifest.files),) * 2
    assert (created.name, created.manifest.batch, created.manifest.reason) == ("monday", 12, "before v2")
    newest = savepoints.create(checkpoint, "tuesday")
    assert savepoints.list() == tuple(savepoints) == (created, newest)
    assert savepoints["tuesday"] == savepoints[newest.location] == newest
    assert [saved.name for saved in checkpoint.status().savepoints] == ["monday", "tuesday"]
    savepoints.delete("monday")
    assert savepoints.list() == (newest,)


def test_what_cannot_be_created_found_or_deleted_is_an_error(
    savepoints: Savepoints, savepoint: Savepoint, checkpoint: Checkpoint, settings: Settings, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    for arguments, reason in (
        (("a/b",), "a/b"),
        (("",), "''"),
        (("monday",), "monday"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            savepoints.create(checkpoint, *arguments)
    with pytest.raises(CheckpointError, match="is not committed; the newest is 13"):
        savepoints.create(checkpoint, "new", batch=99)
    with pytest.raises(errors.CheckpointNotFoundError):
        savepoints.create(Checkpoint(tmp_path / "missing", settings=settings), "new")
    with pytest.raises(CheckpointError, match="Did you mean 'monday'"):
        savepoints["munday"]
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        savepoints[str(tmp_path / "query")]
    with pytest.raises(CheckpointError, match="Did you mean 'monday'"):
        savepoints.delete("munday")
    assert contents(tmp_path) == before


def test_a_damaged_manifest_is_reported_and_left_out(
    savepoints: Savepoints, savepoint: Savepoint, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    savepoints.create(checkpoint, "tuesday")
    Path(savepoint.location, "manifest.json").write_text("{")
    notes: list[str] = []
    with caplog.at_level(logging.WARNING, logger="respool"):
        assert [saved.name for saved in savepoints.list(on_note=notes.append)] == ["tuesday"]
    assert notes == [record.message for record in caplog.records]
    assert "monday/manifest.json" in notes[0]
    with pytest.raises(errors.DamagedFileError):
        savepoints["monday"]


def test_what_an_interrupted_creation_left_is_deleted(savepoints: Savepoints, savepoint: Savepoint) -> None:
    assert not savepoints.has_leftovers("monday")
    Path(savepoint.location, "manifest.json").unlink()
    assert savepoints.has_leftovers("monday")
    savepoints.delete("monday")
    assert not savepoints.has_leftovers("monday")
    assert not Path(savepoint.location).exists()


def test_a_copy_is_a_savepoint_of_its_own(savepoints: Savepoints, savepoint: Savepoint, tmp_path: Path) -> None:
    elsewhere = Savepoints(tmp_path / "elsewhere", settings=savepoints.settings)
    copied = savepoints.copy("monday", elsewhere, new_name="kept")
    savepoints.delete("monday")
    assert elsewhere.list() == (copied,)
    assert copied.verify().ok
    with pytest.raises(CheckpointError, match="kept"):
        elsewhere.copy("kept", elsewhere)


def test_a_changed_byte_is_reported(savepoint: Savepoint, checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert savepoint.verify().ok
    file = next(Path(savepoint.data).rglob("*.delta"))
    file.write_bytes(file.read_bytes() + b"x")
    report = savepoint.verify(load_state=True)  # Spark is not started for a damaged savepoint
    assert (report.ok, report.loaded) == (False, None)
    assert file.name in report.wrong[0]
    before = contents(checkpoint.location)
    with pytest.raises(errors.DamagedFileError):
        checkpoint.apply(checkpoint.plan_restore(savepoint, assume_stopped=True))
    with pytest.raises(errors.DamagedFileError):
        savepoint.fork(tmp_path / "second")
    assert contents(checkpoint.location) == before
    assert not (tmp_path / "second").exists()


def test_a_restore_is_applied_and_undone(savepoints: Savepoints, checkpoint: Checkpoint) -> None:
    savepoint = savepoints.create(checkpoint, "early", batch=10)
    before = contents(checkpoint.location)
    plan = checkpoint.plan_restore(savepoint, assume_stopped=True, reason="a bad deploy")
    assert isinstance(plan, InstallPlan)
    assert plan == copy.copy(plan)
    assert (plan.operation, plan.batch, plan.refusals) == ("restore", 11, ())
    assert str(plan).startswith(
        f"Restore of {checkpoint.location} to the savepoint early\nNext batch   11, in place of 14"
    )
    assert contents(checkpoint.location) == before
    copied: list[tuple[int, int]] = []
    checkpoint.apply(plan, on_progress=lambda *counts: copied.append(counts))
    assert copied[-1] == (len(savepoint.manifest.files),) * 2
    assert checkpoint.summary().next_batch == 11
    checkpoint.apply(checkpoint.plan_undo())
    assert contents(checkpoint.location) == before


def test_a_lost_checkpoint_is_restored(savepoint: Savepoint, checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.location)
    checkpoint.apply(checkpoint.plan_restore(savepoint))
    assert checkpoint.summary().next_batch == 14


def test_a_savepoint_of_another_query_must_be_meant(savepoint: Savepoint, settings: Settings, tmp_path: Path) -> None:
    other = Checkpoint(unpack(tmp_path, "hdfs"), settings=settings)
    plan = other.plan_restore(savepoint, assume_stopped=True)
    assert savepoint.manifest.query_id in plan.refusals[0].why
    with pytest.raises(errors.ChangeRefusedError):
        other.apply(plan)
    assert not other.plan_restore(savepoint, assume_stopped=True, other_query=True).refusals


def test_a_restore_is_refused_when_the_checkpoint_has_changed_since(
    savepoint: Savepoint, checkpoint: Checkpoint
) -> None:
    plan = checkpoint.plan_restore(savepoint, assume_stopped=True)
    root = Path(checkpoint.location)
    shutil.copy(root / "offsets" / "13", root / "offsets" / "14")
    with pytest.raises(errors.CheckpointChangedError) as caught:
        checkpoint.apply(plan)
    assert caught.value.changes == ("its newest planned batch is 14, not 13",)


def test_a_fork_is_a_second_query_in_a_new_folder(savepoint: Savepoint, tmp_path: Path) -> None:
    plan = savepoint.plan_fork(tmp_path / "second")
    assert not (tmp_path / "second").exists()
    fork = savepoint.fork(tmp_path / "second")
    summary = fork.summary()
    assert summary.next_batch == 14
    assert summary.query_id != savepoint.manifest.query_id
    assert fork.verify().ok
    with pytest.raises(CheckpointError, match="is not empty"):
        savepoint.fork(tmp_path / "second")
    with pytest.raises(errors.CheckpointChangedError):
        fork.apply(plan)
    assert fork.summary() == summary


def test_a_fork_is_not_applied_to_a_folder_that_was_filled_since(savepoint: Savepoint, tmp_path: Path) -> None:
    target = Checkpoint(tmp_path / "second", settings=savepoint.settings)
    plan = savepoint.plan_fork(tmp_path / "second")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "notes.txt").touch()
    with pytest.raises(errors.CheckpointChangedError, match=r"not empty any more: it holds notes\.txt"):
        target.apply(plan)
    assert contents(tmp_path / "second") == {"notes.txt": b""}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_same_fork_resumes_an_interrupted_one(
    savepoints: Savepoints,
    savepoint: Savepoint,
    checkpoint: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(apply, "finish", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            savepoint.fork(tmp_path / "second")
    with pytest.raises(errors.UnfinishedChangeError):
        savepoints.create(checkpoint, "other").fork(tmp_path / "second")
    plan = savepoint.plan_fork(tmp_path / "second")
    assert isinstance(plan, ResumePlan)
    assert "The fork " in str(plan)
    assert savepoint.fork(tmp_path / "second").summary().next_batch == 14


def test_a_promoted_fork_takes_the_place_and_the_old_checkpoint_is_kept(
    savepoints: Savepoints, savepoint: Savepoint, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    fork = savepoint.fork(tmp_path / "second")
    before = contents(checkpoint.location)
    plan = checkpoint.plan_promote(fork, keep_as="old", assume_stopped=True)
    assert isinstance(plan, InstallPlan)
    assert str(plan).startswith(f"Promotion of {fork.location} to {checkpoint.location}\n")
    notes: list[str] = []
    checkpoint.apply(plan, on_note=notes.append)
    assert notes == ["The old checkpoint is kept as the savepoint old."]
    assert savepoints["old"].manifest.checkpoint == checkpoint.location
    assert checkpoint.summary().query_id == fork.summary().query_id
    checkpoint.apply(checkpoint.plan_undo())
    assert contents(checkpoint.location) == before


@pytest.mark.parametrize(
    ("arguments", "kind", "reason"),
    [
        ({"keep_as": "monday"}, None, ""),  # it keeps the same batch of the same query
        ({"keep_as": "early"}, CheckpointError, "early"),
        ({"keep_as": "a/b"}, CheckpointError, "a/b"),
    ],
)
def test_a_promotion_overwrites_no_savepoint(
    arguments: dict[str, Any],
    kind: type[Exception] | None,
    reason: str,
    savepoints: Savepoints,
    savepoint: Savepoint,
    checkpoint: Checkpoint,
    tmp_path: Path,
) -> None:
    savepoints.create(checkpoint, "early", batch=10)
    fork = savepoint.fork(tmp_path / "second")
    if kind is None:
        plan = checkpoint.plan_promote(fork, **arguments)
        assert isinstance(plan, InstallPlan)
        assert plan.promotion is not None
        assert plan.promotion.keep_as is None
        return
    with pytest.raises(kind, match=reason):
        checkpoint.plan_promote(fork, **arguments)


def test_a_checkpoint_is_not_promoted_to_itself_nor_a_missing_one(checkpoint: Checkpoint, settings: Settings) -> None:
    with pytest.raises(UsageError, match="the same checkpoint"):
        checkpoint.plan_promote(checkpoint)
    with pytest.raises(errors.CheckpointNotFoundError):
        checkpoint.plan_promote(Checkpoint("missing", settings=settings))
