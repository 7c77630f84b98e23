"""Sessions by gap: two events further apart than the gap belong to two sessions."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

    from respool.sessions.table import SessionResults


# A row without a visit comes from every bucket, and tells of the batch: what was late, and what is open then.
_GAP_ROWS = (
    "visit_id STRING, start_us BIGINT, end_us BIGINT, visited_pages BIGINT, is_finished BOOLEAN, withdrawn BOOLEAN, "
    "late_rows BIGINT, state_rows BIGINT"
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


def _bucketed(events: "DataFrame", gap: int, buckets: int) -> "DataFrame":
    """Return what a stream's batches tell of sessions by the `gap` rule."""
    from pyspark.sql import functions as F

    from respool.sessions.packing import PACKED, pack

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

    from respool.sessions.log import BucketHead, SessionLog
    from respool.sessions.packing import PackedEvents, unpack

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

        def _update(self, head: BucketHead | None, events: PackedEvents, now: int) -> "pd.DataFrame":
            if head is None or head.watermark_ms < now:
                self._handle.registerTimer(now + 1)
            head = head or BucketHead(buckets)
            in_time = events.after(head.watermark_ms * 1000)
            table = self._log.load(head)
            told, change = table.update(in_time.visits, in_time.owners, in_time.times, now * 1000 or None, gap)
            self._log.append(head, table, change, told, now)
            return told_frame(told, late_rows=len(events) - len(in_time), state_rows=len(table))

        def close(self) -> None:
            pass

    return GapProcessor()


def told_frame(told: "SessionResults", late_rows: int, state_rows: int) -> "pd.DataFrame":
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
