"""Sessions by the gap rule: two events further apart than the gap belong to two sessions."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

    from respool.sessions.table import SessionResults


# Every bucket yields a row without a visit, with counts of the batch: late events, and open sessions after it.
_GAP_ROWS = (
    "visit_id STRING, start_us BIGINT, end_us BIGINT, visited_pages BIGINT, is_finished BOOLEAN, withdrawn BOOLEAN, "
    "late_rows BIGINT, state_rows BIGINT"
)


def by_gap(gap: timedelta, buckets: int) -> "Callable[[DataFrame], DataFrame]":
    """Return the transform of the `gap` rule: visit_id, session_start, session_end and the state of the session.

    A stream publishes every change; a row with `withdrawn` withdraws the result under its key, and has 0 pages. A batch
    has all events and publishes the final sessions only.
    """
    micros = gap // timedelta(microseconds=1)

    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        rows = _bucketed(events, micros, buckets) if events.isStreaming else _final_sessions(events, micros)
        return rows.select(
            "visit_id",
            F.timestamp_micros("start_us").alias("session_start"),
            F.timestamp_micros("end_us").alias("session_end"),
            *("visited_pages", "is_finished", "withdrawn"),
        )

    return transform


def _bucketed(events: "DataFrame", gap: int, buckets: int) -> "DataFrame":
    """Return the results of a stream's batches by the `gap` rule."""
    from pyspark.sql import functions as F

    from respool.sessions.packing import PACKED, pack

    bucket = F.pmod(F.xxhash64("visit_id"), F.lit(buckets)).cast("int")
    rows = events.select("visit_id", F.unix_micros("event_time").alias("at"), bucket.alias("bucket"))
    packed = rows.mapInArrow(partial(pack, buckets=buckets), PACKED)
    processor = _gap_processor(gap, buckets)
    results = packed.groupBy("bucket").transformWithStateInPandas(processor, _GAP_ROWS, "Update", "EventTime")
    counted = results.observe("respool-state", *(F.sum(name).alias(name) for name in ("late_rows", "state_rows")))
    return counted.where("visit_id IS NOT NULL")


def number_sessions(times: "DataFrame", key: Sequence[str], gap: int) -> "DataFrame":
    """Return times with the number of their session within their key, in a column `number`.

    Args:
        times: The columns of the key and `at`, in microseconds; other columns are kept.
        key: The columns of the key.
        gap: The longest time between two neighbours of a session, in microseconds.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy(*key).orderBy("at")
    before = F.lag("at").over(ordered)
    starts = before.isNull() | (F.col("at") - before > gap)
    return times.withColumn("starts", starts).withColumn("number", F.count_if("starts").over(ordered)).drop("starts")


def _final_sessions(events: "DataFrame", gap: int) -> "DataFrame":
    """Return what `rules.sessions_of` returns for every visit, computed by Spark without Python workers."""
    from pyspark.sql import functions as F

    times = events.select("visit_id", F.unix_micros("event_time").alias("at"))
    return (
        number_sessions(times, ["visit_id"], gap)
        .groupBy("visit_id", "number")
        .agg(
            F.min("at").alias("start_us"),
            F.max("at").alias("end_us"),
            F.count("at").alias("visited_pages"),
            F.lit(True).alias("is_finished"),
            F.lit(False).alias("withdrawn"),
        )
    )


def _gap_processor(gap: int, buckets: int) -> "StatefulProcessor":
    """Return the stateful processor of the `gap` rule.

    Spark cannot see the events within packed rows: late events are dropped here, by the same watermark as Spark's, that
    of the previous batch. So every bucket must take part in every batch: it gets a row in each batch that has records,
    and a timer at the next watermark calls it in the others.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from respool.sessions.log import BucketHead, SessionLog
    from respool.sessions.packing import PackedEvents, unpack

    class GapProcessor(StatefulProcessor):
        def init(self, handle: "StatefulProcessorHandle") -> None:
            self._handle = handle
            self._log = SessionLog(handle, buckets)

        def handleInputRows(self, key: Any, rows: Any, timerValues: "TimerValues") -> "Iterator[pd.DataFrame]":
            packed = [events for frame in rows for events in frame["events"] if events is not None]
            yield self._update(self._log.head(), unpack(packed), timerValues.getCurrentWatermarkInMs())

        def handleExpiredTimer(
            self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any
        ) -> "Iterator[pd.DataFrame]":
            head, now = self._log.head(), timerValues.getCurrentWatermarkInMs()
            if head is None or head.watermark_ms < now:  # otherwise the rows of this batch have updated it
                yield self._update(head, unpack([]), now)

        def _update(self, head: BucketHead | None, events: PackedEvents, now: int) -> "pd.DataFrame":
            if head is None or head.watermark_ms < now:
                self._handle.registerTimer(now + 1)
            head = head or BucketHead(buckets)
            in_time = events.after(head.watermark_ms * 1000)
            table = self._log.load(head)
            results, change = table.update(in_time.visits, in_time.owners, in_time.times, now * 1000 or None, gap)
            self._log.append(head, table, change, results, now)
            return results_frame(results, late_rows=len(events) - len(in_time), state_rows=len(table))

        def close(self) -> None:
            pass

    return GapProcessor()


def results_frame(results: "SessionResults", late_rows: int, state_rows: int) -> "pd.DataFrame":
    """Return results as rows for Spark, and after them the row with the counts of the batch."""
    import numpy as np
    import pandas as pd

    def column(values: Any, last: object) -> Any:
        return np.append(values, np.array([last], dtype=values.dtype))

    zeros = np.zeros(len(results.start), dtype=np.int64)
    return pd.DataFrame(
        {
            "visit_id": column(results.visits, None),
            "start_us": column(results.start, 0),
            "end_us": column(results.end, 0),
            "visited_pages": column(results.pages, 0),
            "is_finished": column(results.is_finished, False),
            "withdrawn": column(results.withdrawn, False),
            "late_rows": column(zeros, late_rows),
            "state_rows": column(zeros, state_rows),
        }
    )
