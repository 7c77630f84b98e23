"""How the results of a pipeline relate to event time: what a span of them needs, and where it can be cut.

A pipeline declares it. Windows and sessions are a function of the events alone, so they can be computed again from an
archive; results that depend on the order or the batches in which events arrived cannot.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from respool.errors import PipelineError
from respool.identity import Identity
from respool.times import EPOCH, Span, duration_text, parse_duration


@dataclass(frozen=True)
class Windows:
    """Every result belongs to one window of event time.

    Attributes:
        width: How long a window is, such as `10 minutes`.
        slide: The time from window to window, when they overlap; None for windows that follow each other.
        offset: When the first window begins, counted from 1970-01-01T00:00Z.
        column: The column of the window, a struct of start and end as Spark's `window` makes it.

    >>> respool.Windows("10m").identity() == respool.Windows("10 minutes").identity()
    True
    """

    width: str
    slide: str | None = None
    offset: str = "0s"
    column: str = "window"

    def __post_init__(self) -> None:
        """Refuse invalid windows."""
        if not self.width_time or not self.slide_time or self.slide_time > self.width_time:
            raise PipelineError(
                f"Invalid windows: the slide ({self.slide or self.width}) must be positive and at most the width "
                f"({self.width})."
            )

    @property
    def width_time(self) -> timedelta:
        """How long a window is."""
        return parse_duration(self.width)

    @property
    def slide_time(self) -> timedelta:
        """The time from window to window."""
        return parse_duration(self.slide or self.width)

    @property
    def offset_time(self) -> timedelta:
        """When the first window begins, counted from 1970-01-01T00:00Z."""
        return parse_duration(self.offset)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"windows of {self.width}" + (f" every {self.slide}" if self.slide else "")

    def identity(self) -> Identity:
        """Return the identity of these windows."""
        fields = {"width": self.width_time, "slide": self.slide_time, "offset": self.offset_time % self.slide_time}
        return Identity("windows", fields)

    def starts(self, asked: Span) -> Span:
        """Return the span of the starts of all windows that touch the asked one."""
        first = self._at_or_before(asked.start - self.width_time) + self.slide_time
        last = self._at_or_before(asked.end - timedelta(microseconds=1))
        return Span(first, last + self.slide_time)

    def events(self, starts: Span) -> Span:
        """Return the span of the events of the windows with these starts."""
        return Span(starts.start, starts.end - self.slide_time + self.width_time)

    def slices(self, starts: Span, length: timedelta) -> list[Span]:
        """Return spans of starts, one after the other, of about this length: a whole number of windows each."""
        return _cut(starts, max(length // self.slide_time, 1) * self.slide_time)

    def closed_by(self, starts: Span) -> datetime:
        """Return the watermark at which the windows with these starts are all closed."""
        return self.events(starts).end

    def _at_or_before(self, time: datetime) -> datetime:
        origin = EPOCH + self.offset_time
        return origin + (time - origin) // self.slide_time * self.slide_time


@dataclass(frozen=True)
class Sessions:
    """Every result belongs to one session: events of the same key, each at most a gap after the event before.

    Attributes:
        gap: The longest time between two neighbours of a session, such as `10 minutes`.
        key: The columns of events and results that identify whose session it is.
        start: The column of the result with the time of the session's first event.
        end: The column of the result with the time of its last event.

    >>> respool.Sessions("10 minutes", key=("visit_id",)).gap
    '10 minutes'
    """

    gap: str
    key: tuple[str, ...]
    start: str = "session_start"
    end: str = "session_end"

    def __post_init__(self) -> None:
        """Refuse invalid sessions."""
        if not self.gap_time or not self.key:
            raise PipelineError("Sessions need a gap longer than 0 and a key. Give both.")

    @property
    def gap_time(self) -> timedelta:
        """The longest time between two neighbours of a session."""
        return parse_duration(self.gap)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"sessions with a gap of {self.gap}"

    def identity(self) -> Identity:
        """Return the identity of these sessions."""
        return Identity("sessions", {"gap": self.gap_time, "key": self.key})

    def slices(self, asked: Span, length: timedelta) -> list[Span]:
        """Return spans, one after the other, of this length, or of the gap where that is longer."""
        return _cut(asked, max(length, self.gap_time))

    def closed_by(self, asked: Span) -> datetime:
        """Return the watermark at which no event can join a session of the span any more."""
        return asked.end + self.gap_time


@dataclass(frozen=True)
class Events:
    """Every result has the time of an event, and depends only on the events near that time.

    That holds for a stateless transform, whose results are those of single events, and for a join of events within an
    interval.

    Attributes:
        column: The column of the result with the time of its event.
        reach: How long before and after that time other events matter to the result, such as the interval of a join.

    >>> respool.Events("ordered_at").describe()
    'results of single events'
    >>> respool.Events("ordered_at", reach="1 hour").describe()
    'results of events within 1 hour'
    """

    column: str
    reach: str = "0s"

    def __post_init__(self) -> None:
        """Refuse results without a column."""
        if not self.column or not isinstance(self.column, str):
            raise PipelineError(f"column of Events is {self.column!r}; expected the column with the time of a result.")
        self.reach_time  # noqa: B018  (raises for what is not a duration)

    @property
    def reach_time(self) -> timedelta:
        """How long before and after the time of a result other events matter."""
        return parse_duration(self.reach)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"results of events within {self.reach}" if self.reach_time else "results of single events"

    def identity(self) -> Identity:
        """Return the identity of these results."""
        return Identity("events", {"column": self.column, "reach": self.reach_time})

    def events(self, asked: Span) -> Span:
        """Return the span of the events that results of these times depend on."""
        return Span(asked.start - self.reach_time, asked.end + self.reach_time)

    def slices(self, asked: Span, length: timedelta) -> list[Span]:
        """Return spans of times of results, one after the other, of this length."""
        return _cut(asked, max(length, timedelta(microseconds=1)))

    def closed_by(self, asked: Span) -> datetime:
        """Return the watermark at which no event can change a result of the span any more."""
        return asked.end + self.reach_time


@dataclass(frozen=True)
class ArrivalDependent:
    """Results that depend on the arrival of events, and cannot be computed again.

    Attributes:
        why: The reason, as a sentence.

    >>> respool.ArrivalDependent("Each batch is ranked on its own.").describe()
    'results that depend on arrival'
    """

    why: str

    def describe(self) -> str:
        """Return a few words for messages."""
        return "results that depend on arrival"

    def identity(self) -> Identity:
        """Return the identity of these results: only their kind is known."""
        return Identity("arrival", {})


Recomputable = Windows | Sessions | Events
Results = Recomputable | ArrivalDependent


def text_of(identity: Identity) -> str:
    """Return an identity of results as text, with its durations in canonical form."""
    match identity.kind:
        case "windows":
            width, slide = identity.fields.get("width"), identity.fields.get("slide")
            return f"windows of {width}" + (f" every {slide}" if slide != width else "")
        case "sessions":
            return f"sessions with a gap of {identity.fields.get('gap')}"
        case "events":
            reach = identity.fields.get("reach")
            is_single = reach in (None, duration_text(timedelta(0)))
            return "results of single events" if is_single else f"results of events within {reach}"
        case "arrival":
            return "results that depend on arrival"
        case _:
            return str(identity.fields.get("text", identity.kind))


def _cut(span: Span, length: timedelta) -> list[Span]:
    cuts = [span.start]
    while cuts[-1] < span.end:
        cuts.append(min(cuts[-1] + length, span.end))
    return [Span(start, end) for start, end in pairwise(cuts)]
