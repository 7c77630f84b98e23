"""The events of whole sessions: a span is widened until every session that touches it is whole.

Only what is needed is read. At each end of the span, the hours next to it tell which sessions go on beyond them; then
the archive is walked on, in steps that grow, for those sessions alone, until none goes on. A step takes no more hours
than the walk has needed so far, and beyond four days no more than a quarter of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Literal

from respool.pipeline.results import Sessions
from respool.times import Span, epoch_micros, hour_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[[Span], "DataFrame"]
_HOUR = timedelta(hours=1)
_DAY = 24  # hours
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class _Walk:
    """A walk through the archive, away from one end of a span.

    Attributes:
        sessions: What a session is.
        time: The column of the event time.
        read: Returns the events of a span.
        limits: Where the archive's events begin and end.
        forward: Towards later times.
    """

    sessions: Sessions
    time: str
    read: Read
    limits: Span
    forward: bool

    def events(self, edge: datetime) -> "tuple[list[DataFrame], datetime]":
        """Return the events found beyond the hours next to an end of the span, and where these hours end.

        Args:
            edge: The span's end in the direction of the walk.
        """
        gap = self.sessions.gap_time
        found: list[DataFrame] = []
        if self.forward:
            at = _hour_from(edge + gap + _TICK)
            open_ = self._going_on(self._parts(self.read(Span(edge - gap, at))), at, touching=("first", "<", edge))
        else:
            at = hour_of(edge - gap)
            open_ = self._going_on(self._parts(self.read(Span(at, edge + gap))), at, touching=("last", ">=", edge))
        border, walked, step = at, 0, 1
        while open_ is not None and self.limits.start < at < self.limits.end:
            on = at + step * _HOUR if self.forward else at - step * _HOUR
            piece = self.read(Span(at, on) if self.forward else Span(on, at))
            piece = _join(piece, open_.select(*self.sessions.key), self.sessions.key, "left_semi").localCheckpoint()
            found.append(piece)
            open_ = self._going_on(self._extended(open_, piece), on)
            at, walked = on, walked + step
            step = min(walked, max(_DAY, walked // 4))
        return found, border

    def _going_on(
        self, parts: "DataFrame", at: datetime, touching: "tuple[str, Literal['<', '>='], datetime] | None" = None
    ) -> "DataFrame | None":
        """Return the sessions that may go on beyond `at`: key, first and last time; None when there are none.

        Args:
            parts: Sessions as far as they were read.
            at: How far that is, in the direction of the walk.
            touching: The time that must be before or behind the span's end for a session to touch the span.
        """
        from pyspark.sql import functions as F

        gap = self.sessions.gap_time // _TICK
        wanted = F.col("last") + gap >= epoch_micros(at) if self.forward else F.col("first") - gap < epoch_micros(at)
        if touching is not None:
            name, relation, edge = touching
            column = F.col(name)
            wanted &= column < epoch_micros(edge) if relation == "<" else column >= epoch_micros(edge)
        # Through the driver, as Spark would carry its guesses at sizes on from step to step, and multiply them.
        found = parts.where(wanted).toArrow()
        return parts.sparkSession.createDataFrame(found) if found.num_rows else None

    def _extended(self, open_: "DataFrame", piece: "DataFrame") -> "DataFrame":
        """Return open sessions with the events of a piece that belong to them."""
        from pyspark.sql import functions as F

        key = list(self.sessions.key)
        mark = F.col("last") if self.forward else F.col("first")
        times = self._times(piece).withColumn("open", F.lit(False))
        marks = open_.select(*key, mark.alias("at"), F.lit(True).alias("open"))
        parts = self._parts_of(times.unionByName(marks)).where("open").drop("open")
        # Of a session read in pieces, the other end is known from before.
        other = "first" if self.forward else "last"
        return _join(parts.drop(other), open_.select(*key, other), key, "inner")

    def _parts(self, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return self._parts_of(self._times(events).withColumn("open", F.lit(False))).drop("open")

    def _times(self, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return events.select(*self.sessions.key, F.unix_micros(self.time).alias("at"))

    def _parts_of(self, times: "DataFrame") -> "DataFrame":
        """Return sessions of times: key, first, last, and whether one of the times was marked as open."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        key = list(self.sessions.key)
        ordered = Window.partitionBy(*key).orderBy("at")
        before = F.lag("at").over(ordered)
        opens = before.isNull() | (F.col("at") - before > self.sessions.gap_time // _TICK)
        numbered = times.withColumn("opens", opens).withColumn("number", F.count_if("opens").over(ordered))
        return (
            numbered.groupBy(*key, "number")
            .agg(F.min("at").alias("first"), F.max("at").alias("last"), F.bool_or("open").alias("open"))
            .drop("number")
        )


def whole_sessions(
    sessions: Sessions, time: str, read: Read, span: Span, limits: Span, *, backward: bool
) -> "DataFrame":
    """Return events that hold every session that touches a span whole; other sessions in them may be cut.

    Args:
        sessions: What a session is.
        time: The column of the event time.
        read: Returns the events of a span.
        span: The span.
        limits: Where the archive's events begin and end.
        backward: Also take the beginnings of sessions that began before the span. Without, only so much is read before
            it as tells which they are.
    """
    before: list[DataFrame] = []
    start = span.start - sessions.gap_time
    after, end = _Walk(sessions, time, read, limits, forward=True).events(span.end)
    if backward:
        before, start = _Walk(sessions, time, read, limits, forward=False).events(span.start)
    core = read(Span(start, end))
    return reduce(lambda one, other: one.unionByName(other), [*before, *after], core)


def _join(left: "DataFrame", right: "DataFrame", key: Sequence[str], how: str) -> "DataFrame":
    """Join by a key, where null is a key like any other, as it is in a group."""
    renamed = right.withColumnsRenamed({name: f"_{name}" for name in key})
    same = reduce(lambda one, other: one & other, (left[name].eqNullSafe(renamed[f"_{name}"]) for name in key))
    return left.join(renamed, same, how).drop(*(f"_{name}" for name in key))


def _hour_from(time: datetime) -> datetime:
    hour = hour_of(time)
    return hour if hour == time else hour + _HOUR
