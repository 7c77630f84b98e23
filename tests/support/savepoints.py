"""Savepoints, restores and forks as the commands make them, without a command line."""

from datetime import datetime, timezone
from pathlib import Path

from respool.checkpoint.local_files import LocalFiles
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.request import Request, World
from respool.checkpoint.target import ToBatch
from respool.savepoint import bring
from respool.savepoint.create import Wanted, create
from respool.savepoint.manifest import SinkPosition
from respool.savepoint.plan import BringPlan, plan_fork, plan_restore
from respool.savepoint.store import Savepoint, Store


def save(checkpoint: Path, store: Store, name: str = "one", batch: int | None = None) -> Savepoint:
    """Make a savepoint of a checkpoint; nothing is asked of its sink."""
    return create(Wanted(str(checkpoint), name, batch), store, lambda _, __: SinkPosition("console"))


def restore(savepoint: Savepoint, where: Path) -> None:
    """Put a checkpoint back to a savepoint, or make it anew where there is none."""
    now = Checkpoint(LocalFiles(where)) if where.exists() else None
    request = Request(ToBatch(savepoint.manifest.next_batch), words=savepoint.manifest.name, allow_data_loss=True)
    world = World(now=datetime.now(timezone.utc), ours=True)
    plan = plan_restore(savepoint, now, str(where), request, world)
    assert not plan.refusals
    bring.carry_out(plan.journal, plan.cargo, LocalFiles(where))


def fork_plan(savepoint: Savepoint, where: Path) -> BringPlan:
    """Return the plan of a fork."""
    request = Request(ToBatch(savepoint.manifest.next_batch), words=savepoint.manifest.name)
    return plan_fork(savepoint, str(where), request, World(now=datetime.now(timezone.utc)))


def fork(savepoint: Savepoint, where: Path) -> None:
    """Make a second query's checkpoint from a savepoint."""
    plan = fork_plan(savepoint, where)
    assert not plan.refusals
    bring.carry_out_fork(plan.journal, plan.cargo, LocalFiles(where))
