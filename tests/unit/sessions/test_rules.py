"""Sessions without Spark: every move by hand, then random events in random batches."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.sessions.rules import Result, Session, TimedSession, Update, extend, is_over, sessions_of, update

MINUTE = 60_000_000
GAP = 10 * MINUTE
SEVEN = 7 * 60 * MINUTE  # any day


def at(minute: float) -> int:
    """The time so many minutes behind seven o'clock."""
    return SEVEN + round(minute * MINUTE)


def session(start: float, end: float, pages: int) -> Session:
    return Session(at(start), at(end), pages)


def published(start: float, end: float, pages: int, is_finished: bool = False) -> Result:
    return Result(session(start, end, pages), is_finished)


def withdrawn(start: float, end: float) -> Result:
    return Result(session(start, end, 0), withdrawn=True)


def moved(before: Sequence[Session], *minutes: float, watermark: float | None = None) -> Update:
    return update(before, [at(minute) for minute in minutes], None if watermark is None else at(watermark), GAP)


# The gap rule, move by move.


def test_an_event_opens_a_session() -> None:
    assert moved([], 0) == Update((session(0, 0, 1),), (published(0, 0, 1),))


def test_an_event_extends_a_session_forward_under_the_same_key() -> None:
    assert moved([session(0, 0, 1)], 4) == Update((session(0, 4, 2),), (published(0, 4, 2),))


def test_an_event_inside_a_session_only_counts() -> None:
    assert moved([session(0, 4, 2)], 2) == Update((session(0, 4, 3),), (published(0, 4, 3),))


def test_an_event_before_a_session_moves_its_start_and_withdraws_the_old_key() -> None:
    assert moved([session(5, 9, 2)], 0) == Update((session(0, 9, 3),), (withdrawn(5, 9), published(0, 9, 3)))


def test_an_event_between_two_sessions_joins_them_and_withdraws_the_later_key() -> None:
    before = [session(0, 2, 2), session(14, 15, 3)]
    assert moved(before, 8) == Update((session(0, 15, 6),), (withdrawn(14, 15), published(0, 15, 6)))


def test_an_event_before_two_sessions_can_leave_the_later_alone() -> None:
    before = [session(5, 5, 1), session(40, 40, 1)]
    after = moved(before, 0)
    assert after.open == (session(0, 5, 2), session(40, 40, 1))
    assert after.results == (withdrawn(5, 5), published(0, 5, 2))


def test_a_single_update_can_do_everything() -> None:
    before = [session(0, 0, 1), session(20, 20, 1), session(60, 60, 1), session(90, 90, 1)]
    after = moved(before, 10, 55, 120, 121, watermark=30)
    assert after.results == (
        withdrawn(20, 20),
        withdrawn(60, 60),
        published(0, 20, 3, is_finished=True),
        published(55, 60, 2),
        published(120, 121, 2),
    )
    assert after.open == (session(55, 60, 2), session(90, 90, 1), session(120, 121, 2))


@pytest.mark.parametrize("minute", [10, -10])
def test_exactly_the_gap_apart_is_the_same_session(minute: float) -> None:
    assert [opened.pages for opened in moved([session(0, 0, 1)], minute).open] == [2]


@pytest.mark.parametrize("time", [at(10) + 1, at(-10) - 1])
def test_a_microsecond_more_than_the_gap_apart_is_another_session(time: int) -> None:
    assert [opened.pages for opened in update([session(0, 0, 1)], [time], None, GAP).open] == [1, 1]


def test_events_at_one_time_count_each() -> None:
    assert moved([], 0, 0, 0).results == (published(0, 0, 3),)


def test_a_session_closes_when_the_watermark_is_a_gap_behind_its_end() -> None:
    before = [session(0, 4, 2)]
    assert moved(before, watermark=13.9) == Update((session(0, 4, 2),), ())
    assert moved(before, watermark=14) == Update((), (published(0, 4, 2, is_finished=True),))


def test_nothing_closes_without_a_watermark() -> None:
    assert moved([session(0, 4, 2)]) == Update((session(0, 4, 2),), ())


def test_events_of_the_closing_batch_still_belong_to_the_session() -> None:
    assert moved([session(0, 4, 2)], 5, watermark=60) == Update((), (published(0, 5, 3, is_finished=True),))


def test_a_session_that_opens_behind_the_watermark_is_published_once_as_finished() -> None:
    assert moved([], 0, watermark=60) == Update((), (published(0, 0, 1, is_finished=True),))


def test_a_visit_that_returns_opens_a_new_session() -> None:
    closed = moved([session(0, 0, 1)], watermark=10)
    assert moved(closed.open, 10.1, watermark=10).results == (published(10.1, 10.1, 1),)


# The timer rule.


def test_the_timer_rule_gives_the_walk_through() -> None:
    """Walk-through 004, batch by batch: the visit's event, the watermark, and what is published of its session."""
    batches = [(1, 0, None), (1, 1, -15), (1, 2, -14), (1, 0, -13), (2, 10, -13), (1, 690_000, -5)]
    sessions: dict[int, TimedSession] = {}
    rows = []
    for visit, minute, watermark in batches:
        now = None if watermark is None else at(watermark)
        sessions[visit] = extend(sessions.get(visit), [at(minute)], now, GAP)
        assert not any(is_over(timed, now) for timed in sessions.values())
        rows.append((visit, sessions[visit].pages))
    assert rows == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (1, 5)]
    assert all(is_over(timed, at(690_000 - 15)) for timed in sessions.values())


def test_the_timer_is_set_by_the_newest_event_while_there_is_no_watermark() -> None:
    assert extend(None, [at(3), at(5), at(4)], None, GAP) == TimedSession(3, at(15))


def test_the_timer_is_set_by_the_watermark_whatever_comes() -> None:
    assert extend(TimedSession(3, at(15)), [at(500)], at(-10), GAP) == TimedSession(4, at(0))


def test_the_watermark_closes_a_session_when_it_reaches_the_timer() -> None:
    assert not is_over(TimedSession(1, at(10)), None)
    assert not is_over(TimedSession(1, at(10)), at(10) - 1)
    assert is_over(TimedSession(1, at(10)), at(10))


# Random events in random batches. Times are few and gaps are short, so that edges and equal times are common.

TIMES = st.lists(st.integers(1, 60), max_size=30)
GAPS = st.integers(0, 6)


def by_pairs(times: Iterable[int], gap: int) -> set[Session]:
    """The sessions once more, by definition: groups of events linked by pairs at most `gap` apart."""
    groups: list[list[int]] = []
    for time in times:
        linked = [group for group in groups if any(abs(time - other) <= gap for other in group)]
        joined = [time, *(event for group in linked for event in group)]
        groups = [group for group in groups if group not in linked] + [joined]
    return {Session(min(group), max(group), len(group)) for group in groups}


@given(TIMES, GAPS)
def test_sessions_are_groups_of_events_linked_by_the_gap(times: list[int], gap: int) -> None:
    sessions = sessions_of(times, gap)
    assert set(sessions) == by_pairs(times, gap)
    assert list(sessions) == sorted(sessions)


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[list[int], int | None]]:
    """Batches of events with the watermark of each, none of them late: a watermark drops only in the next batch."""
    events = draw(st.lists(st.lists(st.integers(1, 60), max_size=5), max_size=12))
    batches: list[tuple[list[int], int | None]] = []
    watermark: int | None = None
    for number, batch in enumerate(events):
        if watermark is not None or draw(st.booleans()):
            highest = min((time for later in events[number + 1 :] for time in later), default=100) - 1
            watermark = draw(st.integers(watermark or 0, highest))
        batches.append((batch, watermark))
    return [*batches, ([], 1000)]


def upsert(table: dict[int, Result], results: Sequence[Result]) -> None:
    """Keep the newest result of every key, as a consumer does; check on the way what it may rely on."""
    keys = [result.session.start for result in results]
    assert len(keys) == len(set(keys)), "a key is told twice in one update"
    flags = [result.withdrawn for result in results]
    assert flags == sorted(flags, reverse=True), "a result comes before a withdrawal"
    for result in results:
        key = result.session.start
        old = table.get(key)
        assert old is None or not old.is_finished, "a finished session changes"
        if result.withdrawn:
            assert old is not None, "something is withdrawn that was never told"
            assert (old.session.end, result.session.pages) == (result.session.end, 0)
            del table[key]
        else:
            assert old != result, "nothing changed"
            table[key] = result


@given(streams(), GAPS)
def test_an_upserting_consumer_ends_with_the_final_sessions(
    batches: list[tuple[list[int], int | None]], gap: int
) -> None:
    table: dict[int, Result] = {}
    before: tuple[Session, ...] = ()
    for times, watermark in batches:
        after = update(before, times, watermark, gap)
        upsert(table, after.results)
        assert list(after.open) == sorted(after.open)
        assert {result.session for result in table.values() if not result.is_finished} == set(after.open)
        before = after.open
    assert before == ()
    everything = [time for times, _ in batches for time in times]
    assert {result.session for result in table.values()} == by_pairs(everything, gap)
    assert all(result.is_finished for result in table.values())


@given(TIMES, GAPS, st.data())
def test_early_results_depend_on_no_order(times: list[int], gap: int, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(times))
    before: tuple[Session, ...] = ()
    for time in shuffled:
        before = update(before, [time], None, gap).open
    assert before == sessions_of(times, gap)
