"""Times and durations as people write them.

Every time that comes out of here is aware; every word that cannot be read is a SettingsError that shows how to write
it.
"""

import re
from datetime import datetime, timedelta, tzinfo

from respool.errors import SettingsError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_UNITS = {
    timedelta(milliseconds=1): ("ms", "millisecond", "milliseconds"),
    timedelta(seconds=1): ("s", "sec", "second", "seconds"),
    timedelta(minutes=1): ("m", "min", "minute", "minutes"),
    timedelta(hours=1): ("h", "hour", "hours"),
    timedelta(days=1): ("d", "day", "days"),
}
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names}


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` names: 500ms, 20s, 10m, 2h, 1d, '15 minutes'.

    Raises:
        SettingsError: The text is no number followed by a unit.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    unit = _UNIT_OF.get(found[2]) if found else None
    if not found or unit is None:
        raise SettingsError(
            f"'{text}' is not a duration; expected a number and a unit (ms, s, m, h, d). "
            "Write for example 20s, 10m, 2h or '15 minutes'."
        )
    try:
        return float(found[1]) * unit
    except OverflowError as error:
        raise SettingsError(f"'{text}' is too long a duration. Write one of at most some thousand years.") from error


def spark_interval(text: str) -> str:
    """Return a duration of more than nothing as Spark reads it: Spark knows '10 minutes', but not 10m.

    Raises:
        SettingsError: The text is no duration, or one of nothing.
    """
    microseconds = parse_duration(text) // timedelta(microseconds=1)
    if not microseconds:
        raise SettingsError(f"'{text}' is no time at all; expected a duration of more than nothing, such as 10m.")
    return f"{microseconds} microseconds"


def parse_time(text: str, zone: tzinfo) -> datetime:
    """Return the moment that `text` names in ISO 8601, in `zone`.

    Args:
        text: A date, or a date and a time, with an offset or without.
        zone: How to read a time that names no offset, and the zone of what is returned.

    Raises:
        SettingsError: The text is no ISO 8601 time.
    """
    written = text.strip()
    try:
        # Python 3.10 knows +00:00 but not Z.
        found = datetime.fromisoformat(written[:-1] + "+00:00" if written[-1:] in ("Z", "z") else written)
        return found.replace(tzinfo=zone) if found.tzinfo is None else found.astimezone(zone)
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"'{text}' is not a time; expected ISO 8601. Write for example 2024-01-01T01:00:00 or 2024-01-01T01:00:00Z."
        ) from error
