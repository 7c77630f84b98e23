"""The results of a slice, computed from the archive with the pipeline's own transform."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from typing_extensions import assert_never

from respool.archive.reader import ArchiveReader
from respool.decoders.protocol import decode_once
from respool.errors import PipelineError
from respool.kafka.cluster import NO_KAFKA
from respool.pipeline.results import Events, Recomputable, Sessions, Windows
from respool.reprocessing.live import decoder_of, topic_of
from respool.reprocessing.plan import ReprocessPlan, results_of
from respool.reprocessing.session_spans import whole_sessions
from respool.sources.protocol import ReadContext, TableSource
from respool.spark.sql import quote
from respool.times import Span, epoch_micros

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_PLACE = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Computation:
    """Computes the results of a plan, slice by slice.

    Attributes:
        spark: The pipeline's own session.
        plan: The plan.
        reader: The archive.
    """

    spark: "SparkSession"
    plan: ReprocessPlan
    reader: ArchiveReader

    def results(self, number: int) -> "DataFrame":
        """Return the results of a slice, by its number.

        These are the windows that start in the slice, or the sessions that start in it and, for the first slice, those
        that reach into it. The returned sessions may include others, which `belongs_to_slice` excludes.
        """
        results = results_of(self.plan.pipeline)
        span = self.plan.slices[number]
        match results:
            case Windows():
                rows = self._results_of(self.events(results.events(span)))
                _require(rows, results.column)
                return rows.where(self.belongs_to_slice(number))
            case Events():
                rows = self._results_of(self.events(results.events(span)))
                _require(rows, results.column)
                return rows.where(self.belongs_to_slice(number))
            case Sessions():
                rows = self._results_of(self._sessions(results, span, first=number == 0))
                for name in (*results.key, results.start, results.end):
                    _require(rows, name)
                return _filtered_as_results(rows)
            case _:
                assert_never(results)

    def _results_of(self, events: "DataFrame") -> "DataFrame":
        pipeline, read = self.plan.pipeline, ReadContext(NO_KAFKA, self.plan.request.settings)
        rows: dict[str, DataFrame] = {}
        for name, each in pipeline.streams.items():
            if each.static and isinstance(each.source, TableSource):
                rows[name] = each.source.table_rows(self.spark, read)
            else:
                rows[name] = events
        return pipeline.compute(rows)

    def belongs_to_slice(self, number: int, prefix: str = "") -> "Column":
        """Return the condition under which a result belongs to a slice; `prefix` as in `times`."""
        start, end = times(results_of(self.plan.pipeline), prefix)
        span = self.plan.slices[number]
        mine = start < timestamp(span.end)
        if number or not isinstance(results_of(self.plan.pipeline), Sessions):
            return mine & (start >= timestamp(span.start))
        return mine & (end >= timestamp(span.start))

    def publishable(self, rows: "DataFrame", number: int) -> "DataFrame":
        """Return the results of a slice that should be published."""
        return rows.where(self.is_publishable(number))

    def is_publishable(self, number: int, prefix: str = "") -> "Column":
        """Return the condition under which a result should be published; `prefix` as in `times`.

        It must belong to the slice, and be closed unless open results are allowed.
        """
        results = results_of(self.plan.pipeline)
        closed = self.plan.closed_until(judge_open=self.plan.request.allow_open)
        return self.belongs_to_slice(number, prefix) & ~is_open(results, closed, times(results, prefix)[1])

    def events(self, span: Span) -> "DataFrame":
        """Return the events of a span."""
        return self._decoded(span).select("event.*")

    def placed_events(self, span: Span) -> "DataFrame":
        """Return the events of a span as `event`, with the topic, partition, offset and timestamp of their records."""
        return self._decoded(span).select(*_PLACE, "event")

    def _decoded(self, span: Span) -> "DataFrame":
        from pyspark.sql import functions as F

        decoder = decoder_of(self.plan.pipeline)
        records = self.reader.read(self.spark, span, self.plan.decoded_alike)
        decoded = decode_once(records.where(F.col("topic") == topic_of(self.plan.pipeline)), decoder)
        time = F.col(f"event.{quote(decoder.time_column)}")
        return decoded.where(
            F.col("event").isNotNull() & (time >= timestamp(span.start)) & (time < timestamp(span.end))
        )

    def _sessions(self, sessions: Sessions, span: Span, first: bool) -> "DataFrame":
        decoder = decoder_of(self.plan.pipeline)
        limits = self.reader.events
        assert limits is not None
        return whole_sessions(sessions, decoder.time_column, self.events, span, limits, backward=first)


def _filtered_as_results(rows: "DataFrame") -> "DataFrame":
    """Return results of which a filter leaves out whole sessions.

    Spark pushes a filter of a `session_window` below the aggregation, where it leaves out events before they are
    merged; `observe` prevents that.
    """
    from pyspark.sql import functions as F

    return rows.observe(f"respool-{uuid4().hex}", F.count(F.lit(1)).alias("results"))


def check_windows(rows: "DataFrame", windows: Windows, pipeline: str) -> None:
    """Raise PipelineError when results have other windows than the pipeline declares: they might be incomplete."""
    row = rows.select(other_window(windows).alias("other")).where("other IS NOT NULL").first()
    refuse_window(row and row.other, windows, pipeline)


def other_window(windows: Windows, prefix: str = "") -> "Column":
    """Return the start and end of a result's window, in microseconds, if it is not one of `windows`; else null."""
    from pyspark.sql import functions as F

    tick = timedelta(microseconds=1)
    width, slide = windows.width_time // tick, windows.slide_time // tick
    start, end = (F.unix_micros(time) for time in times(windows, prefix))
    regular = (end - start == width) & (F.pmod(start - windows.offset_time // tick, F.lit(slide)) == 0)
    return F.when(~F.coalesce(regular, F.lit(False)), F.struct(start.alias("start"), end.alias("end")))


def refuse_window(other: "Row | None", windows: Windows, pipeline: str) -> None:
    """Raise PipelineError when there is a result of another window."""
    if other is not None:
        what = "null" if other.start is None else f"{timedelta(microseconds=other.end - other.start)} long"
        raise PipelineError(
            f"The pipeline {pipeline} declares results in {windows.describe()}, but its transform produced a window "
            f"that is {what} or starts elsewhere. Correct `results`, or the transform."
        )


def times(results: Recomputable, prefix: str = "") -> "tuple[Column, Column]":
    """Return the start and the end of results; `prefix` names the struct of their columns, if they are in one."""
    from pyspark.sql import functions as F

    if isinstance(results, Windows):
        return F.col(f"{prefix}{quote(results.column)}.start"), F.col(f"{prefix}{quote(results.column)}.end")
    if isinstance(results, Events):
        return F.col(f"{prefix}{quote(results.column)}"), F.col(f"{prefix}{quote(results.column)}")
    return F.col(f"{prefix}{quote(results.start)}"), F.col(f"{prefix}{quote(results.end)}")


def is_open(results: Recomputable, closed: datetime | None, end: "Column") -> "Column":
    """Return the condition under which a result that ends then is open; `closed` as in `ReprocessPlan.closed_until`."""
    from pyspark.sql import functions as F

    if closed is None:
        return F.lit(False)
    match results:
        case Sessions():
            return end > timestamp(closed - results.gap_time)
        case Events():
            return end >= timestamp(closed - results.reach_time)
        case Windows():
            return end > timestamp(closed)


def timestamp(time: datetime) -> "Column":
    """Return a time as a column."""
    from pyspark.sql import functions as F

    return F.timestamp_micros(F.lit(epoch_micros(time)))


def _require(rows: "DataFrame", column: str) -> None:
    if column not in rows.columns:
        raise PipelineError(
            f"The results have no column {column}, which the pipeline's `results` names; they have "
            f"{', '.join(rows.columns)}. Correct `results`, or the transform."
        )
