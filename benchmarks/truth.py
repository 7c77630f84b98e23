"""The expected windows and sessions, computed while the events are generated, and the comparison of results with them.

All times are whole minutes after the first event.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache

from respool.sessions.rules import sessions_of
from respool.visits.generator import VisitsPlan

WINDOW = 10
GAP = 10
FIRST = VisitsPlan().start


@dataclass(frozen=True)
class Session:
    """A session of a visit, by its first and last minute."""

    visit: str
    start: int
    end: int
    pages: int


@dataclass(frozen=True, slots=True)
class SessionResult:
    """A result that an engine published for a session; without pages it deletes the earlier result of its key."""

    visit: str
    start: int
    end: int | None
    pages: int | None
    is_finished: bool = False


@dataclass(frozen=True)
class Truth:
    """The expected results.

    Attributes:
        events: The number of events.
        value_bytes: The total size of their values.
        newest: The newest event time.
        windows: The number of events by the window's start.
        hours: The number of events by the hour's start.
        sessions: By visit and start, the end and the pages.
    """

    events: int
    value_bytes: int
    newest: int
    windows: Mapping[int, int]
    hours: Mapping[int, int]
    sessions: Mapping[tuple[str, int], tuple[int, int]]


@dataclass
class Notes:
    """Accumulates the expected results, event by event."""

    events: int = 0
    value_bytes: int = 0
    minutes: Counter[int] = field(default_factory=Counter)
    visits: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, visit: bytes, value: bytes) -> None:
        """Add an event in the format of the generator."""
        minute = minute_of(value.split(b'"', 12)[11].decode())
        self.events += 1
        self.value_bytes += len(value)
        self.minutes[minute] += 1
        self.visits[visit].append(minute)

    def truth(self) -> Truth:
        """Return the expected results of the events so far."""
        windows: Counter[int] = Counter()
        hours: Counter[int] = Counter()
        for minute, count in self.minutes.items():
            windows[minute // WINDOW * WINDOW] += count
            hours[minute // 60 * 60] += count
        sessions = {
            (visit.decode(), session.start): (session.end, session.pages)
            for visit, minutes in self.visits.items()
            for session in sessions_of(minutes, GAP)
        }
        return Truth(self.events, self.value_bytes, max(self.minutes, default=0), windows, hours, sessions)


@lru_cache(maxsize=100_000)
def minute_of(text: str) -> int:
    """Return the minute of a time in ISO 8601; a time without a zone is in UTC."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "T"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    minutes = (moment - FIRST).total_seconds() / 60
    if minutes != int(minutes):
        raise ValueError(f"{text} is not a whole minute")
    return int(minutes)


def wrong_windows(truth: Truth, published: Iterable[tuple[int, int]], delay: int | None) -> str | None:
    """Return what is wrong with the counts that an engine published, or None if all are right.

    Args:
        truth: The expected results.
        published: Starts of windows and their counts, in order; the last count of a window is valid.
        delay: How many minutes the watermark is behind, for an engine that publishes a window when the watermark has
            passed it; None for an engine that publishes every window.
    """
    last = dict(published)
    for start, count in last.items():
        if truth.windows.get(start) != count:
            return f"the window from minute {start} has the count {count:,}, expected {truth.windows.get(start, 0):,}"
    due = {start for start in truth.windows if delay is None or start + WINDOW <= truth.newest - delay}
    missing = due - last.keys()
    return f"{len(missing)} of {len(due)} windows are missing" if missing else None


def wrong_sessions(truth: Truth, published: Iterable[SessionResult], *, early: bool, delay: int | None) -> str | None:
    """Return what is wrong with the sessions that an engine published, or None if all are right.

    Args:
        truth: The expected results.
        published: The results, in order; for each visit and start the last result is valid.
        early: It publishes open sessions, so that all sessions must be published at the end.
        delay: How many minutes the watermark is behind, for an engine that publishes a final result when the watermark
            has passed a session; None for an engine that does not.
    """
    last: dict[tuple[str, int], SessionResult] = {}
    for result in published:
        before = last.get((result.visit, result.start))
        if before is not None and before.is_finished and not result.is_finished:
            return f"the session of {result.visit} from minute {result.start} continued after it was finished"
        if result.pages is None:
            last.pop((result.visit, result.start), None)
        else:
            last[result.visit, result.start] = result
    for key, result in last.items():
        actual = (result.end, result.pages)
        if truth.sessions.get(key) != actual:
            expected = truth.sessions.get(key, "no session")
            return f"the session of {result.visit} from minute {result.start} is {actual}, expected {expected}"
    return _missing(truth, last, early, delay)


def _missing(truth: Truth, last: Mapping[tuple[str, int], SessionResult], early: bool, delay: int | None) -> str | None:
    closed = {
        key for key, (end, _) in truth.sessions.items() if delay is not None and end + GAP <= truth.newest - delay
    }
    unfinished = sum(1 for key in closed if key not in last or not last[key].is_finished)
    if unfinished:
        return f"{unfinished:,} of {len(closed):,} closed sessions are not published as finished"
    missing = len(truth.sessions.keys() - last.keys()) if early else 0
    return f"{missing:,} of {len(truth.sessions):,} sessions are missing" if missing else None
