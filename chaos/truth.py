"""The expected results, computed from the produced events alone, and the differences of published results from them.

No code of respool is used here: an error in its rules for windows and sessions must not hide itself.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from chaos.events import Event

WINDOW = 600_000_000  # microseconds
GAP = 600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SHOWN = 5  # differences that are described; the others are counted


@dataclass(frozen=True)
class Truth:
    """The expected results.

    Attributes:
        windows: The number of events by the window's start.
        sessions: The end and the number of events by visit and start.
    """

    windows: Mapping[int, int]
    sessions: Mapping[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True)
class Published:
    """A result record in the order of its partition.

    Attributes:
        key: Its key.
        value: Its value; None for a tombstone.
        partition: Its partition.
        offset: Its offset.
    """

    key: bytes
    value: bytes | None
    partition: int
    offset: int


@dataclass(frozen=True)
class Result:
    """A result of a session or window after the upsert by key.

    Attributes:
        end: The end of the session; for a window, its start.
        count: The number of events.
        is_finished: False for an early result of a session.
        record: The record that contains it.
    """

    end: int
    count: int
    is_finished: bool
    record: Published


def truth_of(events: Iterable[Event]) -> Truth:
    """Return the windows and sessions of events; records that do not decode belong to none."""
    windows: Counter[int] = Counter()
    visits: defaultdict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.time is not None:
            windows[event.time // WINDOW * WINDOW] += 1
            visits[event.visit].append(event.time)
    sessions: dict[tuple[str, int], tuple[int, int]] = {}
    for visit, times in visits.items():
        times.sort()
        start = end = times[0]
        pages = 0
        for time in times:
            if time - end > GAP:
                sessions[visit, start] = (end, pages)
                start, pages = time, 0
            end = time
            pages += 1
        sessions[visit, start] = (end, pages)
    return Truth(windows, sessions)


def upsert(records: Iterable[Published]) -> dict[bytes, Published]:
    """Return the newest record of every key; a tombstone removes its key."""
    newest: dict[bytes, Published] = {}
    for record in records:
        if record.value is None:
            newest.pop(record.key, None)
        else:
            newest[record.key] = record
    return newest


def windows_of(newest: Mapping[bytes, Published]) -> dict[int, Result]:
    """Return the published windows by their start."""
    results = {}
    for record in newest.values():
        value = json.loads(record.value or b"{}")
        start = microseconds(value["window"]["start"])
        results[start] = Result(start, value["count"], True, record)
    return results


def sessions_of(newest: Mapping[bytes, Published]) -> dict[tuple[str, int], Result]:
    """Return the published sessions by visit and start."""
    results = {}
    for record in newest.values():
        value = json.loads(record.value or b"{}")
        key = value["visit_id"], microseconds(value["session_start"])
        end = microseconds(value["session_end"])
        results[key] = Result(end, value["visited_pages"], value["is_finished"], record)
    return results


def wrong_windows(truth: Truth, published: Mapping[int, Result], closing: int, complete: bool = True) -> list[str]:
    """Return the differences between published and expected windows.

    Args:
        truth: The expected results.
        published: The published results.
        closing: The start of the window of the closing events, which stays open.
        complete: Every window must be published; otherwise the published windows must be right.
    """
    wrong = [
        f"window {time_text(start)}: published {result.count:,} events, expected {truth.windows.get(start, 0):,}"
        for start, result in published.items()
        if truth.windows.get(start) != result.count
    ]
    if complete:
        due = {start for start in truth.windows if start != closing}
        wrong += [f"window {time_text(start)}: not published" for start in sorted(due - published.keys())]
    return shortened(wrong)


def wrong_sessions(
    truth: Truth, published: Mapping[tuple[str, int], Result], complete: bool = True
) -> tuple[list[str], list[tuple[tuple[str, int], Result]]]:
    """Return the differences between published and expected sessions, and the early results that were not withdrawn.

    An early result that belongs to no expected session may remain from batches that a rewind or a restore undid: the
    caller decides that.

    Args:
        truth: The expected results.
        published: The published results.
        complete: Every session must be published and finished; otherwise the finished sessions must be right.
    """
    wrong: list[str] = []
    stale: list[tuple[tuple[str, int], Result]] = []
    for key, result in published.items():
        expected = truth.sessions.get(key)
        name = f"session {key[0]} from {time_text(key[1])}"
        if not result.is_finished and (not complete or key[0].startswith("closing-")):
            continue
        if expected is None and not result.is_finished:
            stale.append((key, result))
        elif expected is None:
            wrong.append(f"{name}: published as finished, but there is no such session")
        elif (result.end, result.count) != expected:
            wrong.append(
                f"{name}: published until {time_text(result.end)} with {result.count:,} events, expected until "
                f"{time_text(expected[0])} with {expected[1]:,}"
            )
        elif not result.is_finished:
            wrong.append(f"{name}: published as open, expected as finished")
    if complete:
        missing = sorted(truth.sessions.keys() - published.keys())
        wrong += [f"session {visit} from {time_text(start)}: not published" for visit, start in missing]
    return shortened(wrong), stale


def shortened(wrong: list[str]) -> list[str]:
    """Return the first differences, and how many more there are."""
    rest = len(wrong) - _SHOWN
    return wrong if rest <= 0 else [*wrong[:_SHOWN], f"… and {rest:,} more"]


def microseconds(text: str) -> int:
    """Return a time in ISO 8601 as microseconds since 1970; a time without a zone is in UTC."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return (time - _EPOCH) // timedelta(microseconds=1)


def time_text(time: int) -> str:
    """Return microseconds since 1970 as a time in ISO 8601."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
