from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from respool.errors import SettingsError
from respool.span import parse_duration, parse_time, spark_interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("20s", timedelta(seconds=20)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("15 minutes", timedelta(minutes=15)),
        ("1 minute", timedelta(minutes=1)),
        ("20 seconds", timedelta(seconds=20)),
        (" 1.5 H ", timedelta(minutes=90)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_as_people_write_them(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "10 parsecs", "10m 5s", "ten minutes", "9" * 400 + "d"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match="duration"):
        parse_duration(text)


def test_a_time_without_an_offset_is_read_in_the_zone() -> None:
    paris = ZoneInfo("Europe/Paris")
    found = parse_time("2025-09-04T07:00:00.000", paris)
    assert found == datetime(2025, 9, 4, 5, tzinfo=timezone.utc)
    assert found.tzinfo is paris


@pytest.mark.parametrize("text", ["2025-09-04T05:00:00Z", "2025-09-04T07:00:00+02:00", "2025-09-04 05:00:00+00:00"])
def test_a_time_with_an_offset_keeps_its_moment(text: str) -> None:
    assert parse_time(text, ZoneInfo("Europe/Paris")) == datetime(2025, 9, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["", "Z", "yesterday", "2025-13-01", "07:00"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match="ISO 8601"):
        parse_time(text, timezone.utc)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("10m", "600000000 microseconds"), ("10 minutes", "600000000 microseconds"), ("1ms", "1000 microseconds")],
)
def test_a_duration_is_written_as_spark_reads_it(text: str, wanted: str) -> None:
    assert spark_interval(text) == wanted


@pytest.mark.parametrize("text", ["0s", "0.0001ms", "soon"])
def test_a_duration_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        spark_interval(text)
