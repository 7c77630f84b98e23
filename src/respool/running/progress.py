"""What Spark reports of a batch: the only place that reads StreamingQueryProgress.

A runner waits for events: a finished batch, the end of a query, a request to stop, a lost lease.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from respool.spark.internals import query_listener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress


@dataclass(frozen=True)
class BatchProgress:
    """A finished batch.

    >>> batch = respool.BatchProgress("visit-counts", 4, 1200, 800.0, None, None, None, None, 0, 1.5)
    >>> print(batch)
    visit-counts batch 4  1,200 rows  800 rows/s  rejected 0  1.5 s

    Attributes:
        pipeline: The pipeline's name.
        batch: The batch's id.
        rows: Records read.
        rows_per_second: Records read in a second of the batch.
        watermark: The watermark of this batch; None while there is none.
        state_rows: Rows in the state stores; None for a stateless query.
        late_rows: Rows that the watermark dropped in this batch; None for a stateless query.
        late_rows_total: The same since the run started.
        rejected: Records of this batch that did not decode.
        seconds: How long the batch took.
    """

    pipeline: str
    batch: int
    rows: int
    rows_per_second: float
    watermark: datetime | None
    state_rows: int | None
    late_rows: int | None
    late_rows_total: int | None
    rejected: int
    seconds: float

    def __str__(self) -> str:
        """Return the line that `respool run` prints for it."""
        parts = [
            f"{self.pipeline} batch {self.batch}",
            f"{self.rows:,} rows",
            f"{self.rows_per_second:,.0f} rows/s",
        ]
        if self.watermark:
            parts.append(f"watermark {self.watermark:%Y-%m-%dT%H:%M:%S}Z")
        if self.state_rows is not None:
            parts += [
                f"state {self.state_rows:,} rows",
                f"late {self.late_rows:,} ({self.late_rows_total:,} in all)",
            ]
        parts += [f"rejected {self.rejected:,}", f"{self.seconds:.1f} s"]
        return "  ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool run --json` prints for it."""
        return asdict(self)


def from_spark(pipeline: str, progress: "StreamingQueryProgress") -> BatchProgress | None:
    """Return what Spark reported of a batch, or None for a trigger that ran no batch."""
    durations = progress.durationMs
    if "addBatch" not in durations:
        return None
    operators = progress.stateOperators
    observed = progress.observedMetrics.get("respool")
    # A transform that packs many rows into one row of Spark's state reports their number itself.
    state = progress.observedMetrics.get("respool-state")
    seconds = durations["triggerExecution"] / 1000
    rows = progress.numInputRows
    return BatchProgress(
        pipeline=pipeline,
        batch=progress.batchId,
        rows=rows,
        rows_per_second=rows / seconds if seconds else 0.0,
        watermark=_watermark(progress.eventTime.get("watermark")),
        state_rows=_total(state, "state_rows", [operator.numRowsTotal for operator in operators]),
        late_rows=_total(state, "late_rows", [operator.numRowsDroppedByWatermark for operator in operators]),
        late_rows_total=None,
        rejected=observed["rejected"] if observed is not None else 0,
        seconds=seconds,
    )


def _total(metrics: Any, name: str, by_operator: list[int]) -> int | None:
    if metrics is not None and metrics[name] is not None:
        return int(metrics[name])
    return sum(by_operator) if by_operator else None


def _watermark(text: str | None) -> datetime | None:
    if text is None or text.startswith("1970-01-01T00:00:00"):
        return None
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


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
class StopRequested:
    """The user wants the run to end; the second time, immediately."""


@dataclass(frozen=True)
class LeaseLost:
    """Another process may use a checkpoint from now on, for this reason."""

    reason: str


Event = BatchProgress | QueryEnded | StopRequested | LeaseLost


def event_listener(name: str, put: Callable[[Event], None]) -> "StreamingQueryListener":
    """Return a listener of Spark that passes the events of a pipeline's query on, from another thread."""

    def on_progress(reported: "StreamingQueryProgress") -> None:
        batch = from_spark(name, reported)
        if batch is not None:
            put(batch)

    return query_listener(on_progress, lambda run: put(QueryEnded(name, run)))
