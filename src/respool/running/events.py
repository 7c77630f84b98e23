"""What a runner waits for: batches, idle and ended queries, a request to stop, a lost lease."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.running import progress
from respool.running.progress import BatchProgress
from respool.spark.internals import query_listener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress


@dataclass(frozen=True)
class QueryEnded:
    """A query ended: on its own, by request, or by a failure.

    Attributes:
        name: The pipeline's name.
        run: Which run of the query; a query that is restarted has another.
    """

    name: str
    run: str


@dataclass(frozen=True)
class QueryIdle:
    """A query has found no new records.

    Attributes:
        name: The pipeline's name.
    """

    name: str


@dataclass(frozen=True)
class StopRequested:
    """The user wants the run to end; the second time, immediately."""


@dataclass(frozen=True)
class LeaseLost:
    """Another process may use a checkpoint from now on, for this reason."""

    reason: str


Event = BatchProgress | QueryEnded | QueryIdle | StopRequested | LeaseLost


def event_listener(name: str, put: Callable[[Event], None]) -> "StreamingQueryListener":
    """Return a listener of Spark that passes the events of a pipeline's query on, from another thread."""

    def on_progress(reported: "StreamingQueryProgress") -> None:
        batch = progress.from_spark(name, reported)
        if batch is not None:
            put(batch)

    return query_listener(on_progress, lambda: put(QueryIdle(name)), lambda run: put(QueryEnded(name, run)))
