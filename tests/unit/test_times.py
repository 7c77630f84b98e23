import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.errors import SettingsError
from respool.times import Span, parse_duration, parse_span, parse_time, spark_interval, time_text


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
    moment = parse_time("2025-09-04T07:00:00.000", paris)
    assert moment == datetime(2025, 9, 4, 5, tzinfo=timezone.utc)
    assert moment.tzinfo is paris


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


PARIS = ZoneInfo("Europe/Paris")
UTC = timezone.utc


def test_a_span_is_read_in_the_zone_and_kept_in_utc() -> None:
    span = parse_span("2025-09-04T07:00:00", "2025-09-04T07:10:00", PARIS)
    assert span == Span(datetime(2025, 9, 4, 5, tzinfo=UTC), datetime(2025, 9, 4, 5, 10, tzinfo=UTC))
    assert (span.start.tzinfo, span.end.tzinfo) == (UTC, UTC)
    assert parse_span("2025-09-04", "2025-09-05", PARIS).start == datetime(2025, 9, 3, 22, tzinfo=UTC)


def test_the_ends_of_a_span_may_name_offsets() -> None:
    span = parse_span("2025-09-04T07:00:00Z", " 2025-09-04T09:10:00+02:00 ", ZoneInfo("Asia/Tokyo"))
    assert span == Span(datetime(2025, 9, 4, 7, tzinfo=UTC), datetime(2025, 9, 4, 7, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2025-09-04T07:10:00", "2025-09-04T07:00:00"),
        ("2025-09-04T07:00:00", "2025-09-04T07:00:00"),
        ("2025-09-04T07:00:00", "2025-09-04T05:00:00Z"),  # the same moment
    ],
)
def test_a_span_of_nothing_is_refused(start: str, end: str) -> None:
    with pytest.raises(SettingsError, match=f"starts at {start} and ends at {end}.*Write the earlier time first"):
        parse_span(start, end, PARIS)


@pytest.mark.parametrize(("start", "end"), [("soon", "2025-09-04"), ("2025-09-04", "soon")])
def test_a_span_with_an_unreadable_time_is_refused(start: str, end: str) -> None:
    with pytest.raises(SettingsError, match="'soon' is not a time; expected ISO 8601"):
        parse_span(start, end, PARIS)


def written(message: str) -> list[str]:
    """The times that a message says to write."""
    return re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d[+-]\d\d:\d\d", message)


def test_a_time_in_a_repeated_hour_needs_an_offset() -> None:
    with pytest.raises(SettingsError, match="'2025-10-26T02:30:00' occurs twice in Europe/Paris") as refused:
        parse_span("2025-10-26T02:30:00", "2025-10-26T12:00:00", PARIS)
    assert written(str(refused.value)) == ["2025-10-26T02:30+02:00", "2025-10-26T02:30+01:00"]
    # What the message says to write can be read, and is an hour apart.
    first, second = written(str(refused.value))
    span = parse_span(first, second, PARIS)
    assert span == Span(datetime(2025, 10, 26, 0, 30, tzinfo=UTC), datetime(2025, 10, 26, 1, 30, tzinfo=UTC))


def test_an_hour_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="'2025-03-30T02:30:00' does not exist in Europe/Paris") as refused:
        parse_span("2025-03-30T01:00:00", "2025-03-30T02:30:00", PARIS)
    assert "clocks are set forward" in str(refused.value)
    assert "name an offset" in str(refused.value)
    for text in written(str(refused.value)):
        assert time_text(parse_time(text, PARIS)) == text  # a time that there is
    span = parse_span("2025-03-30T01:00:00", "2025-03-30T02:30:00+01:00", PARIS)
    assert span.end - span.start == timedelta(minutes=90)


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [("2025-03-30T01:59:59", "2025-03-30T03:00:00", 0), ("2025-10-26T01:59:59", "2025-10-26T03:00:00", 2)],
)
def test_the_moments_around_a_change_of_clocks_are_certain(start: str, end: str, hours: int) -> None:
    span = parse_span(start, end, PARIS)
    assert span.end - span.start == timedelta(hours=hours, seconds=1)


def test_a_span_is_printed_in_a_zone() -> None:
    span = Span(datetime(2025, 10, 26, 0, 30, tzinfo=UTC), datetime(2025, 10, 26, 1, 30, tzinfo=UTC))
    assert span.text(PARIS) == "2025-10-26T02:30+02:00 – 2025-10-26T02:30+01:00"
    assert span.text(ZoneInfo("UTC")) == "2025-10-26T00:30Z – 2025-10-26T01:30Z"


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(2025, 9, 4, 7, tzinfo=UTC), "2025-09-04T07:00Z"),
        (datetime(2025, 9, 4, 7, 0, 5, tzinfo=UTC), "2025-09-04T07:00:05Z"),
        (datetime(2025, 9, 4, 7, 0, 0, 1, tzinfo=UTC), "2025-09-04T07:00:00.000001Z"),
        (datetime(2025, 9, 4, 7, tzinfo=PARIS), "2025-09-04T07:00+02:00"),
    ],
)
def test_a_time_is_printed_as_short_as_it_is_exact(time: datetime, expected: str) -> None:
    assert time_text(time) == expected


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_printed_time_can_be_parsed(time: datetime) -> None:
    assert parse_time(time_text(time.astimezone(PARIS)), PARIS) == time


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2025-10-26T02:30:00", "occurs twice in Europe/Paris"),
        ("2025-03-30T02:30:00", "does not exist in Europe/Paris"),
    ],
)
def test_a_single_time_of_the_night_when_clocks_change_is_refused_too(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_time(text, PARIS)
    assert parse_time(f"{text}+01:00", PARIS).utcoffset() is not None  # with an offset it is one moment
    assert parse_time(text, UTC) == datetime.fromisoformat(f"{text}+00:00")
