"""The results of a slice, computed from the archive with the pipeline's own transform."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from typing_extensions import assert_never

from respool.archive.reader import ArchiveReader
from respool.decoders.json import decode
from respool.errors import PipelineError
from respool.pipeline.results import Sessions, Windows
from respool.reprocess.plan import ReprocessPlan, results_of
from respool.reprocess.session_spans import whole_sessions
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

        Of windows they are those that start in the slice. Of sessions they are those that start in it and, in the first
        slice, those that reach into it; others that were seen come along, so that they can be told from these: see
        `is_mine`.
        """
        results = results_of(self.plan.pipeline)
        here = self.plan.slices[number]
        match results:
            case Windows():
                rows = self.plan.pipeline.transform(self.events(results.events(here)))
                _require(rows, results.column)
                return rows.where(self.is_mine(number))
            case Sessions():
                rows = self.plan.pipeline.transform(self._sessions(results, here, first=number == 0))
                for name in (*results.key, results.start, results.end):
                    _require(rows, name)
                return rows
            case _:
                assert_never(results)

    def is_mine(self, number: int, prefix: str = "") -> "Column":
        """Return the condition under which a result belongs to a slice; `prefix` as in `times`."""
        start, end = times(results_of(self.plan.pipeline), prefix)
        here = self.plan.slices[number]
        mine = start < timestamp(here.end)
        if number or isinstance(results_of(self.plan.pipeline), Windows):
            return mine & (start >= timestamp(here.start))
        return mine & (end >= timestamp(here.start))

    def told(self, rows: "DataFrame", number: int) -> "DataFrame":
        """Return those results of a slice that are to be told."""
        return rows.where(self.is_told(number))

    def is_told(self, number: int, prefix: str = "") -> "Column":
        """Return the condition under which a result is to be told; `prefix` as in `times`.

        It must be the slice's own, and closed unless open ones are wanted.
        """
        results = results_of(self.plan.pipeline)
        closed = self.plan.closed_until(judge_open=self.plan.request.allow_open)
        return self.is_mine(number, prefix) & ~is_open(results, closed, times(results, prefix)[1])

    def events(self, span: Span) -> "DataFrame":
        """Return the events of a span."""
        return self._decoded(span).select("event.*")

    def placed_events(self, span: Span) -> "DataFrame":
        """Return the events of a span as `event`, with the topic, partition, offset and timestamp of their records."""
        return self._decoded(span).select(*_PLACE, "event")

    def _decoded(self, span: Span) -> "DataFrame":
        from pyspark.sql import functions as F

        decoder = self.plan.pipeline.decode
        assert decoder is not None
        records = self.reader.read(self.spark, span, self.plan.decoded_alike)
        decoded = decode(records.where(F.col("topic") == self.plan.pipeline.topic), decoder)
        # A filter that Spark moves before the decoding would parse each record many times; what is observed stays put.
        decoded = decoded.observe(f"respool-{uuid4().hex}", F.count("rejected").alias("rejected"))
        time = F.col(f"event.{quote(decoder.event_time)}")
        return decoded.where(
            F.col("rejected").isNull() & (time >= timestamp(span.start)) & (time < timestamp(span.end))
        )

    def _sessions(self, sessions: Sessions, here: Span, first: bool) -> "DataFrame":
        decoder = self.plan.pipeline.decode
        limits = self.reader.events
        assert decoder is not None
        assert limits is not None
        return whole_sessions(sessions, decoder.event_time, self.events, here, limits, backward=first)


def check_windows(rows: "DataFrame", windows: Windows, pipeline: str) -> None:
    """Raise PipelineError when results are of other windows than the pipeline says: they might be cut."""
    found = rows.select(other_window(windows).alias("other")).where("other IS NOT NULL").first()
    refuse_window(found and found.other, windows, pipeline)


def other_window(windows: Windows, prefix: str = "") -> "Column":
    """Return the start and end of a result's window, in microseconds, if it is none of these; else null."""
    from pyspark.sql import functions as F

    tick = timedelta(microseconds=1)
    width, slide = windows.width_time // tick, windows.slide_time // tick
    start, end = (F.unix_micros(one) for one in times(windows, prefix))
    regular = (end - start == width) & (F.pmod(start - windows.offset_time // tick, F.lit(slide)) == 0)
    return F.when(~F.coalesce(regular, F.lit(False)), F.struct(start.alias("start"), end.alias("end")))


def refuse_window(other: "Row | None", windows: Windows, pipeline: str) -> None:
    """Raise PipelineError when there is a result of another window."""
    if other is not None:
        found = "null" if other.start is None else f"{timedelta(microseconds=other.end - other.start)} long"
        raise PipelineError(
            f"The pipeline {pipeline} says that its results are of {windows.describe()}, but its transform made a "
            f"window that is {found} or begins elsewhere. Correct `results`, or the transform."
        )


def times(results: Windows | Sessions, prefix: str = "") -> "tuple[Column, Column]":
    """Return the start and the end of results, whose columns may be in a struct that `prefix` names."""
    from pyspark.sql import functions as F

    if isinstance(results, Windows):
        return F.col(f"{prefix}{quote(results.column)}.start"), F.col(f"{prefix}{quote(results.column)}.end")
    return F.col(f"{prefix}{quote(results.start)}"), F.col(f"{prefix}{quote(results.end)}")


def is_open(results: Windows | Sessions, closed: datetime | None, end: "Column") -> "Column":
    """Return the condition under which a result that ends then is open; `closed` as in `ReprocessPlan.closed_until`."""
    from pyspark.sql import functions as F

    if closed is None:
        return F.lit(False)
    return end > timestamp(closed - results.gap_time if isinstance(results, Sessions) else closed)


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
