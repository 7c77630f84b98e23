"""Parse and format times and durations.

All returned times are aware; text that cannot be parsed raises a SettingsError that shows the expected format.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo

from respool.errors import SettingsError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_UNITS = {
    timedelta(milliseconds=1): ("ms", "millisecond", "milliseconds"),
    timedelta(seconds=1): ("s", "sec", "second", "seconds"),
    timedelta(minutes=1): ("m", "min", "minute", "minutes"),
    timedelta(hours=1): ("h", "hour", "hours"),
    timedelta(days=1): ("d", "day", "days"),
}
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names}


@dataclass(frozen=True)
class Span:
    """A half-open range of event time: from `start` on, and before `end`, both aware."""

    start: datetime
    end: datetime

    def text(self, zone: tzinfo) -> str:
        """Return the span as text, in a zone."""
        start, end = self.start.astimezone(zone), self.end.astimezone(zone)
        return f"{time_text(start)} – {time_text(end)}"


def parse_duration(text: str) -> timedelta:
    """Return the duration in `text`, such as 500ms, 20s, 10m, 2h, 1d or '15 minutes'.

    Raises:
        SettingsError: The text is not a number followed by a unit.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    unit = _UNIT_OF.get(match[2]) if match else None
    if not match or unit is None:
        raise SettingsError(
            f"'{text}' is not a duration; expected a number and a unit (ms, s, m, h, d). "
            "Write for example 20s, 10m, 2h or '15 minutes'."
        )
    try:
        return float(match[1]) * unit
    except OverflowError as error:
        raise SettingsError(f"'{text}' is too long. Write a duration of at most some thousand years.") from error


def duration_text(duration: timedelta) -> str:
    """Return the canonical form of a duration, in its largest whole unit: `10 minutes` for 10m and 600 s."""
    for unit in sorted(_UNITS, reverse=True):
        if duration >= unit and not duration % unit:
            count = duration // unit
            return f"{count} {_UNITS[unit][-2 if count == 1 else -1]}"
    whole, rest = divmod(duration // timedelta(microseconds=1), 1000)
    return f"{whole}.{rest:03}".rstrip("0") + " milliseconds" if duration else "0 seconds"


def spark_interval(text: str) -> str:
    """Return a positive duration in Spark's syntax: Spark parses '10 minutes', but not 10m.

    Raises:
        SettingsError: The text is not a duration, or the duration is zero.
    """
    microseconds = parse_duration(text) // timedelta(microseconds=1)
    if not microseconds:
        raise SettingsError(f"'{text}' is an empty duration; expected a duration above zero, such as 10m.")
    return f"{microseconds} microseconds"


def parse_time(text: str, zone: tzinfo) -> datetime:
    """Return the time in `text`, in ISO 8601, converted to `zone`.

    Args:
        text: A date, or a date and a time, with an offset or without.
        zone: The zone of a time without an offset, and of the returned time.

    Raises:
        SettingsError: The text is not an ISO 8601 time, or names no offset and is skipped or ambiguous in the zone.
    """
    written = text.strip()
    try:
        # Python 3.10 parses +00:00 but not Z.
        time = datetime.fromisoformat(written[:-1] + "+00:00" if written[-1:] in ("Z", "z") else written)
        if time.tzinfo is not None:
            return time.astimezone(zone)
        local = time.replace(tzinfo=zone)
        first, second = (local.replace(fold=fold).astimezone(timezone.utc).astimezone(zone) for fold in (0, 1))
    except OverflowError as error:
        raise SettingsError(
            f"'{text}' is outside the years 1 to 9999 in UTC. Write a later or an earlier time."
        ) from error
    except ValueError as error:
        raise SettingsError(
            f"'{text}' is not a time; expected ISO 8601. Write for example 2024-01-01T01:00:00 or 2024-01-01T01:00:00Z."
        ) from error
    if first.utcoffset() == second.utcoffset():
        return local
    name = getattr(zone, "key", str(zone))
    if first.replace(tzinfo=None) == second.replace(tzinfo=None):
        raise SettingsError(
            f"'{text}' occurs twice in {name}, because clocks are set back. "
            f"Write {time_text(first)} or {time_text(second)}."
        )
    raise SettingsError(
        f"'{text}' does not exist in {name}, because clocks are set forward. "
        f"Write {time_text(first)} or name an offset."
    )


def parse_span(start: str, end: str, zone: tzinfo) -> Span:
    """Return the span between two times in ISO 8601, in UTC.

    Args:
        start: Its first moment.
        end: Its end, exclusive.
        zone: The zone of times without an offset.

    Raises:
        SettingsError: A time cannot be parsed, does not exist or occurs twice in the zone, or the end is not after the
            start.
    """
    span = Span(*(parse_time(text, zone).astimezone(timezone.utc) for text in (start, end)))
    if span.start >= span.end:
        raise SettingsError(f"The span starts at {start} and ends at {end}: it is empty. Write the earlier time first.")
    return span


def epoch_micros(time: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def hour_of(time: datetime) -> datetime:
    """Return the start of the hour of a time, in UTC."""
    return time.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)


def time_text(time: datetime) -> str:
    """Return a time as text, as short as possible without loss, with its offset."""
    seconds = "minutes" if not (time.second or time.microsecond) else "auto"
    return time.isoformat(timespec=seconds).replace("+00:00", "Z")
