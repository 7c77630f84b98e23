"""Sessions of visits: an early result at every change, a final one when the watermark closes a session.

What a session is, is said in `session_rules`; here its rules meet Spark. By the `gap` rule visits are spread over
buckets, and a batch updates the open sessions of a bucket at once: `session_state` has the table and its log in Spark's
state, which `respool state` shows as sessions. By the `timer` rule the state of a visit is one value, `session`.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError, did_you_mean
from respool.pipeline import Pipeline
from respool.results import ByArrival, Sessions
from respool.sinks import KafkaSink
from respool.span import parse_duration
from respool.visits import session_rules as rules
from respool.visits.events import ROCKSDB, VISIT, VISITS_TOPIC

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

    from respool.session_state.table import Told

# A row without a visit comes from every bucket, and tells of the batch: what was late, and what is open then.
_GAP_ROWS = (
    "visit_id STRING, start_us BIGINT, end_us BIGINT, visited_pages BIGINT, is_finished BOOLEAN, withdrawn BOOLEAN, "
    "late_rows BIGINT, state_rows BIGINT"
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
    buckets: int = 16,
) -> Pipeline:
    """Return the pipeline `sessions`.

    Args:
        topic: The topic of the visits.
        output_topic: The topic of the sessions.
        rule: `gap` or `timer`, as `session_rules` tells them apart.
        gap: The inactivity that ends a session.
        watermark: How late an event may come.
        timezone: The zone in which times without a zone are read, and results are rendered.
        buckets: How many parts the visits are spread over by the rule `gap`: as many tasks can work on a batch. A
            checkpoint keeps its number.
    """
    if buckets < 1:
        raise PipelineError(f"buckets is {buckets}; expected 1 or more.")
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
        transform=by_gap(parse_duration(gap), buckets) if rule == "gap" else by_timer(parse_duration(gap)),
        sink=KafkaSink(output_topic, key=_KEYS[rule], withdrawn="withdrawn" if rule == "gap" else None),
        watermark=watermark,
        output_mode="update",
        timezone=timezone,
        spark=_SPARK,
        fixed={"buckets": str(buckets)} if rule == "gap" else {},
        results=(
            Sessions(gap, key=("visit_id",))
            if rule == "gap"
            else ByArrival("by the timer rule, sessions depend on the batches in which events came; use the rule gap")
        ),
    )


def by_gap(gap: timedelta, buckets: int) -> "Callable[[DataFrame], DataFrame]":
    """Return the transform of the `gap` rule: visit_id, session_start, session_end and what is said of the session.

    A stream tells every change; a row with `withdrawn` takes back what was said under its key, and has 0 pages. A
    batch, whose events are all there, tells the final sessions only.
    """
    micros = gap // timedelta(microseconds=1)

    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        rows = _bucketed(events, micros, buckets) if events.isStreaming else _final(events, micros)
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
        from pyspark.sql import functions as F

        # The event time itself goes along for the watermark; the rule reads the number: no zone, no limits.
        rows = events.select("visit_id", "event_time", F.unix_micros("event_time").alias("at"))
        return rows.groupBy("visit_id").transformWithState(_timer_processor(micros), _TIMER_ROWS, "Update", "EventTime")

    return transform


def _bucketed(events: "DataFrame", gap: int, buckets: int) -> "DataFrame":
    """Return what a stream's batches tell of sessions by the `gap` rule."""
    from pyspark.sql import functions as F

    from respool.session_state.packing import PACKED, pack

    bucket = F.pmod(F.xxhash64("visit_id"), F.lit(buckets)).cast("int")
    rows = events.select("visit_id", F.unix_micros("event_time").alias("at"), bucket.alias("bucket"))
    packed = rows.mapInArrow(partial(pack, buckets=buckets), PACKED)
    processor = _gap_processor(gap, buckets)
    told = packed.groupBy("bucket").transformWithStateInPandas(processor, _GAP_ROWS, "Update", "EventTime")
    counted = told.observe("respool-state", *(F.sum(name).alias(name) for name in ("late_rows", "state_rows")))
    return counted.where("visit_id IS NOT NULL")


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


def _gap_processor(gap: int, buckets: int) -> "StatefulProcessor":
    """Return the shell of the `gap` rule.

    Spark does not know the events within packed ones: those that it would drop as late are left out here, by the same
    watermark, that of the batch before. So every bucket has to see every batch: it gets a row in each that has
    records, and a timer at the next watermark wakes it in the others.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from respool.session_state.log import Head, SessionLog
    from respool.session_state.packing import Events, unpack

    class GapProcessor(StatefulProcessor):
        def init(self, handle: "StatefulProcessorHandle") -> None:
            self._handle = handle
            self._log = SessionLog(handle, buckets)

        def handleInputRows(self, key: Any, rows: Any, timerValues: "TimerValues") -> "Iterator[pd.DataFrame]":
            packed = [one for frame in rows for one in frame["events"] if one is not None]
            yield self._update(self._log.head(), unpack(packed), timerValues.getCurrentWatermarkInMs())

        def handleExpiredTimer(
            self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any
        ) -> "Iterator[pd.DataFrame]":
            head, now = self._log.head(), timerValues.getCurrentWatermarkInMs()
            if head is None or head.watermark_ms < now:  # otherwise it came with rows in this very batch
                yield self._update(head, unpack([]), now)

        def _update(self, head: Head | None, events: Events, now: int) -> "pd.DataFrame":
            if head is None or head.watermark_ms < now:
                self._handle.registerTimer(now + 1)
            head = head or Head(buckets)
            in_time = events.after(head.watermark_ms * 1000)
            table = self._log.load(head)
            told, change = table.update(in_time.visits, in_time.owners, in_time.times, now * 1000 or None, gap)
            self._log.append(head, table, change, told, now)
            return told_frame(told, late_rows=len(events) - len(in_time), state_rows=len(table))

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


def told_frame(told: "Told", late_rows: int, state_rows: int) -> "pd.DataFrame":
    """Return what is told as rows for Spark, and behind them the one that tells of the batch."""
    import numpy as np
    import pandas as pd

    def column(values: Any, last: object) -> Any:
        return np.append(values, np.array([last], dtype=values.dtype))

    zeros = np.zeros(len(told.start), dtype=np.int64)
    return pd.DataFrame(
        {
            "visit_id": column(told.visits, None),
            "start_us": column(told.start, 0),
            "end_us": column(told.end, 0),
            "visited_pages": column(told.pages, 0),
            "is_finished": column(told.is_finished, False),
            "withdrawn": column(told.withdrawn, False),
            "late_rows": column(zeros, late_rows),
            "state_rows": column(zeros, state_rows),
        }
    )
