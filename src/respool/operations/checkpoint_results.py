"""What the methods of `Checkpoint` return. Only reading the state starts Spark."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from respool.checkpoint.journal.apply import Leftover
from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.ownership import ForkRecord, RunRecord, read_run_record
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state.operators import StateChoice, choices, operators, readable
from respool.checkpoint.state.selection import StateReading, StateSelection, newest, select_state
from respool.checkpoint.summary import CheckpointSummary
from respool.findings import CheckResult
from respool.format.model import InclusiveRange
from respool.operations.context import OnNote, note_of, session
from respool.settings import Settings, check_timezone
from respool.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.checkpoint.state.reader import StateRows
    from respool.savepoint.manifest import SavepointManifest


@dataclass(frozen=True)
class CheckpointStatus:
    """A checkpoint with what respool records about it, as `respool checkpoint show` prints it.

    Attributes:
        summary: Batches, offsets, state, and which batches can be rewound to.
        run: The pipeline that respool runs on it; None when another program runs the query.
        holder: The process that holds it now; None when none is known.
        history: What respool changed, the oldest first.
        pending: The change that was interrupted; None for none.
        fork: Where it was forked from; None when it is not a fork.
        savepoints: Its savepoints, the oldest first.
        leftovers: Files that interrupted commands left.

    Example:
        >>> checkpoint.status()
        CheckpointStatus(..., next_batch=14)
    """

    summary: CheckpointSummary
    run: RunRecord | None
    holder: str | None
    history: tuple[Journal, ...]
    pending: Journal | None
    fork: ForkRecord | None
    savepoints: "tuple[SavepointManifest, ...]"
    leftovers: tuple[Leftover, ...]

    def __repr__(self) -> str:
        """Return the status in one line."""
        return f"CheckpointStatus({self.summary.root!r}, next_batch={self.summary.next_batch})"


@dataclass(frozen=True)
class CheckpointReport:
    """The result of `Checkpoint.verify`.

    Attributes:
        location: The checkpoint's folder or URL.
        checks: What was checked, each with its findings.

    Example:
        >>> report = checkpoint.verify(deep=False)
        >>> report.ok, [check.name for check in report.broken]
        (True, [])
    """

    location: str
    checks: tuple[CheckResult, ...]

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"CheckpointReport({self.location!r}, ok={self.ok}, complete={self.complete})"

    @property
    def broken(self) -> tuple[CheckResult, ...]:
        """The checks that found something broken."""
        return tuple(check for check in self.checks if check.status == "broken")

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    @property
    def complete(self) -> bool:
        """Whether everything could be checked."""
        return all(finding.status != "unchecked" for check in self.checks for finding in check.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        whole = {"checkpoint": self.location, "ok": self.ok, "complete": self.complete}
        return {**whole, "checks": [check.to_json() for check in self.checks]}


@dataclass(frozen=True)
class PurgeResult:
    """What `Checkpoint.purge` deleted, or would delete.

    Attributes:
        changes: The changes whose moved files were deleted; they cannot be undone any more.
        leftovers: Files that interrupted commands had left.

    Example:
        >>> checkpoint.purge(dry_run=True)
        PurgeResult(0 changes, 0 leftovers)
    """

    changes: tuple[Journal, ...]
    leftovers: tuple[Leftover, ...]

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"PurgeResult({plural(len(self.changes), 'change')}, {plural(len(self.leftovers), 'leftover')})"


@dataclass(frozen=True)
class StateChoices:
    """What can be read of the state of a query.

    Attributes:
        location: The checkpoint's folder or URL.
        batches: The batches after which the state can be read.
        choices: The tables, with the option of `respool state` that names each.
        operators: How many stateful operators the query has.

    Example:
        >>> choices = checkpoint.state_choices()
        >>> choices
        StateChoices(..., 1 table)
        >>> choices.batches[0].last, choices.is_ambiguous
        (13, False)
    """

    location: str
    batches: tuple[InclusiveRange, ...]
    choices: tuple[StateChoice, ...]
    operators: int

    def __repr__(self) -> str:
        """Return the choices in one line."""
        return f"StateChoices({self.location!r}, {plural(len(self.choices), 'table')})"

    @property
    def is_ambiguous(self) -> bool:
        """Whether one of several tables has to be named."""
        return len([choice for choice in self.choices if choice.option != "--timers"]) > 1

    def rows(self) -> list[dict[str, Any]]:
        """Return the choices as rows of a table: operator, kind, options, holds."""
        return [
            {
                "operator": choice.operator.number,
                "kind": choice.operator.kind,
                "options": (f"--operator {choice.operator.number} " * (self.operators > 1) + choice.option).strip(),
                "holds": choice.holds,
            }
            for choice in self.choices
        ]


@dataclass(frozen=True)
class StateQuery:
    """A table of the state that can be read, checked before Spark is started.

    Attributes:
        reading: Which table, after which batch.
        where: The values that columns must have, by column.
        zone: The zone of times in `where` that name no offset.
        settings: Spark's settings.

    Example:
        >>> query = checkpoint.state_query(where={"key": "a"})
        >>> query
        StateQuery(..., batch=13, operator=0)
        >>> query.rows(limit=10).total  # doctest: +SKIP
        1
    """

    reading: StateReading
    where: Mapping[str, str]
    zone: tzinfo
    settings: Settings = field(repr=False, compare=False)

    def __repr__(self) -> str:
        """Return the query in one line."""
        reading = self.reading
        return f"StateQuery({reading.root!r}, batch={reading.batch}, operator={reading.operator.number})"

    def rows(
        self, limit: int | None = None, *, spark: "SparkSession | None" = None, on_note: OnNote | None = None
    ) -> "StateRows":
        """Return the rows by key, at most `limit`; without a session, Spark is started and stopped."""
        from respool.checkpoint.state import reader

        with self._session(spark, on_note) as active:
            return reader.rows(active, self.reading, self.where, self.zone, limit)

    def write(self, file: Path, *, spark: "SparkSession | None" = None, on_note: OnNote | None = None) -> int:
        """Write all rows to a new .parquet, .json, .jsonl or .csv file, and return their number."""
        from respool.checkpoint.state import reader

        reader.check_output(file)
        with self._session(spark, on_note) as active:
            return reader.write(active, self.reading, self.where, self.zone, file)

    def _session(self, spark: "SparkSession | None", on_note: OnNote | None) -> "AbstractContextManager[SparkSession]":
        return session(self.settings, spark, note_of(on_note), locations=[self.reading.root], jvm=False)


def state_choices(checkpoint: CheckpointSnapshot) -> StateChoices:
    """Return what can be read of the state after the newest batch."""
    present = operators(checkpoint, newest(checkpoint))
    return StateChoices(checkpoint.root, tuple(readable(checkpoint)), tuple(choices(present)), len(present))


def query_state(
    checkpoint: CheckpointSnapshot,
    settings: Settings,
    selection: StateSelection,
    where: Mapping[str, str],
    timezone: str | None = None,
) -> StateQuery:
    """Return a query of the state; raise CheckpointError when there is no such table.

    Args:
        checkpoint: The checkpoint.
        settings: Spark's settings, and the zone of times unless `timezone` names one.
        selection: Which table.
        where: The values that columns must have, as a user writes them.
        timezone: The zone of times; by default that of the settings, else the pipeline's, else UTC.
    """
    reading = select_state(checkpoint, selection)
    zone = timezone or settings.timezone
    if zone is None:
        run = read_run_record(checkpoint.files)
        zone = run.timezone if run and run.timezone else "UTC"
    return StateQuery(reading, dict(where), ZoneInfo(check_timezone(zone)), settings)
