"""Check a savepoint: that its bytes are what was saved, and that a query could start from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timezone
from typing import TYPE_CHECKING

from respool.checkpoint import reachability
from respool.checkpoint.state import reader
from respool.checkpoint.state.operators import SIDES, Operator, operators
from respool.checkpoint.state.selection import StateSelection, select_state
from respool.checkpoint.verify.run import verify as verify_checkpoint
from respool.errors import RespoolError
from respool.savepoint.copying import Tell, check
from respool.savepoint.store import Savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SavepointReport:
    """What was found of a savepoint.

    Attributes:
        wrong: What is broken; nothing when a query can start from it.
        notes: What else to know.
    """

    wrong: tuple[str, ...]
    notes: tuple[str, ...]


def verify(savepoint: Savepoint, on_file: Tell = lambda done, total: None) -> SavepointReport:
    """Return what is wrong with a savepoint; every byte of it is read."""
    manifest, files = savepoint.manifest, savepoint.files()
    wrong = check(manifest.files, files, on_file)
    if wrong:
        return SavepointReport(tuple(wrong), ())
    known = {one.path for one in manifest.files}
    notes = [f"{path} is not of this savepoint." for path in sorted(files.below("")) if path not in known]
    checkpoint = savepoint.checkpoint()
    why = reachability.why_unreachable(checkpoint, manifest.next_batch, same_range=False)
    checks = verify_checkpoint(checkpoint)
    found = [one.what for group in checks if group.status == "broken" for one in group.findings]
    return SavepointReport(tuple([f"{why}."] if why else found), tuple(notes))


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
                rows[what] = reader.rows(spark, select_state(checkpoint, wanted), {}, timezone.utc, limit=1).total
            except RespoolError as error:
                failed.append(f"{what}: {error}")
    return rows, failed


def _parts(operator: Operator) -> Iterator[StateSelection]:
    """Yield all that can be read of an operator."""
    if not operator.is_transform:
        yield from (StateSelection(operator=operator.number, store=one) for one in operator.views if one not in SIDES)
        return
    yield from (StateSelection(operator=operator.number, variable=one.name) for one in operator.variables)
    if operator.has_timers:
        yield StateSelection(operator=operator.number, timers=True)
