"""Check a savepoint: its bytes are those that were saved, and a query can start from it."""

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
from respool.savepoint.copying import ProgressCallback, check
from respool.savepoint.store import StoredSavepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SavepointCheck:
    """The result of a check of a savepoint.

    Attributes:
        wrong: What is broken; empty when a query can start from it.
        notes: Other remarks for the user.
    """

    wrong: tuple[str, ...]
    notes: tuple[str, ...]


def verify(savepoint: StoredSavepoint, on_file: ProgressCallback = lambda done, total: None) -> SavepointCheck:
    """Return what is wrong with a savepoint; every byte of it is read."""
    manifest, files = savepoint.manifest, savepoint.files()
    wrong = check(manifest.files, files, on_file)
    if wrong:
        return SavepointCheck(tuple(wrong), ())
    listed = {file.path for file in manifest.files}
    notes = [f"{path} is not part of this savepoint." for path in sorted(files.below("")) if path not in listed]
    checkpoint = savepoint.checkpoint()
    why = reachability.why_unreachable(checkpoint, manifest.next_batch, same_range=False)
    checks = verify_checkpoint(checkpoint)
    broken = [finding.what for result in checks if result.status == "broken" for finding in result.findings]
    return SavepointCheck(tuple([f"{why}."] if why else broken), tuple(notes))


def load(spark: "SparkSession", savepoint: StoredSavepoint) -> tuple[dict[str, int], list[str]]:
    """Return the number of rows that Spark loads from each part of the state, and what it cannot load."""
    checkpoint = savepoint.checkpoint()
    rows: dict[str, int] = {}
    failed: list[str] = []
    for operator in operators(checkpoint, savepoint.manifest.batch):
        for selection in _parts(operator):
            name = selection.store or selection.variable or ("timers" if selection.timers else "")
            what = operator.place + (f", {name}" if name not in ("", "default") else "")
            try:
                rows[what] = reader.rows(spark, select_state(checkpoint, selection), {}, timezone.utc, limit=1).total
            except RespoolError as error:
                failed.append(f"{what}: {error}")
    return rows, failed


def _parts(operator: Operator) -> Iterator[StateSelection]:
    """Yield each part of an operator's state that can be read."""
    if not operator.is_transform:
        stores = (store for store in operator.views if store not in SIDES)
        yield from (StateSelection(operator=operator.number, store=store) for store in stores)
        return
    yield from (StateSelection(operator=operator.number, variable=variable.name) for variable in operator.variables)
    if operator.has_timers:
        yield StateSelection(operator=operator.number, timers=True)
