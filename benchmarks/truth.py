"""What is right: the windows and sessions of the events, computed while they are made, and results held against them.

All times are minutes after the first event; the generator gives whole ones.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache

from respool.visits.generator import VisitsPlan
from respool.visits.session_rules import sessions_of

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
class Told:
    """A result of an engine about a session; without pages it takes back what was told under its key."""

    visit: str
    start: int
    end: int | None
    pages: int | None
    is_finished: bool = False


@dataclass(frozen=True)
class Truth:
    """What is right.

    Attributes:
        events: How many there are.
        value_bytes: The bytes of their values.
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
    """Takes note of events, one after the other."""

    events: int = 0
    value_bytes: int = 0
    minutes: Counter[int] = field(default_factory=Counter)
    visits: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, visit: bytes, value: bytes) -> None:
        """Take note of an event as the generator writes it."""
        minute = minute_of(value.split(b'"', 12)[11].decode())
        self.events += 1
        self.value_bytes += len(value)
        self.minutes[minute] += 1
        self.visits[visit].append(minute)

    def truth(self) -> Truth:
        """Return what is right of the events so far."""
        windows: Counter[int] = Counter()
        hours: Counter[int] = Counter()
        for minute, count in self.minutes.items():
            windows[minute // WINDOW * WINDOW] += count
            hours[minute // 60 * 60] += count
        sessions = {
            (visit.decode(), one.start): (one.end, one.pages)
            for visit, minutes in self.visits.items()
            for one in sessions_of(minutes, GAP)
        }
        return Truth(self.events, self.value_bytes, max(self.minutes, default=0), windows, hours, sessions)


@lru_cache(maxsize=100_000)
def minute_of(text: str) -> int:
    """Return the minute of a time in ISO 8601; one without a zone is in UTC."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "T"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    minutes = (moment - FIRST).total_seconds() / 60
    if minutes != int(minutes):
        raise ValueError(f"{text} is no whole minute")
    return int(minutes)


def wrong_windows(truth: Truth, told: Iterable[tuple[int, int]], delay: int | None) -> str | None:
    """Return what is wrong with the counts that an engine told, in their order; None when all is right.

    Args:
        truth: What is right.
        told: Starts of windows and their counts; the last count of a window holds.
        delay: How many minutes the watermark stays behind, for an engine that tells a window when it is over; None for
            one that tells every window.
    """
    last = dict(told)
    for start, count in last.items():
        if truth.windows.get(start) != count:
            return f"the window from minute {start} has {count:,}, and {truth.windows.get(start, 0):,} events are in it"
    due = {start for start in truth.windows if delay is None or start + WINDOW <= truth.newest - delay}
    missing = due - last.keys()
    return f"{len(missing)} of {len(due)} windows are missing" if missing else None


def wrong_sessions(truth: Truth, told: Iterable[Told], *, early: bool, delay: int | None) -> str | None:
    """Return what is wrong with the sessions that an engine told, in their order; None when all is right.

    Args:
        truth: What is right.
        told: The results; for each visit and start the last one holds.
        early: It tells of sessions that go on, so that all must be known at the end.
        delay: How many minutes the watermark stays behind, for an engine that says so when a session is over; None for
            one that does not.
    """
    last: dict[tuple[str, int], Told] = {}
    for one in told:
        before = last.get((one.visit, one.start))
        if before is not None and before.is_finished and not one.is_finished:
            return f"the session of {one.visit} from minute {one.start} went on after it was finished"
        if one.pages is None:
            last.pop((one.visit, one.start), None)
        else:
            last[one.visit, one.start] = one
    for key, one in last.items():
        if truth.sessions.get(key) != (one.end, one.pages):
            right = truth.sessions.get(key, "no session")
            return (
                f"the session of {one.visit} from minute {one.start} is {(one.end, one.pages)}, and should be {right}"
            )
    return _missing(truth, last, early, delay)


def _missing(truth: Truth, last: Mapping[tuple[str, int], Told], early: bool, delay: int | None) -> str | None:
    over = {key for key, (end, _) in truth.sessions.items() if delay is not None and end + GAP <= truth.newest - delay}
    open_ones = sum(1 for key in over if key not in last or not last[key].is_finished)
    if open_ones:
        return f"{open_ones:,} of {len(over):,} sessions that are over are not told as finished"
    unknown = len(truth.sessions.keys() - last.keys()) if early else 0
    return f"{unknown:,} of {len(truth.sessions):,} sessions are missing" if unknown else None
