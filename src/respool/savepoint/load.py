"""Let Spark load all of a savepoint's state."""

from collections.abc import Iterator
from datetime import timezone
from typing import TYPE_CHECKING

from respool.checkpoint import state
from respool.checkpoint.state_choice import Wanted, choose
from respool.checkpoint.state_shape import SIDES, Operator, operators
from respool.errors import RespoolError
from respool.savepoint.store import Savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(spark: "SparkSession", savepoint: Savepoint) -> tuple[dict[str, int], list[str]]:
    """Return how many rows Spark loads of each part of the state, and what it cannot load."""
    checkpoint = savepoint.checkpoint()
    rows: dict[str, int] = {}
    failed: list[str] = []
    for operator in operators(checkpoint, savepoint.manifest.batch):
        for wanted in _parts(operator):
            name = wanted.store or wanted.variable or ("timers" if wanted.timers else "")
            what = operator.place + (f", {name}" if name not in ("", "default") else "")
            try:
                rows[what] = state.rows(spark, choose(checkpoint, wanted), {}, timezone.utc, limit=1).total
            except RespoolError as error:
                failed.append(f"{what}: {error}")
    return rows, failed


def _parts(operator: Operator) -> Iterator[Wanted]:
    """Yield all that can be read of an operator."""
    if not operator.is_transform:
        yield from (Wanted(operator=operator.number, store=one) for one in operator.views if one not in SIDES)
        return
    yield from (Wanted(operator=operator.number, variable=one.name) for one in operator.variables)
    if operator.has_timers:
        yield Wanted(operator=operator.number, timers=True)
