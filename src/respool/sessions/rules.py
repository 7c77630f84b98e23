"""The sessions of a visit: opened, extended, joined and closed by pure functions; and the `timer` rule on Spark.

Two rules define a session:

- `gap`: events of a visit at most `gap` apart belong together, regardless of the order and the batches in which they
  arrive. The final sessions depend on the set of events alone, so a stream and a batch agree. On Spark it is in `gap`.
- `timer`: a visit has one session at a time. Every event extends it, and a timer that the watermark reaches closes it.
  The results depend on how events fall into batches.

Every time and duration is a whole number of microseconds; a time counts from 1970 in UTC. A watermark of None means
that the query has no watermark yet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues


@dataclass(frozen=True, order=True)
class Session:
    """A session by the `gap` rule.

    Attributes:
        start: The time of its first event. Visit and start are its key.
        end: The time of its last event.
        pages: How many events it has.
    """

    start: int
    end: int
    pages: int


@dataclass(frozen=True)
class Result:
    """A published result for a session by the `gap` rule. The newest result of a key is valid.

    Attributes:
        session: The session; a withdrawn session has 0 pages, and the end that was last published.
        is_finished: No event can join it any more.
        withdrawn: No session exists under this key any more: its start moved, or an earlier session took it in.
    """

    session: Session
    is_finished: bool = False
    withdrawn: bool = False


@dataclass(frozen=True)
class Update:
    """The open sessions of a visit after an update, sorted, and the results to publish in their order."""

    open: tuple[Session, ...]
    results: tuple[Result, ...]


@dataclass(frozen=True)
class TimedSession:
    """The open session of a visit by the `timer` rule.

    Attributes:
        pages: How many events it has.
        deadline: The watermark that closes it.
    """

    pages: int
    deadline: int


def sessions_of(times: Iterable[int], gap: int) -> tuple[Session, ...]:
    """Return the final sessions of a visit by the `gap` rule, from the times of all its events, in any order."""
    return _join((Session(time, time, 1) for time in times), gap)


def update(before: Sequence[Session], times: Iterable[int], watermark: int | None, gap: int) -> Update:
    """Add events to the open sessions of a visit, then close those that the watermark has passed, by the `gap` rule.

    All events of a batch must be passed in one call: they can still join sessions that the batch's watermark closes.
    Only changed and finished sessions have results: first the withdrawn sessions, then the rest, each key once.

    Args:
        before: The open sessions; all of them have been published.
        times: The times of the events, in any order; empty when only the watermark moves.
        watermark: No event at or before it will arrive after this update.
        gap: The longest time between two neighbours of a session.
    """
    after = _join([*before, *(Session(time, time, 1) for time in times)], gap)
    published = set(before)
    keys = {session.start for session in after}
    results = [
        Result(Session(old.start, old.end, 0), withdrawn=True) for old in sorted(before) if old.start not in keys
    ]
    still_open = []
    for session in after:
        is_finished = _is_finished(session, watermark, gap)
        if not is_finished:
            still_open.append(session)
        if is_finished or session not in published:
            results.append(Result(session, is_finished))
    return Update(tuple(still_open), tuple(results))


def extend(session: TimedSession | None, times: Sequence[int], watermark: int | None, gap: int) -> TimedSession:
    """Return a visit's session after an update by the `timer` rule; without a session, the update opens one.

    The timer is set again: `gap` after the watermark or, before the first watermark, after the newest event.
    """
    pages = session.pages if session else 0
    now = max(times) if watermark is None else watermark
    return TimedSession(pages + len(times), now + gap)


def is_over(session: TimedSession, watermark: int | None) -> bool:
    """Return whether the watermark has reached the session's timer."""
    return watermark is not None and watermark >= session.deadline


def _is_finished(session: Session, watermark: int | None, gap: int) -> bool:
    # A later event is after the watermark, so more than the gap after this session.
    return watermark is not None and watermark >= session.end + gap


def _join(parts: Iterable[Session], gap: int) -> tuple[Session, ...]:
    """Return sorted sessions; those at most `gap` apart are joined."""
    joined: list[Session] = []
    for part in sorted(parts):
        if joined and part.start - joined[-1].end <= gap:
            last = joined[-1]
            joined[-1] = Session(last.start, max(last.end, part.end), last.pages + part.pages)
        else:
            joined.append(part)
    return tuple(joined)


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
            session = extend(before, [row.at for row in rows], _watermark(timerValues), gap)
            self._state.update((session.pages, session.deadline))
            if before is not None and session.deadline < before.deadline:
                self._handle.deleteTimer(_timer(before.deadline))
            if before is None or session.deadline < before.deadline:
                self._handle.registerTimer(_timer(session.deadline))
            yield result(key[0], session.pages, False)

        def handleExpiredTimer(self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any) -> "Iterator[Row]":
            session = self._read()
            if session is not None and is_over(session, _watermark(timerValues)):
                self._state.clear()
                yield result(key[0], session.pages, True)
            elif session is not None:
                self._handle.registerTimer(_timer(session.deadline))

        def _read(self) -> TimedSession | None:
            stored = self._state.get()
            return TimedSession(*stored) if stored else None

        def close(self) -> None:
            pass

    return TimerProcessor()


def _watermark(timer_values: "TimerValues") -> int | None:
    return timer_values.getCurrentWatermarkInMs() * 1000 or None


def _timer(watermark: int) -> int:
    """Return the timer, in milliseconds, that fires as soon as the watermark reaches `watermark`."""
    return -(-watermark // 1000)
