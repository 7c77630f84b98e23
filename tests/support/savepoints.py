"""Savepoints, restores and forks as the commands make them, without a command line."""

from datetime import datetime, timezone
from pathlib import Path

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.savepoint import install
from respool.savepoint.create import SavepointRequest, create
from respool.savepoint.planning import PlannedInstall
from respool.savepoint.restore import plan_fork, plan_restore
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.sinks.registry import SinkPosition
from respool.storage.local import LocalReader, LocalWriter


def save(checkpoint: Path, store: SavepointStore, name: str = "one", batch: int | None = None) -> StoredSavepoint:
    """Make a savepoint of a checkpoint; nothing is asked of its sink."""
    return create(SavepointRequest(str(checkpoint), name, batch), store, lambda _, __: SinkPosition("console"))


def restore(savepoint: StoredSavepoint, where: Path) -> None:
    """Restore a checkpoint from a savepoint, or create it where it does not exist."""
    now = CheckpointSnapshot(LocalReader(where)) if where.exists() else None
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), words=savepoint.manifest.name, allow_data_loss=True)
    world = RewindContext(now=datetime.now(timezone.utc), ours=True)
    plan = plan_restore(savepoint, now, str(where), request, world)
    assert not plan.refusals
    install.carry_out(plan.journal, plan.install_set, LocalWriter(where))


def fork_plan(savepoint: StoredSavepoint, where: Path) -> PlannedInstall:
    """Return the plan of a fork."""
    request = RewindRequest(ToBatch(savepoint.manifest.next_batch), words=savepoint.manifest.name)
    return plan_fork(savepoint, str(where), request, RewindContext(now=datetime.now(timezone.utc)))


def fork(savepoint: StoredSavepoint, where: Path) -> None:
    """Make a second query's checkpoint from a savepoint."""
    plan = fork_plan(savepoint, where)
    assert not plan.refusals
    install.carry_out_fork(plan.journal, plan.install_set, LocalWriter(where))
