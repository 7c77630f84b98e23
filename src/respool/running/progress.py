"""What Spark reports of a batch: the only place that reads StreamingQueryProgress.

A runner waits for events: batches, idle and ended queries, a request to stop, a lost lease.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from respool.errors import SettingsError
from respool.spark.internals import query_listener
from respool.text import UNLIMITED, folded, plural
from respool.times import parse_time, time_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

# The name under which a query reports how many records it rejected; with several inputs, a dot and the input's follow.
OBSERVATION = "respool"


@dataclass(frozen=True)
class BatchProgress:
    """A finished batch.

    >>> batch = respool.BatchProgress("visit-counts", 4, 1200, 800.0, None, None, None, None, 0, 1.5)
    >>> print(batch)
    visit-counts batch 4  1,200 rows in 1.5 s

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
        lag: Records that Kafka had when the batch was planned, and that no batch has read yet; None where Spark does
            not report it.
        offsets: The first offset and the end offset of each Kafka partition, such as `{"orders-0": (120, 350)}`; of
            partitions that the batch read for the first time, only the end is known, and they are left out.
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
    lag: int | None = None
    offsets: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def is_of_companion(self) -> bool:
        """Whether the batch is of a companion, which keeps rejected records and is not shown."""
        return self.pipeline.startswith("rejected-")

    def __str__(self) -> str:
        """Return the line that `respool run` prints for it."""
        return self.text()

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return the line that `respool run` prints for it, folded between its parts at `width` columns."""
        parts = [f"{self.pipeline} batch {self.batch}", f"{plural(self.rows, 'row')} in {self.seconds:.1f} s"]
        if self.watermark:
            parts.append(f"watermark {time_text(self.watermark)}")
        if self.state_rows is not None:
            parts.append(f"state {plural(self.state_rows, 'row')}")
        if self.late_rows:
            parts.append(f"late {self.late_rows:,} ({self.late_rows_total or self.late_rows:,} in total)")
        if self.rejected:
            parts.append(f"rejected {self.rejected:,}")
        return folded(parts, width)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool run --json` prints for it."""
        watermark = None if self.watermark is None else self.watermark.isoformat().replace("+00:00", "Z")
        return {**asdict(self), "watermark": watermark}

    @classmethod
    def from_json(cls, text: str) -> "BatchProgress | None":
        """Return the batch that a line of `respool run --json` reports; None for any other line."""
        if not text.startswith("{"):
            return None
        try:
            fields = json.loads(text)
            if fields["watermark"] is not None:
                fields["watermark"] = parse_time(fields["watermark"], timezone.utc)
            return cls(**fields)
        except (ValueError, KeyError, TypeError, SettingsError):
            return None


def from_spark(pipeline: str, progress: "StreamingQueryProgress") -> BatchProgress | None:
    """Return what Spark reported of a batch, or None for a trigger that ran no batch."""
    durations = progress.durationMs
    if "addBatch" not in durations:
        return None
    operators = progress.stateOperators
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
        rejected=_rejected(progress.observedMetrics),
        seconds=seconds,
        lag=_lag([(source.endOffset, source.latestOffset) for source in progress.sources]),
        offsets=_offsets([(source.startOffset, source.endOffset) for source in progress.sources]),
    )


def _lag(sources: list[tuple[str, str]]) -> int | None:
    """Return how many records are behind the end of a batch, of sources whose offsets are Kafka's."""
    lags: list[int] = []
    for end, latest in sources:
        try:
            read, available = json.loads(end), json.loads(latest)
            lags += [
                max(offset - read[topic].get(partition, 0), 0)
                for topic, offsets in available.items()
                for partition, offset in offsets.items()
            ]
        except (ValueError, AttributeError, KeyError, TypeError):  # Spark reports none, or it is not Kafka
            continue
    return sum(lags) if lags else None


def _offsets(sources: list[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Return the offsets between two positions, of sources whose positions are Kafka's."""
    ranges: dict[str, tuple[int, int]] = {}
    for start, end in sources:
        try:
            before, after = json.loads(start), json.loads(end)
            ranges |= {
                f"{topic}-{partition}": (int(before[topic][partition]), int(offset))
                for topic, offsets in after.items()
                for partition, offset in offsets.items()
                if partition in before.get(topic, {})
            }
        except (ValueError, AttributeError, KeyError, TypeError):  # the first batch, or it is not Kafka
            continue
    return ranges


def _rejected(metrics: Mapping[str, Any]) -> int:
    """Return how many records were rejected; with several inputs, each counts its own."""
    return sum(
        observed["rejected"]
        for name, observed in metrics.items()
        if name == OBSERVATION or name.startswith(f"{OBSERVATION}.")
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
    """The lease of a checkpoint is lost, for this reason: another process may use it."""

    reason: str


Event = BatchProgress | QueryEnded | QueryIdle | StopRequested | LeaseLost


def event_listener(name: str, put: Callable[[Event], None]) -> "StreamingQueryListener":
    """Return a listener of Spark that passes the events of a pipeline's query on, from another thread."""

    def on_progress(reported: "StreamingQueryProgress") -> None:
        batch = from_spark(name, reported)
        if batch is not None:
            put(batch)

    return query_listener(on_progress, lambda: put(QueryIdle(name)), lambda run: put(QueryEnded(name, run)))
