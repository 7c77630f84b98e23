"""The final results of the live pipelines equal a plain computation over the same events, however they are batched."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.pipeline.definition import Pipeline
from respool.pipeline.registry import find_pipeline
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.console import FunctionSink
from respool.visits.generator import VisitsPlan, generate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 200_000
BROWSERS = ("Firefox", "Chrome", "Safari", "Opera")
# An hour of visits, 5 % of them out of order by less than any watermark, with records that do not decode in between.
PLAN = VisitsPlan(
    count=COUNT, visits=COUNT // 12, pages_per_visit=12, late=0.05, lateness=timedelta(minutes=5), malformed=0.01
)
LAST = datetime(2030, 1, 1, tzinfo=timezone.utc)  # a visit far in the future closes every window and session


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
def hour(kafka: KafkaCluster, events: list[Message]) -> str:
    topics.create(kafka, "an-hour-of-visits", partitions=2)
    producer.produce(kafka, "an-hour-of-visits", events)
    time = LAST.strftime("%Y-%m-%dT%H:%M:%S")
    last = {"visit_id": "last", "event_time": time, "page": "home", "eventTime": time + "Z", "browser": "last"}
    producer.produce(kafka, "an-hour-of-visits", [Message(b"last", json.dumps(last).encode())])
    return "an-hour-of-visits"


@pytest.fixture(scope="module")
def good(events: list[Message]) -> list[dict[str, Any]]:
    """The events that decode, read in plain Python."""
    decoded = []
    for message in events:
        try:
            fields = json.loads((message.value or b"").decode())
            time = datetime.fromisoformat(fields["event_time"]).replace(tzinfo=timezone.utc)
            decoded.append({"visit_id": str(fields["visit_id"]), "time": time, "browser": fields["browser"]})
        except (ValueError, KeyError, TypeError):
            continue
    assert len(decoded) == COUNT
    return decoded


Results = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """Where the pipelines of a test run, over the hour of visits."""

    spark: "SparkSession"
    kafka: KafkaCluster
    settings: Settings
    topic: str

    def upserted(
        self, keys: dict[str, tuple[str, ...]], size: int | None
    ) -> tuple[dict[str, Results], list[BatchProgress]]:
        """Run pipelines over all records, and return the final rows of consumers that upsert by these keys."""
        results: dict[str, Results] = {name: {} for name in keys}

        def upsert(name: str, frame: "DataFrame") -> None:
            for row in frame.toArrow().to_pylist():
                place = tuple(json.dumps(row[column], default=str) for column in keys[name])
                if row.get("withdrawn"):
                    results[name].pop(place, None)
                else:
                    results[name][place] = row

        def collecting(name: str) -> Pipeline:
            sink = FunctionSink(lambda frame, batch: upsert(name, frame), "a dictionary")
            return replace(find_pipeline(name, {"topic": self.topic}), sink=sink)

        batches: list[BatchProgress] = []
        options = RunOptions(available_now=True, max_offsets_per_trigger=size, dead_letter=False)
        with Runner(self.spark, self.kafka, self.settings, options, batches.append, lambda note: None) as runner:
            runner.start([collecting(name) for name in keys])
            runner.wait()
        assert {batch.pipeline for batch in batches if batch.rejected} == set(keys)
        assert sum(batch.late_rows or 0 for batch in batches) == 0
        return results, batches


@pytest.fixture
def stage(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, hour: str, tmp_path: Path) -> Stage:
    return Stage(spark, kafka, replace(settings, home=tmp_path), hour)


@pytest.mark.parametrize("size", [None, 20_000])
def test_windows_and_browsers(stage: Stage, good: list[dict[str, Any]], size: int | None) -> None:
    window, browser = ("window",), ("browser", "window")
    keys = {"visit-counts": window, "visit-windows": window, "browser-stats-stateful": browser}
    results, _ = stage.upserted(keys, size)

    wanted = Counter(event["time"].replace(minute=event["time"].minute // 10 * 10, second=0) for event in good)
    for name in ("visit-counts", "visit-windows"):
        rows = [row for row in results[name].values() if row["window"]["start"] < LAST]
        assert {row["window"]["start"]: row["count"] for row in rows} == dict(wanted)

    counts: Counter[tuple[str, datetime]] = Counter()
    newest: dict[tuple[str, datetime], datetime] = {}
    for event in good:
        place = (event["browser"], event["time"].replace(minute=event["time"].minute // 5 * 5, second=0))
        counts[place] += 1
        newest[place] = max(newest.get(place, event["time"]), event["time"])
    rows = [row for row in results["browser-stats-stateful"].values() if row["browser"] != "last"]
    published = {(row["browser"], row["window"]["start"]): row for row in rows}
    assert {place: row["count"] for place, row in published.items()} == dict(counts)
    assert {place: row["last_event_time_in_window"] for place, row in published.items()} == newest


@pytest.mark.parametrize("size", [None, 110_000])
def test_sessions(stage: Stage, good: list[dict[str, Any]], size: int | None) -> None:
    results, batches = stage.upserted({"sessions": ("visit_id", "session_start")}, size)
    times: dict[str, list[datetime]] = {}
    for event in good:
        times.setdefault(event["visit_id"], []).append(event["time"])
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
    columns = ("visit_id", "session_start", "session_end", "visited_pages", "is_finished")
    rows = [row for row in results["sessions"].values() if row["visit_id"] != "last"]
    assert {tuple(row[column] for column in columns) for row in rows} == wanted
    assert batches[-1].state_rows is not None
    assert batches[-1].state_rows < 10  # closed state is gone: what is left is of the last visit
