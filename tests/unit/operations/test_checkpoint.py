"""What `respool.Checkpoint` promises: plans are values, only applying them writes, and nothing stale is applied."""

import copy
import json
import logging
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from respool import errors
from respool.checkpoint.journal import apply
from respool.errors import CheckpointError, UsageError
from respool.operations.checkpoint import Checkpoint
from respool.operations.plans import ResumePlan, RewindPlan, UndoPlan
from respool.settings import Settings
from respool.storage import lease
from respool.storage.local import LocalWriter
from support.checkpoints import unpack


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def checkpoint(tmp_path: Path, settings: Settings) -> Checkpoint:
    """A golden checkpoint of 14 batches, as that of a pipeline in a home."""
    Path(settings.checkpoint_store).mkdir(parents=True)
    unpack(tmp_path, "kafka").rename(Path(settings.checkpoint_store) / "mine")
    return Checkpoint("mine", settings=settings)


def contents(checkpoint: Checkpoint) -> dict[str, bytes]:
    root = Path(checkpoint.location)
    files = [file.relative_to(root) for file in root.rglob("*") if file.is_file()]
    return {str(file): (root / file).read_bytes() for file in files if "_respool" not in file.parts}


def interrupt(checkpoint: Checkpoint, **target: Any) -> RewindPlan:
    """Interrupt a rewind half-way, and return its plan."""
    plan = checkpoint.plan_rewind(**target)
    assert isinstance(plan, RewindPlan)
    blocked = Path(checkpoint.location, plan.journal.moves[5].target)
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(CheckpointError, match="both"):
        apply.apply(plan.journal, LocalWriter(Path(checkpoint.location)))
    blocked.unlink()
    return plan


def test_a_checkpoint_is_named_by_its_pipeline_its_folder_or_a_url(checkpoint: Checkpoint, settings: Settings) -> None:
    assert checkpoint.location == str(Path(settings.checkpoint_store) / "mine")
    assert Checkpoint(Path(checkpoint.location), settings=settings) == checkpoint
    assert Checkpoint("s3://bucket/orders/", settings=settings).location == "s3://bucket/orders"
    assert len({checkpoint, Checkpoint(checkpoint.location, settings=settings)}) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda missing: missing.summary(),
        lambda missing: missing.status(),
        lambda missing: missing.verify(),
        lambda missing: missing.plan_rewind(last=1),
        lambda missing: missing.plan_undo(),
        lambda missing: missing.history(),
        lambda missing: missing.pending(),
        lambda missing: missing.run_record(),
        lambda missing: missing.purge(),
        lambda missing: missing.state_choices(),
        lambda missing: missing.state_query(),
    ],
)
def test_a_checkpoint_that_does_not_exist_is_reported_with_the_nearest_name(
    call: Callable[[Checkpoint], object], checkpoint: Checkpoint, settings: Settings
) -> None:
    with pytest.raises(errors.CheckpointNotFoundError, match="Did you mean 'mine'") as caught:
        call(Checkpoint("mime", settings=settings))
    assert caught.value.path == "mime"
    assert not (Path(settings.checkpoint_store) / "mime").exists()


def test_a_summary_lists_as_many_batches_as_are_asked_for(checkpoint: Checkpoint) -> None:
    assert [batch.batch for batch in checkpoint.summary(batches=2).batches] == [12, 13]
    assert len(checkpoint.summary(batches=None).batches) == 14
    with pytest.raises(UsageError, match="expected a number above 0"):
        checkpoint.summary(batches=0)


def test_a_plan_is_a_value_that_changes_nothing(checkpoint: Checkpoint) -> None:
    before = contents(checkpoint)
    plan = checkpoint.plan_rewind(to_batch=4, reason="a bad deploy")
    assert contents(checkpoint) == before
    assert plan == copy.deepcopy(plan)
    assert plan != checkpoint.plan_rewind(to_batch=5)
    assert (plan.batch, plan.refusals, plan.journal.reason) == (4, (), "a bad deploy")
    assert str(plan).startswith(f"Rewind of {checkpoint.location}\nNext batch   4\n")
    assert json.loads(json.dumps(plan.to_json(), default=str))["run_again"] == list(range(4, 14))


@pytest.mark.parametrize(
    ("target", "batch"),
    [
        ({"to_batch": 4}, 4),
        ({"last": 2}, 12),
        ({"to_offsets": {"visits": {0: 48}}}, 12),
        ({"to_time": datetime(2000, 1, 1, tzinfo=timezone.utc)}, 0),
    ],
)
def test_a_rewind_goes_to_a_batch_a_time_or_offsets(checkpoint: Checkpoint, target: dict[str, Any], batch: int) -> None:
    assert checkpoint.plan_rewind(**target).batch == batch


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({}, "name exactly one of to_batch"),
        ({"to_batch": 1, "last": 1}, "name exactly one of to_batch"),
        ({"to_time": datetime(2024, 1, 1)}, "expected a time with a time zone"),  # noqa: DTZ001
        ({"to_offsets": {}}, "expected offsets such as"),
        ({"to_offsets": {"visits": {0: -1}}}, "expected offsets such as"),
        ({"to_batch": 999}, "999"),
        ({"last": 99}, "expected 1 to 14"),
        ({"to_offsets": {"clicks": {0: 1}}}, "clicks-0"),
        ({"to_batch": 4, "sink": "paper:x"}, "paper"),
    ],
)
def test_a_target_that_is_not_valid_is_refused(checkpoint: Checkpoint, target: dict[str, Any], reason: str) -> None:
    with pytest.raises(errors.RespoolError, match=reason):
        checkpoint.plan_rewind(**target)


def test_a_rewind_is_applied_recorded_and_undone(checkpoint: Checkpoint) -> None:
    before = contents(checkpoint)
    steps: list[tuple[int, int]] = []
    change = checkpoint.apply(checkpoint.plan_rewind(to_batch=4), on_progress=lambda *counts: steps.append(counts))
    assert steps[-1] == (len(change.steps), len(change.steps))
    assert checkpoint.summary().next_batch == 4
    assert checkpoint.history() == (change,)
    undo = checkpoint.plan_undo()
    assert undo.change == change
    assert checkpoint.apply(undo).of == change.id
    assert contents(checkpoint) == before
    assert [entry.operation for entry in checkpoint.history()] == ["rewind", "undo"]
    with pytest.raises(CheckpointError):
        checkpoint.plan_undo()


def test_a_plan_that_is_refused_is_not_applied(tmp_path: Path, settings: Settings) -> None:
    checkpoint = Checkpoint(unpack(tmp_path, "hdfs"), settings=settings)
    before = contents(checkpoint)
    with pytest.raises(errors.ChangeRefusedError) as caught:
        checkpoint.rewind(last=2)
    assert "Input files are gone" in caught.value.refusals[0].why
    assert contents(checkpoint) == before
    assert checkpoint.rewind(last=2, allow_data_loss=True).batch == 12


def test_a_plan_of_another_checkpoint_is_refused(checkpoint: Checkpoint, tmp_path: Path, settings: Settings) -> None:
    other = Checkpoint(unpack(tmp_path, "kafka"), settings=settings)
    with pytest.raises(UsageError, match="The plan is of the checkpoint"):
        other.apply(checkpoint.plan_rewind(last=1))


def _commit_a_batch(root: Path) -> None:
    for folder in ("offsets", "commits"):
        shutil.copy(root / folder / "13", root / folder / "14")


def _plan_a_batch(root: Path) -> None:
    shutil.copy(root / "offsets" / "13", root / "offsets" / "14")


def _delete_a_file(root: Path) -> None:
    (root / "state" / "0" / "0" / "14.delta").unlink()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (_commit_a_batch, ("its newest planned batch is 14, not 13", "its newest committed batch is 14, not 13")),
        (_plan_a_batch, ("its newest planned batch is 14, not 13",)),
        (_delete_a_file, ("files are gone: state/0/0/14.delta",)),
    ],
)
def test_a_plan_is_refused_when_the_checkpoint_has_changed_since(
    change: Callable[[Path], None], reported: tuple[str, ...], checkpoint: Checkpoint
) -> None:
    plan = checkpoint.plan_rewind(to_batch=4)
    change(Path(checkpoint.location))
    before = contents(checkpoint)
    with pytest.raises(errors.CheckpointChangedError, match="has changed since the plan was made") as caught:
        checkpoint.apply(plan)
    assert caught.value.changes == reported
    assert contents(checkpoint) == before
    assert checkpoint.pending() is None


def test_a_plan_is_applied_once(checkpoint: Checkpoint) -> None:
    plan = checkpoint.plan_rewind(to_batch=4)
    checkpoint.apply(plan)
    undo = checkpoint.plan_undo()
    with pytest.raises(errors.CheckpointChangedError, match="its newest planned batch is 3, not 13"):
        checkpoint.apply(plan)
    checkpoint.apply(undo)
    with pytest.raises(errors.CheckpointChangedError):
        checkpoint.apply(undo)


def test_an_undo_is_refused_once_the_moved_files_are_purged(checkpoint: Checkpoint) -> None:
    change = checkpoint.rewind(last=2)
    undo = checkpoint.plan_undo()
    checkpoint.purge(older_than=timedelta(0))
    with pytest.raises(errors.CheckpointChangedError) as caught:
        checkpoint.apply(undo)
    assert caught.value.changes == (f"what {change.id} moved aside was purged",)


def test_a_held_checkpoint_is_neither_changed_nor_purged(checkpoint: Checkpoint) -> None:
    checkpoint.rewind(last=2)
    plan = checkpoint.plan_rewind(to_batch=4)
    held = lease.hold(checkpoint.location)
    assert held is not None
    with held:
        for change in (lambda: checkpoint.apply(plan), lambda: checkpoint.purge(older_than=timedelta(0))):
            with pytest.raises(errors.CheckpointInUseError) as caught:
                change()
            assert caught.value.path == "mine"
        assert checkpoint.status().holder is not None


def test_the_same_rewind_resumes_an_interrupted_one(checkpoint: Checkpoint) -> None:
    interrupted = interrupt(checkpoint, to_offsets={"visits": {0: 48, 1: 48}})
    for other in ({"last": 3}, {"to_offsets": {"visits": {0: 48, 1: 48}}, "new_query_id": True}):
        with pytest.raises(errors.UnfinishedChangeError) as caught:
            checkpoint.plan_rewind(**other)
        assert caught.value.pending == interrupted.journal
    plan = checkpoint.plan_rewind(to_offsets={"visits": {1: 48, 0: 48}})
    assert isinstance(plan, ResumePlan)
    assert (plan.journal, plan.foreign, plan.refusals, plan.notes) == (interrupted.journal, None, (), ())
    assert "was interrupted. Its steps:" in str(plan)
    assert plan.to_json()["done"] is False
    checkpoint.apply(plan)
    assert checkpoint.pending() is None
    assert checkpoint.summary().next_batch == interrupted.batch
    with pytest.raises(errors.CheckpointChangedError, match="was finished or undone"):
        checkpoint.apply(plan)


def test_an_interrupted_rewind_is_undone(checkpoint: Checkpoint) -> None:
    before = contents(checkpoint)
    interrupt(checkpoint, last=2)
    plan = checkpoint.plan_undo()
    assert isinstance(plan.interrupted, ResumePlan)
    assert plan.change is None
    assert str(plan.interrupted) in str(plan)
    checkpoint.apply(plan)
    assert contents(checkpoint) == before
    assert checkpoint.pending() is None


@pytest.mark.parametrize("plan_of", [lambda copied: copied.plan_rewind(last=2), lambda copied: copied.plan_undo()])
def test_a_journal_of_another_installation_must_be_accepted(
    plan_of: Callable[[Checkpoint], ResumePlan | UndoPlan], checkpoint: Checkpoint, tmp_path: Path, settings: Settings
) -> None:
    interrupt(checkpoint, last=2)
    copied = Checkpoint(shutil.copytree(checkpoint.location, tmp_path / "copied"), settings=settings)
    before = contents(copied)
    plan = plan_of(copied)
    assert "This installation did not write the journal" in plan.notes[0]
    assert f"warning: {plan.notes[0]}" in str(plan)
    with pytest.raises(errors.ForeignJournalError) as caught:
        copied.apply(plan)
    assert "was copied or moved" in caught.value.problem
    assert contents(copied) == before
    copied.apply(plan, accept_foreign_journal=True)
    assert copied.pending() is None


def test_purging_deletes_what_old_changes_moved_aside(checkpoint: Checkpoint) -> None:
    change = checkpoint.rewind(last=2)
    assert checkpoint.purge().changes == ()
    preview = checkpoint.purge(older_than=timedelta(0), dry_run=True)
    assert preview.changes == (change,)
    assert list(Path(checkpoint.location, "_respool", "aside").iterdir())
    assert checkpoint.purge(older_than=timedelta(0)) == preview
    assert not list(Path(checkpoint.location, "_respool", "aside").iterdir())
    assert checkpoint.purge(older_than=timedelta(0)).changes == ()


def test_damage_is_in_the_report(checkpoint: Checkpoint) -> None:
    progress: list[tuple[int, int]] = []
    report = checkpoint.verify(on_progress=lambda *counts: progress.append(counts))
    assert (report.ok, report.complete, report.broken) == (True, True, ())
    assert progress[-1][0] == progress[-1][1]
    Path(checkpoint.location, "state", "0", "0", "14.delta").unlink()
    damaged = checkpoint.verify(deep=False)
    assert not damaged.ok
    assert damaged.to_json()["ok"] is False
    assert [check.status for check in damaged.broken] == ["broken"] * len(damaged.broken)


def test_the_state_is_checked_before_spark_starts(checkpoint: Checkpoint) -> None:
    assert checkpoint.state_query(batch=3).reading.batch == 3
    assert checkpoint.state_query(changes=(3, 5)).reading.batch == 5
    for wrong, reason in (
        ({"batch": 99}, "there is no such batch yet"),
        ({"operator": 7}, "7"),
        ({"store": "left"}, "no store 'left'"),
        ({"changes": (5, 3)}, "ends before"),
        ({"timezone": "Mars"}, "Mars"),
    ):
        with pytest.raises(errors.RespoolError, match=reason):
            checkpoint.state_query(**wrong)


def test_nothing_is_printed_and_notes_are_logged(
    checkpoint: Checkpoint,
    settings: Settings,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (settings.home / "savepoints").write_text("not a folder")
    notes: list[str] = []
    with caplog.at_level(logging.INFO, logger="respool"):
        status = checkpoint.status(on_note=notes.append)
        checkpoint.apply(checkpoint.plan_rewind(last=1))
        checkpoint.apply(checkpoint.plan_undo())
    assert status.savepoints == ()
    assert notes == [record.message for record in caplog.records if record.name == "respool"]
    assert "The savepoints cannot be listed" in notes[0]
    assert capfd.readouterr() == ("", "")
