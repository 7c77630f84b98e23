"""Sessions of visits: an early result at every change, a final one when the watermark closes a session.

What a session is, is said in `session_rules`; here its rules meet Spark. The state of a visit is its open sessions as
plain columns, times in microseconds since 1970, so that Spark's statestore reader shows them: the variable `sessions`
of the `gap` rule is a list, `session` of the `timer` rule a single value.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError, did_you_mean
from respool.pipeline import Pipeline
from respool.results import ByArrival, Sessions
from respool.sinks import KafkaSink
from respool.span import parse_duration
from respool.visits import session_rules as rules
from respool.visits.events import ROCKSDB, VISIT, VISITS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

_GAP_STATE = "start_us BIGINT, end_us BIGINT, visited_pages BIGINT"
_GAP_ROWS = (
    "visit_id STRING, start_us BIGINT, end_us BIGINT, visited_pages BIGINT, is_finished BOOLEAN, withdrawn BOOLEAN"
)
_TIMER_STATE = "visited_pages BIGINT, deadline_us BIGINT"
_TIMER_ROWS = "visit_id STRING, visited_pages BIGINT, is_finished BOOLEAN"
_KEYS = {"gap": ("visit_id", "session_start"), "timer": ("visit_id",)}
# transformWithState runs on no other state store.
_SPARK = {**ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


def sessions(
    *,
    topic: str = VISITS_TOPIC,
    output_topic: str = "visit_sessions",
    rule: str = "gap",
    gap: str = "10 minutes",
    watermark: str = "15 minutes",
    timezone: str = "UTC",
) -> Pipeline:
    """Return the pipeline `sessions`.

    Args:
        topic: The topic of the visits.
        output_topic: The topic of the sessions.
        rule: `gap` or `timer`, as `session_rules` tells them apart.
        gap: The inactivity that ends a session.
        watermark: How late an event may come.
        timezone: The zone in which times without a zone are read, and results are rendered.
    """
    if rule not in _KEYS:
        raise PipelineError(
            f"'{rule}' is no rule for sessions; expected gap or timer.{did_you_mean(rule, list(_KEYS))} "
            "Use gap unless the results must be those of a timer."
        )
    return Pipeline(
        name="sessions",
        summary="Tells the sessions of every visit, early and final",
        topic=topic,
        decode=VISIT,
        transform=(by_gap if rule == "gap" else by_timer)(parse_duration(gap)),
        sink=KafkaSink(output_topic, key=_KEYS[rule], withdrawn="withdrawn" if rule == "gap" else None),
        watermark=watermark,
        output_mode="update",
        timezone=timezone,
        spark=_SPARK,
        results=(
            Sessions(gap, key=("visit_id",))
            if rule == "gap"
            else ByArrival("by the timer rule, sessions depend on the batches in which events came; use the rule gap")
        ),
    )


def by_gap(gap: timedelta) -> "Callable[[DataFrame], DataFrame]":
    """Return the transform of the `gap` rule: visit_id, session_start, session_end and what is said of the session.

    A stream tells every change; a row with `withdrawn` takes back what was said under its key, and has 0 pages. A
    batch, whose events are all there, tells the final sessions only.
    """
    micros = gap // timedelta(microseconds=1)

    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        rows = _stream(events, _gap_processor(micros), _GAP_ROWS) if events.isStreaming else _final(events, micros)
        return rows.select(
            "visit_id",
            F.timestamp_micros("start_us").alias("session_start"),
            F.timestamp_micros("end_us").alias("session_end"),
            *("visited_pages", "is_finished", "withdrawn"),
        )

    return transform


def by_timer(gap: timedelta) -> "Callable[[DataFrame], DataFrame]":
    """Return the transform of the `timer` rule: visit_id, visited_pages and is_finished. It is for streams only."""
    micros = gap // timedelta(microseconds=1)

    def transform(events: "DataFrame") -> "DataFrame":
        if not events.isStreaming:
            raise PipelineError(
                "Sessions by the timer rule depend on the batches in which events came, and cannot be computed again. "
                "Use the rule gap."
            )
        return _stream(events, _timer_processor(micros), _TIMER_ROWS)

    return transform


def _stream(events: "DataFrame", processor: "StatefulProcessor", schema: str) -> "DataFrame":
    from pyspark.sql import functions as F

    # The event time itself goes along for the watermark; the rules read the number, which has no zone and no limits.
    rows = events.select("visit_id", "event_time", F.unix_micros("event_time").alias("at"))
    return rows.groupBy("visit_id").transformWithState(processor, schema, "Update", "EventTime")


def _final(events: "DataFrame", gap: int) -> "DataFrame":
    """Return what `session_rules.sessions_of` says of every visit, computed where the events are, without Python."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy("visit_id").orderBy("at")
    rows = events.select("visit_id", F.unix_micros("event_time").alias("at"))
    rows = rows.withColumn("before", F.lag("at").over(ordered))
    opens = F.col("before").isNull() | (F.col("at") - F.col("before") > gap)
    rows = rows.withColumn("number", F.count(F.when(opens, 1)).over(ordered))
    return rows.groupBy("visit_id", "number").agg(
        F.min("at").alias("start_us"),
        F.max("at").alias("end_us"),
        F.count("at").alias("visited_pages"),
        F.lit(True).alias("is_finished"),
        F.lit(False).alias("withdrawn"),
    )


def _gap_processor(gap: int) -> "StatefulProcessor":
    """Return the shell of the `gap` rule.

    While a visit has open sessions, a timer is set at or before the watermark that closes the first of them. One that
    fires too early, because its session grew, is set again: cheaper than to move it with every event.
    """
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    told = Row("visit_id", "start_us", "end_us", "visited_pages", "is_finished", "withdrawn")

    class GapProcessor(StatefulProcessor):
        def init(self, handle: "StatefulProcessorHandle") -> None:
            self._handle = handle
            self._state = handle.getListState("sessions", _GAP_STATE)

        def handleInputRows(self, key: Any, rows: Any, timerValues: "TimerValues") -> "Iterator[Row]":
            return self._update(key[0], [row.at for row in rows], timerValues)

        def handleExpiredTimer(self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any) -> "Iterator[Row]":
            return self._update(key[0], [], timerValues)

        def _update(self, visit: str, times: list[int], timer_values: "TimerValues") -> "Iterator[Row]":
            before = tuple(rules.Session(*one) for one in self._state.get())
            update = rules.update(before, times, _watermark(timer_values), gap)
            if update.open and update.open != before:
                self._state.put([(one.start, one.end, one.pages) for one in update.open])
            elif before and not update.open:
                self._state.clear()
            closes, closed = rules.next_close(update.open, gap), rules.next_close(before, gap)
            # Without times it was the timer that brought us here, and it is gone now.
            if closes is not None and (not times or closed is None or closes < closed):
                self._handle.registerTimer(_timer(closes))
            return (_told(told, visit, result) for result in update.results)

        def close(self) -> None:
            pass

    return GapProcessor()


def _timer_processor(gap: int) -> "StatefulProcessor":
    """Return the shell of the `timer` rule; a timer that fires before its session's deadline is set again."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    told = Row("visit_id", "visited_pages", "is_finished")

    class TimerProcessor(StatefulProcessor):
        def init(self, handle: "StatefulProcessorHandle") -> None:
            self._handle = handle
            self._state = handle.getValueState("session", _TIMER_STATE)

        def handleInputRows(self, key: Any, rows: Any, timerValues: "TimerValues") -> "Iterator[Row]":
            before = self._read()
            session = rules.extend(before, [row.at for row in rows], _watermark(timerValues), gap)
            self._state.update((session.pages, session.deadline))
            if before is not None and session.deadline < before.deadline:
                self._handle.deleteTimer(_timer(before.deadline))
            if before is None or session.deadline < before.deadline:
                self._handle.registerTimer(_timer(session.deadline))
            yield told(key[0], session.pages, False)

        def handleExpiredTimer(self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any) -> "Iterator[Row]":
            session = self._read()
            if session is not None and rules.is_over(session, _watermark(timerValues)):
                self._state.clear()
                yield told(key[0], session.pages, True)
            elif session is not None:
                self._handle.registerTimer(_timer(session.deadline))

        def _read(self) -> rules.TimedSession | None:
            stored = self._state.get()
            return rules.TimedSession(*stored) if stored else None

        def close(self) -> None:
            pass

    return TimerProcessor()


def _watermark(timer_values: "TimerValues") -> int | None:
    return timer_values.getCurrentWatermarkInMs() * 1000 or None


def _timer(watermark: int) -> int:
    """Return the timer, in milliseconds, that fires as soon as the watermark is at `watermark` or behind it."""
    return -(-watermark // 1000)


def _told(row: Any, visit: str, result: rules.Result) -> Any:
    session = result.session
    return row(visit, session.start, session.end, session.pages, result.is_finished, result.withdrawn)
