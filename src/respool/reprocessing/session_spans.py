"""The events of whole sessions: a span is widened until every session that touches it is whole.

Only the necessary events are read. At each end of the span, the adjacent hours show which sessions continue beyond
them. Then the archive is read further, in growing steps, for those sessions only, until none continues. A step reads at
most as many hours as the walk has read so far, and beyond four days at most a quarter of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Literal

from respool.pipeline.results import Sessions
from respool.sessions.gap import number_sessions
from respool.times import Span, epoch_micros, hour_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ReadSpan = Callable[[Span], "DataFrame"]
_HOUR = timedelta(hours=1)
_DAY = 24  # hours
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class _SessionWalk:
    """A walk through the archive, away from one end of a span.

    Attributes:
        sessions: The definition of a session.
        time: The column of the event time.
        read: Returns the events of a span.
        limits: The span of the archive's events.
        forward: Whether it goes towards later times.
    """

    sessions: Sessions
    time: str
    read: ReadSpan
    limits: Span
    forward: bool

    def events(self, edge: datetime) -> "tuple[list[DataFrame], datetime]":
        """Return the events beyond the hours adjacent to an end of the span, and where these hours end.

        Args:
            edge: The span's end in the direction of the walk.
        """
        gap = self.sessions.gap_time
        pieces: list[DataFrame] = []
        if self.forward:
            at = _hour_from(edge + gap + _TICK)
            open_ = self._continuing(self._parts(self.read(Span(edge - gap, at))), at, touching=("first", "<", edge))
        else:
            at = hour_of(edge - gap)
            open_ = self._continuing(self._parts(self.read(Span(at, edge + gap))), at, touching=("last", ">=", edge))
        border, walked, step = at, 0, 1
        while open_ is not None and self.limits.start < at < self.limits.end:
            on = at + step * _HOUR if self.forward else at - step * _HOUR
            piece = self.read(Span(at, on) if self.forward else Span(on, at))
            piece = _join(piece, open_.select(*self.sessions.key), self.sessions.key, "left_semi").localCheckpoint()
            pieces.append(piece)
            open_ = self._continuing(self._extended(open_, piece), on)
            at, walked = on, walked + step
            step = min(walked, max(_DAY, walked // 4))
        return pieces, border

    def _continuing(
        self, parts: "DataFrame", at: datetime, touching: "tuple[str, Literal['<', '>='], datetime] | None" = None
    ) -> "DataFrame | None":
        """Return the sessions that may continue beyond `at`: key, first and last time; None when there are none.

        Args:
            parts: Sessions as far as they were read.
            at: The time up to which they were read, in the direction of the walk.
            touching: The column that must be before or after the span's end for a session to touch the span.
        """
        from pyspark.sql import functions as F

        gap = self.sessions.gap_time // _TICK
        condition = F.col("last") + gap >= epoch_micros(at) if self.forward else F.col("first") - gap < epoch_micros(at)
        if touching is not None:
            name, relation, edge = touching
            column = F.col(name)
            condition &= column < epoch_micros(edge) if relation == "<" else column >= epoch_micros(edge)
        # Through the driver: Spark's size estimates would otherwise multiply from step to step.
        rows = parts.where(condition).toArrow()
        return parts.sparkSession.createDataFrame(rows) if rows.num_rows else None

    def _extended(self, open_: "DataFrame", piece: "DataFrame") -> "DataFrame":
        """Return open sessions extended by the events of a piece that belong to them."""
        from pyspark.sql import functions as F

        key = list(self.sessions.key)
        mark = F.col("last") if self.forward else F.col("first")
        times = self._times(piece).withColumn("open", F.lit(False))
        marks = open_.select(*key, mark.alias("at"), F.lit(True).alias("open"))
        parts = self._parts_of(times.unionByName(marks)).where("open").drop("open")
        # The other end of a session that is read in pieces is already known.
        other = "first" if self.forward else "last"
        return _join(parts.drop(other), open_.select(*key, other), key, "inner")

    def _parts(self, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return self._parts_of(self._times(events).withColumn("open", F.lit(False))).drop("open")

    def _times(self, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return events.select(*self.sessions.key, F.unix_micros(self.time).alias("at"))

    def _parts_of(self, times: "DataFrame") -> "DataFrame":
        """Return sessions of times: key, first, last, and whether one of the times is marked as open."""
        from pyspark.sql import functions as F

        key = list(self.sessions.key)
        return (
            number_sessions(times, key, self.sessions.gap_time // _TICK)
            .groupBy(*key, "number")
            .agg(F.min("at").alias("first"), F.max("at").alias("last"), F.bool_or("open").alias("open"))
            .drop("number")
        )


def whole_sessions(
    sessions: Sessions, time: str, read: ReadSpan, span: Span, limits: Span, *, backward: bool
) -> "DataFrame":
    """Return events that contain every session that touches a span whole; other sessions may be incomplete.

    Args:
        sessions: The definition of a session.
        time: The column of the event time.
        read: Returns the events of a span.
        span: The span.
        limits: The span of the archive's events.
        backward: Whether to read sessions that started before the span from their start. If not, only enough is read
            before the span to recognize them.
    """
    before: list[DataFrame] = []
    start = span.start - sessions.gap_time
    after, end = _SessionWalk(sessions, time, read, limits, forward=True).events(span.end)
    if backward:
        before, start = _SessionWalk(sessions, time, read, limits, forward=False).events(span.start)
    core = read(Span(start, end))
    return reduce(lambda first, second: first.unionByName(second), [*before, *after], core)


def _join(left: "DataFrame", right: "DataFrame", key: Sequence[str], how: str) -> "DataFrame":
    """Join by a key; null keys are equal, as in a group."""
    renamed = right.withColumnsRenamed({name: f"_{name}" for name in key})
    same = reduce(lambda first, second: first & second, (left[name].eqNullSafe(renamed[f"_{name}"]) for name in key))
    return left.join(renamed, same, how).drop(*(f"_{name}" for name in key))


def _hour_from(time: datetime) -> datetime:
    hour = hour_of(time)
    return hour if hour == time else hour + _HOUR
