"""What the live pipelines say in the end equals a plain computation over the same events, however they are batched."""

import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool import topics
from respool.kafka import Kafka
from respool.pipeline import Pipeline, find
from respool.progress import Progress
from respool.runner import Runner, RunOptions
from respool.settings import Settings
from respool.sinks import FunctionSink
from respool.topics import Message
from respool.visits.generator import VisitsPlan, generate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 200_000
BROWSERS = ("Firefox", "Chrome", "Safari", "Opera")
# An hour of visits, 5 % of them out of order by less than any watermark, with records that do not decode in between.
PLAN = VisitsPlan(
    count=COUNT, visits=COUNT // 12, pages_per_visit=6, late=0.05, lateness=timedelta(minutes=5), malformed=0.01
)
LAST = datetime(2030, 1, 1, tzinfo=timezone.utc)  # a visit far in the future ends every window and session


@pytest.fixture(scope="module")
def events() -> list[Message]:
    """The visits of an hour, usable by every pipeline: each has the fields of both kinds of events."""
    made = []
    for number, message in enumerate(generate(PLAN)):
        try:
            fields = json.loads(message.value or b"")
            fields["eventTime"], fields["browser"] = fields["event_time"] + "Z", BROWSERS[number % len(BROWSERS)]
            made.append(Message(message.key, json.dumps(fields).encode()))
        except (ValueError, KeyError, TypeError, AttributeError):
            made.append(message)
    return made


@pytest.fixture(scope="module")
def hour(kafka: Kafka, events: list[Message]) -> str:
    topics.create(kafka, "an-hour-of-visits", partitions=2)
    topics.produce(kafka, "an-hour-of-visits", events)
    time = LAST.strftime("%Y-%m-%dT%H:%M:%S")
    last = {"visit_id": "last", "event_time": time, "page": "home", "eventTime": time + "Z", "browser": "last"}
    topics.produce(kafka, "an-hour-of-visits", [Message(b"last", json.dumps(last).encode())])
    return "an-hour-of-visits"


@pytest.fixture(scope="module")
def good(events: list[Message]) -> list[dict[str, Any]]:
    """The events that decode, read in plain Python."""
    found = []
    for message in events:
        try:
            fields = json.loads((message.value or b"").decode())
            time = datetime.fromisoformat(fields["event_time"]).replace(tzinfo=timezone.utc)
            found.append({"visit_id": str(fields["visit_id"]), "time": time, "browser": fields["browser"]})
        except (ValueError, KeyError, TypeError):
            continue
    assert len(found) == COUNT
    return found


def upserted(
    spark: "SparkSession", kafka: Kafka, settings: Settings, pipeline: Pipeline, key: tuple[str, ...], size: int | None
) -> tuple[dict[tuple[Any, ...], dict[str, Any]], list[Progress]]:
    """Run a pipeline over all there is, and return what an upserting consumer ends with."""
    results: dict[tuple[Any, ...], dict[str, Any]] = {}

    def write(frame: "DataFrame", batch: int) -> None:
        for row in frame.toArrow().to_pylist():
            place = tuple(json.dumps(row[name], default=str) for name in key)
            if row.get("withdrawn"):
                results.pop(place, None)
            else:
                results[place] = row

    told: list[Progress] = []
    options = RunOptions(available_now=True, max_offsets_per_trigger=size, dead_letter=False)
    sink = FunctionSink(write, "a dictionary")
    with Runner(spark, kafka, settings, options, told.append, lambda note: None) as runner:
        runner.start([replace(pipeline, sink=sink)])
        done = threading.Thread(target=runner.wait)
        done.start()
        done.join(300)
        assert not done.is_alive()
    assert sum(one.rejected for one in told) > 0
    assert sum(one.late_rows or 0 for one in told) == 0
    return results, told


SIZES = [None, 90_000, 20_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["visit-counts", "visit-windows"])
def test_windows(
    spark: "SparkSession",
    kafka: Kafka,
    settings: Settings,
    hour: str,
    good: list[dict[str, Any]],
    tmp_path: Path,
    name: str,
    size: int | None,
) -> None:
    results, _ = upserted(
        spark, kafka, replace(settings, home=tmp_path), find(name, {"topic": hour}), ("window",), size
    )
    wanted = Counter(one["time"].replace(minute=one["time"].minute // 10 * 10, second=0) for one in good)
    found = {row["window"]["start"]: row["count"] for row in results.values() if row["window"]["start"] < LAST}
    assert found == dict(wanted)


@pytest.mark.parametrize("size", SIZES)
def test_browsers(
    spark: "SparkSession",
    kafka: Kafka,
    settings: Settings,
    hour: str,
    good: list[dict[str, Any]],
    tmp_path: Path,
    size: int | None,
) -> None:
    pipeline = find("browser-stats-stateful", {"topic": hour})
    results, _ = upserted(spark, kafka, replace(settings, home=tmp_path), pipeline, ("browser", "window"), size)
    counts: Counter[tuple[str, datetime]] = Counter()
    newest: dict[tuple[str, datetime], datetime] = {}
    for one in good:
        place = (one["browser"], one["time"].replace(minute=one["time"].minute // 5 * 5, second=0))
        counts[place] += 1
        newest[place] = max(newest.get(place, one["time"]), one["time"])
    found = {(row["browser"], row["window"]["start"]): row for row in results.values() if row["browser"] != "last"}
    assert {place: row["count"] for place, row in found.items()} == dict(counts)
    assert {place: row["last_event_time_in_window"] for place, row in found.items()} == newest


@pytest.mark.parametrize("size", [None, 60_000])
def test_sessions(
    spark: "SparkSession",
    kafka: Kafka,
    settings: Settings,
    hour: str,
    good: list[dict[str, Any]],
    tmp_path: Path,
    size: int | None,
) -> None:
    pipeline = find("sessions", {"topic": hour})
    results, told = upserted(
        spark, kafka, replace(settings, home=tmp_path), pipeline, ("visit_id", "session_start"), size
    )
    times: dict[str, list[datetime]] = {}
    for one in good:
        times.setdefault(one["visit_id"], []).append(one["time"])
    wanted = set()
    for visit, moments in times.items():
        moments.sort()
        start = end = moments[0]
        pages = 0
        for moment in moments:
            if moment - end > timedelta(minutes=10):
                wanted.add((visit, start, end, pages, True))
                start, pages = moment, 0
            end, pages = moment, pages + 1
        wanted.add((visit, start, end, pages, True))
    found = {
        (row["visit_id"], row["session_start"], row["session_end"], row["visited_pages"], row["is_finished"])
        for row in results.values()
        if row["visit_id"] != "last"
    }
    assert found == wanted
    assert told[-1].state_rows is not None
    assert told[-1].state_rows < 10  # closed state is gone: what is left is of the last visit
