"""Sessions by the timer rule: any event extends an open session, and only the watermark closes it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError
from respool.sessions import rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

_TIMER_STATE = "visited_pages BIGINT, deadline_us BIGINT"
_TIMER_ROWS = "visit_id STRING, visited_pages BIGINT, is_finished BOOLEAN"


def by_timer(gap: timedelta) -> "Callable[[DataFrame], DataFrame]":
    """Return the transform of the `timer` rule: visit_id, visited_pages and is_finished; for streams only."""
    micros = gap // timedelta(microseconds=1)

    def transform(events: "DataFrame") -> "DataFrame":
        if not events.isStreaming:
            raise PipelineError(
                "Sessions by the timer rule depend on the batches in which events arrived, so they cannot be "
                "recomputed. Use the rule gap."
            )
        from pyspark.sql import functions as F

        # The event time is kept for the watermark; the rule reads the number, which has no zone and no limits.
        rows = events.select("visit_id", "event_time", F.unix_micros("event_time").alias("at"))
        return rows.groupBy("visit_id").transformWithState(_timer_processor(micros), _TIMER_ROWS, "Update", "EventTime")

    return transform


def _timer_processor(gap: int) -> "StatefulProcessor":
    """Return the stateful processor of the `timer` rule; a timer that fires too early is set again."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    result = Row("visit_id", "visited_pages", "is_finished")

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
            yield result(key[0], session.pages, False)

        def handleExpiredTimer(self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any) -> "Iterator[Row]":
            session = self._read()
            if session is not None and rules.is_over(session, _watermark(timerValues)):
                self._state.clear()
                yield result(key[0], session.pages, True)
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
    """Return the timer, in milliseconds, that fires as soon as the watermark reaches `watermark`."""
    return -(-watermark // 1000)
