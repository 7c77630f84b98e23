"""The state of a query as a table: what there is to read, and reading it. Only reading starts Spark."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from respool.checkpoint.ownership import read_run_record
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state.operators import StateChoice, choices, operators, readable
from respool.checkpoint.state.selection import StateReading, StateSelection, newest, select_state
from respool.format.model import InclusiveRange
from respool.operations.context import OnNote, note_of, session
from respool.settings import Settings, check_timezone
from respool.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.checkpoint.state.reader import StateRows


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
