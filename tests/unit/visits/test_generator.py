import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.errors import SettingsError
from respool.kafka.producer import Message
from respool.visits.generator import VisitsPlan, generate

START = datetime(2024, 1, 1, 1)  # noqa: DTZ001 - event times name no zone


def values(plan: VisitsPlan) -> list[dict[str, Any]]:
    return [json.loads(message.value or b"null") for message in generate(plan)]


def event_time(event: dict[str, Any]) -> datetime:
    return datetime.strptime(event["event_time"], "%Y-%m-%dT%H:%M:%S.%f")  # noqa: DTZ007


def is_good(message: Message) -> bool:
    return (message.value or b"").startswith(b'{"event_id": "click-')


def test_an_event_looks_as_in_the_walk_through() -> None:
    first = next(generate(VisitsPlan(count=1)))
    event = json.loads(first.value or b"")
    assert list(event) == ["event_id", "visit_id", "event_time", "page"]
    assert event["event_id"] == "click-0"
    assert event["event_time"] == "2024-01-01T01:00:00.000000"
    assert first.key == event["visit_id"].encode()
    number, _, visit = event["visit_id"].partition("_")
    assert len(number) == 15
    assert number.isdigit()
    assert visit == "0"


def test_the_same_plan_gives_the_same_bytes_in_another_process() -> None:
    plan = VisitsPlan(count=500, seed=7, late=0.2, duplicates=0.1, malformed=0.1)
    program = (
        "import hashlib; from respool.visits.generator import VisitsPlan, generate\n"
        "plan = VisitsPlan(count=500, seed=7, late=0.2, duplicates=0.1, malformed=0.1)\n"
        "print(hashlib.sha256(repr([tuple(one) for one in generate(plan)]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert list(generate(plan)) == list(generate(plan))


@pytest.mark.parametrize("other", [8, -7, 0])
def test_another_seed_gives_other_bytes(other: int) -> None:
    ours, theirs = (list(generate(VisitsPlan(count=50, seed=seed))) for seed in (7, other))
    assert not {record.key for record in ours} & {record.key for record in theirs}


def test_a_round_has_an_event_of_every_visit() -> None:
    events = values(VisitsPlan(count=20, visits=10))
    assert {event_time(event) for event in events[:10]} == {START}
    assert len({event["visit_id"] for event in events[:10]}) == 10
    assert {event["visit_id"] for event in events[10:]} == {event["visit_id"] for event in events[:10]}


def test_the_clock_of_a_visit_moves_on_by_some_minutes_a_page() -> None:
    visits = defaultdict(list)
    for event in values(VisitsPlan(count=5_000)):
        visits[event["visit_id"]].append(event_time(event))
    for times in visits.values():
        steps = [later - earlier for earlier, later in pairwise(times)]
        assert all(timedelta(minutes=1) <= step < timedelta(minutes=10) for step in steps)


def test_undisturbed_events_are_hardly_out_of_order() -> None:
    newest = START
    for event in values(VisitsPlan(count=50_000, visits=7)):
        assert event_time(event) > newest - timedelta(minutes=5)
        newest = max(newest, event_time(event))
    assert newest > START + timedelta(days=20)


def test_visits_end_and_others_take_their_place() -> None:
    pages = Counter(event["visit_id"] for event in values(VisitsPlan(count=5_000, pages_per_visit=6)))
    ended = list(pages.values())[:-10]
    assert len(ended) > 500
    assert set(ended) == set(range(3, 10))


def test_pages_are_those_of_the_walk_through() -> None:
    pages = {event["page"] for event in values(VisitsPlan(count=5_000))}
    assert {"main", "home", "index", "about", "contact", "categories"} < pages
    assert {"category_5", "category_19", "page_7"} < pages


def test_event_times_are_written_in_the_zone_of_the_start() -> None:
    moment = datetime(2025, 9, 4, 5, tzinfo=timezone.utc)
    in_paris = values(VisitsPlan(count=1, start=moment.astimezone(ZoneInfo("Europe/Paris"))))
    in_utc = values(VisitsPlan(count=1, start=moment))
    assert in_paris[0]["event_time"] == "2025-09-04T07:00:00.000000"
    assert in_utc[0]["event_time"] == "2025-09-04T05:00:00.000000"


def test_without_a_count_there_is_no_end() -> None:
    bounded = list(generate(VisitsPlan(count=3_000, seed=3)))
    assert list(islice(generate(VisitsPlan(seed=3)), 3_000)) == bounded


@given(
    count=st.integers(0, 400),
    visits=st.integers(1, 30),
    pages=st.integers(1, 12),
    seed=st.integers(),
    late=st.floats(0, 1),
    lateness=st.timedeltas(timedelta(0), timedelta(days=2)),
    duplicates=st.floats(0, 1),
    malformed=st.floats(0, 1),
)
@settings(max_examples=50, deadline=None)
def test_no_disturbance_changes_the_set_of_good_events(
    count: int,
    visits: int,
    pages: int,
    seed: int,
    late: float,
    lateness: timedelta,
    duplicates: float,
    malformed: float,
) -> None:
    plain = list(generate(VisitsPlan(count, visits, pages, seed=seed)))
    disturbed = list(
        generate(
            VisitsPlan(
                count,
                visits,
                pages,
                seed=seed,
                late=late,
                lateness=lateness,
                duplicates=duplicates,
                malformed=malformed,
            )
        )
    )
    good = [message for message in disturbed if is_good(message)]
    assert len(plain) == len(set(plain)) == count
    assert set(good) == set(plain)
    assert max(Counter(good).values(), default=0) <= 2


def test_late_events_arrive_behind_others_by_at_most_the_lateness() -> None:
    plan = VisitsPlan(count=10_000, late=0.05, lateness=timedelta(hours=1))
    newest = START
    behind = []
    for event in values(plan):
        behind.append(newest - event_time(event))
        newest = max(newest, event_time(event))
    late = [delay for delay in behind if delay > timedelta(minutes=5)]
    assert 300 < len(late) < 600
    assert timedelta(minutes=50) < max(late) < timedelta(hours=1, minutes=6)


def test_duplicates_come_later_byte_for_byte() -> None:
    messages = list(generate(VisitsPlan(count=5_000, duplicates=0.1)))
    seen: dict[Message, int] = {}
    distances = []
    for position, message in enumerate(messages):
        if message in seen:
            distances.append(position - seen[message])
        seen[message] = position
    assert 400 < len(distances) < 600
    assert len(seen) == 5_000
    assert max(distances) > 50


def test_malformed_records_are_of_many_kinds_and_never_decode() -> None:
    messages = list(generate(VisitsPlan(count=1_000, malformed=0.1)))
    bad = [message.value for message in messages if not is_good(message)]
    assert 60 < len(bad) < 140
    assert None in bad
    kinds = set()
    for value in bad:
        try:
            parsed = json.loads((value or b"null").decode())
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            kinds.add(type(error).__name__)
            continue
        if not isinstance(parsed, dict):
            kinds.add(type(parsed).__name__)
        elif "event_time" not in parsed:
            kinds.add("missing")
        else:
            kinds.add(f"event_time {type(parsed['event_time']).__name__}")
            with pytest.raises((TypeError, ValueError)):
                event_time(parsed)
    assert kinds == {
        "UnicodeDecodeError",
        "JSONDecodeError",
        "NoneType",
        "list",
        "missing",
        "event_time str",
        "event_time dict",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": -1},
        {"visits": 0},
        {"pages_per_visit": 0},
        {"late": 1.1},
        {"duplicates": -0.1},
        {"malformed": float("nan")},
        {"lateness": timedelta(seconds=-1)},
        {"start": START},
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        VisitsPlan(**wrong)


def test_running_past_the_last_year_is_reported() -> None:
    plan = VisitsPlan(count=100, start=datetime(9999, 12, 31, 23, 59, tzinfo=timezone.utc))
    with pytest.raises(SettingsError, match="9999"):
        list(generate(plan))
