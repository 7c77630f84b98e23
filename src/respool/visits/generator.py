"""Generate visits to a web site: the same plan always gives the same bytes.

Several visits are active at the same time. In each round every visit opens a page, some minutes after the previous one;
a visit that has opened all its pages ends, and another visit replaces it. An event looks like this:

  {"event_id": "click-17", "visit_id": "140444734049152_4", "event_time": "2024-01-01T01:02:00.000000", "page": "main"}

Lateness, duplicates and malformed records change how the events arrive, not which events exist: the set of good
events depends on the seed, the count, the visits, the pages and the start alone.
"""

import heapq
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count

from respool.errors import SettingsError
from respool.kafka.producer import Message

# A round advances the clock by 5 minutes, and each visit has its page within them. So undisturbed events are at most 4
# minutes out of order, and the pages of a visit less than 10 minutes apart: no watermark or session gap of the visits
# pipelines separates them.
_ROUND = 5
_KINDS = ("main", "home", "index", "about", "contact", "categories")
_NUMBERS = range(1, 21)
_PAGES = tuple(
    page.encode()
    for number in _NUMBERS
    for page in (*_KINDS, f"category_{number}", f"page_{number}")  # each kind equally often
)
_DUPLICATE_DISTANCE = 100


@dataclass(frozen=True)
class VisitsPlan:
    """The visits to generate.

    Attributes:
        count: The number of good events; None for no end.
        visits: The number of visits that are active at the same time.
        pages_per_visit: The average number of pages of a visit; a visit has from half to one and a half times as many.
        start: The event time of the first round, aware. Event times are written in its zone, without naming it.
        seed: The seed; another seed gives other visits.
        late: The fraction of the events that are held back while the stream continues.
        lateness: The longest that an event is held back, in event time.
        duplicates: The fraction of the events that are sent a second time, byte for byte.
        malformed: The number of added records that cannot be decoded, as a fraction of the events.
    """

    count: int | None = None
    visits: int = 10
    pages_per_visit: int = 10
    start: datetime = datetime(2024, 1, 1, 1, tzinfo=timezone.utc)
    seed: int = 0
    late: float = 0.0
    lateness: timedelta = timedelta(minutes=30)
    duplicates: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        """Raise SettingsError when a value is invalid."""
        if self.count is not None and self.count < 0:
            raise SettingsError(f"count is {self.count}; expected 0 or more, or none for no end.")
        for name in ("visits", "pages_per_visit"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}; expected 1 or more.")
        for name in ("late", "duplicates", "malformed"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} is {getattr(self, name)}; expected a fraction from 0 to 1.")
        if self.lateness < timedelta(0):
            raise SettingsError(f"lateness is {self.lateness}; expected a duration of 0 or more.")
        if self.start.tzinfo is None:
            raise SettingsError(f"start is {self.start}, without a time zone. Add one, such as timezone.utc.")


def generate(plan: VisitsPlan) -> Iterator[Message]:
    """Yield the records of `plan` in the order in which they arrive."""
    events = _events(plan)
    messages = _held_back(events, plan) if plan.late else (message for _, message in events)
    if plan.duplicates:
        messages = _repeated(messages, plan)
    if plan.malformed:
        messages = _with_malformed(messages, plan)
    return messages


def _random(plan: VisitsPlan, purpose: str) -> random.Random:
    """Return a separate generator for each purpose, so that no option changes what another option draws."""
    return random.Random(f"{purpose} {plan.seed}")


def _events(plan: VisitsPlan) -> Iterator[tuple[int, Message]]:
    """Yield the good events, each with its event time in minutes after the start."""
    chance = _random(plan, "visits")
    draw = chance.random
    number = chance.randrange(10**14, 10**15)
    fewest = plan.pages_per_visit - plan.pages_per_visit // 2
    spread = 2 * (plan.pages_per_visit // 2) + 1
    visits = [b""] * plan.visits
    pages_left = [0] * plan.visits
    clicks = count() if plan.count is None else iter(range(plan.count))
    started = 0
    for round_number in count():
        times = _times(plan.start, round_number)
        choices = len(times)
        # The slots are first: zip then stops at the end of a round without consuming a click that it cannot use.
        for slot, click in zip(range(plan.visits), clicks, strict=False):
            if not pages_left[slot]:
                visits[slot] = b"%d_%d" % (number, started)
                pages_left[slot] = fewest + int(draw() * spread)
                started += 1
            pages_left[slot] -= 1
            visit = visits[slot]
            minute, time = times[int(draw() * choices)]
            page = _PAGES[int(draw() * len(_PAGES))]
            value = b'{"event_id": "click-%d", "visit_id": "%b", "event_time": "%b", "page": "%b"}'
            yield minute, Message(visit, value % (click, visit, time, page))
        if plan.count is not None and (round_number + 1) * plan.visits >= plan.count:
            return


def _times(start: datetime, round_number: int) -> list[tuple[int, bytes]]:
    """Return the event times of a round: minutes after the start, and how they are written."""
    last = round_number * _ROUND
    minutes = range(last - _ROUND + 1, last + 1) if round_number else range(1)
    try:
        moments = [_wall_clock(start, minute) for minute in minutes]
    except OverflowError as error:
        raise SettingsError(
            f"Event times from {start.isoformat()} on ran past the year 9999. Start earlier, or with fewer events."
        ) from error
    texts = [moment.isoformat(timespec="microseconds").encode() for moment in moments]
    return list(zip(minutes, texts, strict=True))


def _wall_clock(start: datetime, minutes: int) -> datetime:
    """Return the local time in the zone of `start` so many minutes later, without the zone."""
    moment = start.astimezone(timezone.utc) + timedelta(minutes=minutes)
    return moment.astimezone(start.tzinfo).replace(tzinfo=None)


def _held_back(events: Iterable[tuple[int, Message]], plan: VisitsPlan) -> Iterator[Message]:
    """Yield all events, some of them after event time has advanced by a delay."""
    draw = _random(plan, "late").random
    longest = plan.lateness / timedelta(minutes=1)
    held: list[tuple[float, int, Message]] = []
    newest = 0
    for position, (minute, message) in enumerate(events):
        newest = max(newest, minute)
        if draw() < plan.late:
            heapq.heappush(held, (minute + longest * draw(), position, message))
        else:
            yield message
        while held and held[0][0] <= newest:
            yield heapq.heappop(held)[2]
    yield from (message for _, _, message in sorted(held))


def _repeated(messages: Iterable[Message], plan: VisitsPlan) -> Iterator[Message]:
    """Yield all messages, some of them a second time later."""
    chance = _random(plan, "duplicates")
    waiting: list[tuple[int, int, Message]] = []
    for position, message in enumerate(messages):
        yield message
        while waiting and waiting[0][0] <= position:
            yield heapq.heappop(waiting)[2]
        if chance.random() < plan.duplicates:
            due = position + chance.randint(1, _DUPLICATE_DISTANCE)
            heapq.heappush(waiting, (due, position, message))
    yield from (message for _, _, message in sorted(waiting))


def _with_malformed(messages: Iterable[Message], plan: VisitsPlan) -> Iterator[Message]:
    """Yield all messages, with records between them that cannot be decoded, each kind in turn."""
    draw = _random(plan, "malformed").random
    added = 0
    for message in messages:
        yield message
        if draw() < plan.malformed:
            yield _malformed(message, added)
            added += 1


def _malformed(good: Message, number: int) -> Message:
    """Return a record that looks like `good` but cannot be decoded; the number chooses what is wrong with it."""
    fields = json.loads(good.value or b"{}") | {"event_id": f"malformed-{number}"}
    whole = json.dumps(fields).encode()
    kinds: tuple[bytes | None, ...] = (
        b"this is not JSON",
        whole[: len(whole) // 2],
        json.dumps(list(fields.values())).encode(),
        json.dumps({name: value for name, value in fields.items() if name != "event_time"}).encode(),
        json.dumps(fields | {"event_time": "half past nine"}).encode(),
        json.dumps(fields | {"event_time": {"hour": 9}, "page": 7}).encode(),
        None,
        b"\xff\xfe" + whole,
    )
    return Message(good.key, kinds[number % len(kinds)])
