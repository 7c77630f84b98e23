"""The visits of a run: an endless sequence that depends on the seed alone.

Event time follows a simulated clock that advances by the same step with every event, so an outage of the broker delays
events but never reorders them. An event is at most `DISORDER` older than the clock. That is far less than the watermark
delays of the pipelines: no record is ever late, and the expected results are exact.
"""

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count

START = datetime(2024, 1, 1, 1, tzinfo=timezone.utc)
DISORDER = timedelta(minutes=2)
CLOSING = timedelta(hours=3)  # how far the last events are ahead of all others, so that every window and session closes
_VISITS = 120  # visits in progress at the same time
_PAGES = ("main", "home", "index", "about", "contact", "categories")
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Event:
    """A record to produce.

    Attributes:
        number: Its position in the sequence.
        visit: The visit, which is the record's key.
        time: Its event time, in microseconds since 1970; None for a record that does not decode.
        value: The record's bytes.
    """

    number: int
    visit: str
    time: int | None
    value: bytes


@dataclass(order=True)
class _Visit:
    name: str
    pages_left: int


def events(seed: int, step: timedelta, malformed: float = 0.004) -> Iterator[Event]:
    """Yield the events of a run, without end.

    Args:
        seed: Another seed gives other visits.
        step: How far the clock advances with every event.
        malformed: The fraction of records that do not decode.
    """
    chance = random.Random(f"visits {seed}")
    started = 0
    active: list[_Visit] = []
    resting: list[tuple[int, _Visit]] = []  # each with the position from which it is active again
    rest = int(timedelta(minutes=14) / step)
    for number in count():
        while resting and resting[0][0] <= number:
            active.append(heapq.heappop(resting)[1])
        while len(active) < _VISITS:
            active.append(_Visit(f"visit-{seed}-{started}", chance.randint(3, 30)))
            started += 1
        visit = active[chance.randrange(len(active))]
        time = _whole_milliseconds(START + number * step - _disorder(chance))
        page = chance.choice(_PAGES)
        if chance.random() < malformed:
            yield Event(number, visit.name, None, _malformed(number, chance))
            continue
        yield Event(number, visit.name, (time - _EPOCH) // _MICROSECOND, _value(number, visit.name, time, page))
        visit.pages_left -= 1
        rests = chance.random() < 0.03  # a visit that pauses for longer than the gap has a second session
        if rests or visit.pages_left == 0:
            active.remove(visit)
        if rests and visit.pages_left > 0:
            heapq.heappush(resting, (number + rest + chance.randrange(rest), visit))


def closing_events(number: int, step: timedelta) -> list[Event]:
    """Return the last events of a run, which let the watermark pass all others; `number` is the first free position."""
    time = _whole_milliseconds(START + number * step + CLOSING)
    names = [f"closing-{key}" for key in range(8)]  # several keys, so that every partition has at least a single event
    return [
        Event(number + at, name, (time - _EPOCH) // _MICROSECOND, _value(number + at, name, time, "end"))
        for at, name in enumerate(names)
    ]


def _disorder(chance: random.Random) -> timedelta:
    """Return how far an event is behind the clock: usually a little, sometimes up to the limit."""
    return DISORDER * (chance.random() if chance.random() < 0.1 else chance.random() * 0.05)


def _whole_milliseconds(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _value(number: int, visit: str, time: datetime, page: str) -> bytes:
    facts = {
        "event_id": f"event-{number}",
        "visit_id": visit,
        "event_time": time.replace(tzinfo=None).isoformat(timespec="microseconds"),
        "page": page,
    }
    return json.dumps(facts).encode()


def _malformed(number: int, chance: random.Random) -> bytes:
    kinds = (
        f'{{"event_id": "event-{number}", "visit_id": ',
        f'{{"event_id": "event-{number}", "event_time": "2024-01-01T00:00:00"}}',
        f'{{"event_id": "event-{number}", "visit_id": "x", "event_time": "not a time"}}',
    )
    return chance.choice(kinds).encode()
