"""Windows and sessions of event time: what a span needs, where it can be cut, and when it is closed."""

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.errors import PipelineError, RespoolError
from respool.pipeline.results import Sessions, Windows
from respool.times import Span

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEVEN = datetime(2025, 9, 4, 7, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    """Windows of seconds: with a slide or without, which need not divide the width, and an offset of any size."""
    width = draw(st.integers(1, 90))
    slide = draw(st.none() | st.integers(max(1, width // 8), width))
    offset = draw(st.integers(0, 200))
    return Windows(f"{width}s", None if slide is None else f"{slide}s", f"{offset}s")


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Spans before and after 1970, whose edges often are those of windows, or a microsecond next to them."""
    start = EPOCH + draw(st.integers(-400, 400)) * SECOND + draw(st.integers(-1, 1)) * TICK
    length = draw(st.integers(0, 300)) * SECOND + draw(st.integers(-1, 1)) * TICK
    return Span(start, start + max(length, TICK))


def touching(results: Windows, asked: Span) -> list[datetime]:
    """The starts of all windows that touch a span, found by a look at every window near it."""
    origin = EPOCH + results.offset_time
    every = (origin + number * results.slide_time for number in range(-2000, 2000))
    return [start for start in every if start < asked.end and start + results.width_time > asked.start]


def starts_in(results: Windows, starts: Span) -> list[datetime]:
    every = []
    at = starts.start
    while at < starts.end:
        every.append(at)
        at += results.slide_time
    return every


@given(windows(), spans())
def test_the_windows_of_a_span_are_those_that_touch_it_and_no_others(results: Windows, asked: Span) -> None:
    starts = results.starts(asked)
    assert starts_in(results, starts) == touching(results, asked)


@given(windows(), spans())
def test_the_events_of_a_span_are_those_of_its_windows(results: Windows, asked: Span) -> None:
    whole = touching(results, asked)
    events = results.events(results.starts(asked))
    assert events == Span(whole[0], whole[-1] + results.width_time)
    assert events.start <= asked.start
    assert events.end >= asked.end
    assert results.closed_by(results.starts(asked)) == events.end


@given(windows(), spans(), st.integers(0, 400))
def test_slices_of_windows_have_every_window_once(results: Windows, asked: Span, length: int) -> None:
    starts = results.starts(asked)
    slices = results.slices(starts, length * SECOND)
    assert [start for piece in slices for start in starts_in(results, piece)] == starts_in(results, starts)
    follow_each_other(slices, starts)
    for piece in slices:
        assert (piece.end - piece.start) % results.slide_time == timedelta(0)
        assert piece.end - piece.start <= max(length * SECOND, results.slide_time)


@given(spans(), st.integers(1, 60), st.integers(0, 400))
def test_slices_of_sessions_cover_the_span_without_overlap(asked: Span, gap: int, length: int) -> None:
    slices = Sessions(f"{gap}s", key=("visit_id",)).slices(asked, length * SECOND)
    follow_each_other(slices, asked)
    wanted = max(length, gap) * SECOND
    assert all(piece.end - piece.start == wanted for piece in slices[:-1])
    assert slices[-1].end - slices[-1].start <= wanted


def follow_each_other(slices: list[Span], whole: Span) -> None:
    assert (slices[0].start, slices[-1].end) == (whole.start, whole.end)
    assert all(piece.end == other.start for piece, other in pairwise(slices))
    assert all(piece.start < piece.end for piece in slices)


def test_windows_by_example() -> None:
    ten = Windows("10 minutes")
    asked = Span(SEVEN + timedelta(minutes=5), SEVEN + timedelta(minutes=20))
    starts = ten.starts(asked)
    assert starts == Span(SEVEN, SEVEN + timedelta(minutes=20))  # the span's end belongs to no window of it
    assert ten.events(starts) == starts
    assert ten.starts(Span(asked.start, asked.end + TICK)).end == SEVEN + timedelta(minutes=30)
    assert len(ten.slices(starts, timedelta(minutes=19))) == 2
    assert len(ten.slices(starts, timedelta(minutes=20))) == 1
    sliding = Windows("10 minutes", "5 minutes", "2 minutes")
    slid = sliding.starts(Span(SEVEN + timedelta(minutes=20), SEVEN + timedelta(minutes=21)))
    assert starts_in(sliding, slid) == [SEVEN + timedelta(minutes=minute) for minute in (12, 17)]
    assert sliding.closed_by(slid) == SEVEN + timedelta(minutes=27)


def test_a_span_in_another_zone_has_the_same_windows() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    asked = Span(SEVEN + timedelta(minutes=5), SEVEN + timedelta(minutes=6))
    hours = Windows("1 hour")
    assert hours.starts(Span(asked.start.astimezone(east), asked.end.astimezone(east))) == hours.starts(asked)


def test_sessions_of_a_span_are_closed_a_gap_behind_it() -> None:
    asked = Span(SEVEN, SEVEN + timedelta(hours=1))
    assert Sessions("10 minutes", key=("visit_id",)).closed_by(asked) == SEVEN + timedelta(minutes=70)


def test_results_describe_themselves() -> None:
    assert Windows("10 minutes").describe() == "windows of 10 minutes"
    assert Windows("1 hour", "10 minutes").describe() == "windows of 1 hour every 10 minutes"
    assert Sessions("2h", key=("visit_id",)).describe() == "sessions with a gap of 2h"


@pytest.mark.parametrize(
    ("width", "slide"), [("0s", None), ("10 minutes", "0s"), ("10 minutes", "11 minutes"), ("0.0001ms", None)]
)
def test_invalid_windows_are_refused(width: str, slide: str | None) -> None:
    with pytest.raises(
        PipelineError, match=rf"the slide \({slide or width}\) must be positive and at most the width \({width}\)"
    ):
        Windows(width, slide)


def test_invalid_sessions_are_refused() -> None:
    with pytest.raises(PipelineError, match="a gap longer than 0 and a key"):
        Sessions("0s", key=("visit_id",))
    with pytest.raises(PipelineError, match="a gap longer than 0 and a key"):
        Sessions("10 minutes", key=())


def test_an_invalid_duration_is_refused_immediately() -> None:
    for make in (lambda: Windows("soon"), lambda: Windows("1h", "soon"), lambda: Sessions("soon", key=("visit_id",))):
        with pytest.raises(RespoolError, match="'soon' is not a duration"):
            make()
