"""Sessions on a real Spark: the walk-through's transcript, and the gap rule against a plain computation."""

import json
import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state.reader import rows as rows_of
from respool.checkpoint.state.selection import StateSelection, select_state
from respool.errors import PipelineError, SettingsError
from respool.kafka import consumer
from respool.kafka.cluster import KafkaCluster
from respool.sessions.packing import bucket_keys
from respool.sessions.rules import sessions_of
from respool.settings import Settings
from respool.sinks.kafka import KafkaSink
from respool.sinks.protocol import WriteContext
from respool.storage.open import open_reader
from respool.testing import BatchResult, run_batches
from respool.visits.sessions import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.definition import Pipeline

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SEVEN = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
GAP = timedelta(minutes=10) // MICROSECOND

Event = tuple[str, datetime]
# visit, start, end, pages, is finished, withdrawn
Row = tuple[str, datetime, datetime, int, bool, bool]


def seven(minute: float) -> datetime:
    return SEVEN + timedelta(minutes=minute)


def visit(event: Event) -> dict[str, str]:
    return {"event_id": "click", "visit_id": event[0], "event_time": event[1].isoformat()}


def published(visit_id: str, start: float, end: float, pages: int, is_finished: bool = False) -> Row:
    return (visit_id, seven(start), seven(end), pages, is_finished, False)


def withdrawn(visit_id: str, start: float, end: float) -> Row:
    return (visit_id, seven(start), seven(end), 0, False, True)


def row_of(values: dict[str, Any]) -> Row:
    names = ("visit_id", "session_start", "session_end", "visited_pages", "is_finished", "withdrawn")
    assert tuple(values) == names
    visit_id, start, end, pages, is_finished, withdrawn = values.values()
    return (visit_id, start, end, pages, is_finished, withdrawn)


def rows(batch: BatchResult) -> list[Row]:
    """The rows of a batch: visit by visit, what is withdrawn first."""
    return sorted((row_of(values) for values in batch.rows), key=lambda row: (row[0], not row[5], row[1]))


def state(spark: "SparkSession", checkpoint: Path, **options: str) -> list[Any]:
    reader = spark.read.format("statestore").options(**options)
    return [row.asDict(recursive=True) for row in reader.load(str(checkpoint)).collect()]


def expected(events: Iterable[Event]) -> set[tuple[str, datetime, datetime, int]]:
    """The final sessions, from scratch."""
    times: dict[str, list[int]] = {}
    for visit_id, time in events:
        times.setdefault(visit_id, []).append((time - EPOCH) // MICROSECOND)
    return {
        (visit_id, EPOCH + session.start * MICROSECOND, EPOCH + session.end * MICROSECOND, session.pages)
        for visit_id, of_visit in times.items()
        for session in sessions_of(of_visit, GAP)
    }


def upserted(batches: Iterable[BatchResult]) -> dict[tuple[str, datetime], Row]:
    """What a consumer holds that keeps the newest row of every key, in the order in which they come."""
    table: dict[tuple[str, datetime], Row] = {}
    for batch in batches:
        for row in (row_of(values) for values in batch.rows):
            if row[5]:
                del table[row[:2]]
            else:
                table[row[:2]] = row
    return table


def test_the_timer_rule_gives_the_transcript_of_the_early_writer(spark: "SparkSession", tmp_path: Path) -> None:
    lines = """\
        {"event_id": "click-1", "visit_id": 1, "event_time": "2025-09-04T07:00:00.000000"}
        {"event_id": "click-2", "visit_id": 1, "event_time": "2025-09-04T07:01:00.000000"}
        {"event_id": "click-3", "visit_id": 1, "event_time": "2025-09-04T07:02:00.000000"}
        {"event_id": "click-4", "visit_id": 1, "event_time": "2025-09-04T07:00:00.000000"}
        {"event_id": "click-1", "visit_id": 2, "event_time": "2025-09-04T07:10:00.000000"}
        {"event_id": "stop", "visit_id": 1, "event_time": "2026-12-29T07:49:15.189575"}"""
    records = [[line.strip().encode()] for line in lines.splitlines()]
    batches = run_batches(spark, sessions(rule="timer"), records, checkpoint=tmp_path / "checkpoint")
    assert all(tuple(row) == ("visit_id", "visited_pages", "is_finished") for batch in batches for row in batch.rows)
    rows_by_batch = [sorted(tuple(row.values()) for row in batch.rows) for batch in batches]
    assert rows_by_batch == [
        [("1", 1, False)],
        [],
        [("1", 2, False)],
        [],
        [("1", 3, False)],
        [],
        [("1", 4, False)],
        [("2", 1, False)],
        [],
        [("1", 5, False)],
        [("1", 5, True), ("2", 1, True)],
    ]
    assert [batch.batch for batch in batches] == list(range(11))
    before = state(spark, tmp_path / "checkpoint", stateVarName="session", batchId="9")
    assert {entry["key"]["visit_id"]: entry["value"]["visited_pages"] for entry in before} == {"1": 5, "2": 1}
    assert state(spark, tmp_path / "checkpoint", stateVarName="session") == []
    assert state(spark, tmp_path / "checkpoint", readRegisteredTimers="true") == []


def test_the_gap_rule_move_by_move(spark: "SparkSession", tmp_path: Path) -> None:
    batches: list[list[Event]] = [
        [("joined", seven(0)), ("joined", seven(18)), ("moved", seven(12)), ("edge", seven(0)), ("apart", seven(0))],
        [("joined", seven(9)), ("moved", seven(4)), ("edge", seven(10)), ("apart", seven(10) + MICROSECOND)],
        # The watermark goes to 07:20: the first session of `apart` ends, and `edge` at exactly 07:20.
        [("clock", seven(35))],
        # Late by a minimum; then in time, but too late for the closed session: the visit returns.
        [("edge", seven(20)), ("edge", seven(20) + MICROSECOND)],
    ]
    records = [[visit(event) for event in batch] for batch in batches]
    results = run_batches(spark, sessions(), records, checkpoint=tmp_path / "checkpoint")
    micro = MICROSECOND / timedelta(minutes=1)
    assert [rows(batch) for batch in results] == [
        [
            published("apart", 0, 0, 1),
            published("edge", 0, 0, 1),
            *(published("joined", 0, 0, 1), published("joined", 18, 18, 1)),
            published("moved", 12, 12, 1),
        ],
        [],
        [
            published("apart", 10 + micro, 10 + micro, 1),
            published("edge", 0, 10, 2),
            *(withdrawn("joined", 18, 18), published("joined", 0, 18, 3)),
            *(withdrawn("moved", 12, 12), published("moved", 4, 12, 2)),
        ],
        [published("clock", 35, 35, 1)],
        [published("apart", 0, 0, 1, is_finished=True), published("edge", 0, 10, 2, is_finished=True)],
        [published("edge", 20 + micro, 20 + micro, 1)],
    ]
    assert [batch.late_rows for batch in results] == [0, 0, 0, 0, 0, 1]
    reading = select_state(CheckpointSnapshot(open_reader(str(tmp_path / "checkpoint"))), StateSelection())
    open_sessions = rows_of(spark, reading, {}, timezone.utc).rows
    assert [row["visit_id"] for row in open_sessions] == ["apart", "clock", "edge", "joined", "moved"]
    start = (seven(20) - EPOCH) // MICROSECOND + 1
    assert open_sessions[2] == {"visit_id": "edge", "start_us": start, "end_us": start, "visited_pages": 1}


def generated(seed: int, count: int, visits: int, start: datetime) -> list[Event]:
    """Events in order of arrival, none late: times on and next to edges, equal times, 14 minutes out of order."""
    choose = random.Random(seed)
    events: list[Event] = []
    for number in range(count):
        minute = number * 240 // count - choose.choice((0, 0, 0, 5, 10, 14))
        jitter = choose.choice((0, 0, 1, -1, 999, 30_000_000))
        events.append((f"visit {choose.randrange(visits)}", start + timedelta(minutes=minute, microseconds=jitter)))
    return events


def in_batches(events: Sequence[Event], size: int) -> list[list[dict[str, str]]]:
    return [[visit(event) for event in events[first : first + size]] for first in range(0, len(events), size)]


# In Europe/Paris an hour of this night is repeated, and an hour of the other is missing.
AUTUMN = datetime(2025, 10, 25, 23, tzinfo=timezone.utc)
SPRING = datetime(2025, 3, 29, 23, tzinfo=timezone.utc)


@pytest.mark.parametrize(("size", "start"), [(400, AUTUMN), (150, SPRING), (80, AUTUMN)])
def test_a_stream_ends_with_the_sessions_of_its_events(spark: "SparkSession", size: int, start: datetime) -> None:
    events = generated(size, 400, 12, start)
    stop = [visit(("stop", start + timedelta(days=1)))]
    pipeline = sessions(timezone="Europe/Paris")
    batches = run_batches(spark, pipeline, [*in_batches(events, size), stop])
    assert sum(batch.late_rows for batch in batches) == 0
    table = {key: row for key, row in upserted(batches).items() if key[0] != "stop"}
    assert all(row[4] for row in table.values())
    assert {row[:4] for row in table.values()} == expected(events)
    assert len(table) > 30


def test_buckets_are_spread_evenly_over_tasks(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    keys = spark.createDataFrame([(key,) for key in bucket_keys(24)], "bucket INT")
    for tasks in (2, 3, 8, 24):
        task = F.pmod(F.hash("bucket"), F.lit(tasks))  # as Spark's shuffle has it
        counted = keys.groupBy(task.alias("task")).count().collect()
        assert {row["task"]: row["count"] for row in counted} == dict.fromkeys(range(tasks), 24 // tasks)


def batch(spark: "SparkSession", pipeline: "Pipeline", events: list[Event]) -> list[Any]:
    frame = spark.createDataFrame(events, "visit_id STRING, event_time TIMESTAMP")
    rows_out: list[Any] = pipeline.transform(frame).toArrow().to_pylist()
    return rows_out


def test_a_batch_returns_only_the_final_sessions(spark: "SparkSession") -> None:
    events = generated(0, 1000, 20, AUTUMN)
    far = [("far", datetime(1, 1, 2, tzinfo=timezone.utc)), ("far", datetime(9999, 12, 30, tzinfo=timezone.utc))]
    sessions_out = rows(BatchResult(0, batch(spark, sessions(), [*events, *far])))
    assert {row[:4] for row in sessions_out} == expected([*events, *far])
    assert len(sessions_out) == len(expected([*events, *far]))
    assert {row[4:] for row in sessions_out} == {(True, False)}


def test_a_batch_by_the_timer_rule_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(PipelineError, match="Use the rule gap"):
        batch(spark, sessions(rule="timer"), [("1", SEVEN)])


def test_a_wrong_parameter_is_refused() -> None:
    with pytest.raises(PipelineError, match="buckets is 0; expected 1 or more"):
        sessions(buckets=0)
    with pytest.raises(PipelineError, match=r"Unknown session rule 'timers'; .* Did you mean 'timer'\?"):
        sessions(rule="timers")
    with pytest.raises(SettingsError, match="'soon' is not a duration"):
        sessions(gap="soon")


def test_a_withdrawn_session_is_a_tombstone_on_kafka(
    spark: "SparkSession", kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    assert sessions().sink == KafkaSink("visit_sessions", ("visit_id", "session_start"), withdrawn="withdrawn")
    assert sessions(rule="timer").sink == KafkaSink("visit_sessions", ("visit_id",))
    frame = spark.createDataFrame([("1", 0, True), ("1", 3, False), ("2", 4, None)], "id STRING, n INT, gone BOOLEAN")
    KafkaSink(topic, key=("id", "n"), withdrawn="gone").write(
        frame, WriteContext("sessions", 0, kafka, Settings(home=tmp_path))
    )
    records_by_key = {record.key: record.value for record in consumer.read(kafka, topic)}
    assert {key: value and json.loads(value) for key, value in records_by_key.items()} == {
        b'{"id":"1","n":0}': None,
        b'{"id":"1","n":3}': {"id": "1", "n": 3},
        b'{"id":"2","n":4}': {"id": "2", "n": 4},
    }
