"""Queries start, report their batches, and stop when they should; rejected records are kept."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from respool.decoders.json import JsonDecoder
from respool.errors import CheckpointError, PipelineError, QueryError
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.pipeline.definition import Pipeline
from respool.running import runner as runner_module
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress, Event, event_listener
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.console import ConsoleSink, FunctionSink
from respool.sinks.kafka import KafkaSink, RejectedSink
from respool.storage.lease import Lease
from respool.visits.counts import VISIT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 120


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def visit(number: int) -> Message:
    value = f'{{"visit_id": "v{number}", "event_time": "2025-09-04T07:00:00", "page": "home"}}'
    return Message(b"key", value.encode())


@dataclass
class Watched:
    """A runner in a thread, and what it reported."""

    runner: Runner
    batches: list[BatchProgress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def wait(self) -> None:
        try:
            self.runner.wait()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        assert self.thread is not None
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error


@dataclass(frozen=True)
class Stage:
    """Where the pipelines of a test run."""

    spark: "SparkSession"
    kafka: KafkaCluster
    settings: Settings

    @contextmanager
    def running(self, *pipelines: Pipeline, **options: Any) -> Iterator[Watched]:
        batches: list[BatchProgress] = []
        notes: list[str] = []
        wanted = RunOptions(**{"trigger": timedelta(0), **options})
        with Runner(self.spark, self.kafka, self.settings, wanted, batches.append, notes.append) as runner:
            runner.start(pipelines)
            watched = Watched(runner, batches, notes)
            watched.thread = threading.Thread(target=watched.wait)
            watched.thread.start()
            try:
                yield watched
            finally:
                runner.request_stop()
                watched.thread.join(PATIENCE)

    def run(self, *pipelines: Pipeline, **options: Any) -> Watched:
        """Run over all existing records."""
        with self.running(*pipelines, available_now=True, **options) as watched:
            watched.end()
        return watched


@pytest.fixture
def stage(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path) -> Stage:
    return Stage(spark, kafka, replace(settings, home=tmp_path))


def collecting(
    topic: str, name: str = "collecting", also: Callable[[int], None] = lambda batch: None
) -> tuple[Pipeline, list[tuple[int, str]]]:
    rows: list[tuple[int, str]] = []

    def write(frame: "DataFrame", batch: int) -> None:
        rows.extend((batch, row.visit_id) for row in frame.collect())
        also(batch)

    sink = FunctionSink(write, "a list")
    return Pipeline(name, topic, lambda events: events.select("visit_id"), sink, decode=VISIT), rows


BAD = [
    Message(b"a", b"not json"),
    Message(None, None),
    Message(b"\xff", b"\xff\xfe\x00"),
    Message(b"b", b'{"visit_id": "v1"}'),
    Message(b"c", b'{"visit_id": "v1", "event_time": "soon"}'),
    Message(b"d", b"x" * 10_000_000),
]


def test_rejected_records_are_counted_and_kept_unchanged(stage: Stage, topic: str) -> None:
    messages = [visit(1), *BAD[:3], visit(2), *BAD[3:], visit(3)]
    producer.produce(stage.kafka, topic, messages)
    pipeline, rows = collecting(topic)
    watched = stage.run(pipeline)

    assert sorted(row for _, row in rows) == ["v1", "v2", "v3"]
    assert sum(batch.rejected for batch in watched.batches if batch.pipeline == "collecting") == len(BAD)
    source = {(record.partition, record.offset): record for record in consumer.read(stage.kafka, topic)}
    kept = list(consumer.read(stage.kafka, f"{topic}-rejected"))
    assert len(kept) == len(BAD)
    reasons = {}
    for record in kept:
        headers = dict(record.headers)
        assert headers["respool-topic"] == topic.encode()
        place = (int(headers["respool-partition"] or b""), int(headers["respool-offset"] or b""))
        assert (record.key, record.value) == (source[place].key, source[place].value)
        reasons[record.key] = headers["respool-reason"]
    assert reasons == {
        b"a": b"not JSON",
        None: b"no value",
        b"\xff": b"not UTF-8",
        b"b": b"event_time is missing",
        b"c": b"event_time is not readable",
        b"d": b"not JSON",
    }


def test_no_dead_letter_leaves_no_topic_behind(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1), BAD[0]])
    pipeline, rows = collecting(topic)
    watched = stage.run(pipeline, dead_letter=False)
    assert [row for _, row in rows] == ["v1"]
    assert [batch.rejected for batch in watched.batches] == [1]
    assert f"{topic}-rejected" not in [listed.name for listed in topics.list_topics(stage.kafka)]


def test_a_stop_waits_for_the_running_batch_and_starts_no_other(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(number) for number in range(50)])
    inside, go_on = threading.Event(), threading.Event()

    def hold(batch: int) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    pipeline, rows = collecting(topic, also=hold)
    with stage.running(pipeline, max_offsets_per_trigger=10, dead_letter=False) as watched:
        assert inside.wait(PATIENCE)
        watched.runner.request_stop()
        # Requested in another thread. The batch may end only after it, or the next batch is planned before the stop.
        [query] = watched.runner._queries.values()
        state = query._jsq.streamingQuery().state()
        while state.get().toString() != "TERMINATED":
            time.sleep(0.01)
        go_on.set()
        watched.end()
    assert {batch for batch, _ in rows} == {0}
    assert [batch.batch for batch in watched.batches] == [0]
    checkpoint = Path(stage.settings.checkpoint_store) / "collecting"
    assert (checkpoint / "commits" / "0").is_file()
    assert not (checkpoint / "offsets" / "1").exists()

    # The next run processes the rest: nothing is duplicated or missed.
    stage.run(pipeline, dead_letter=False)
    assert sorted(row for _, row in rows) == sorted(f"v{number}" for number in range(50))


def test_every_batch_is_reported_even_if_the_events_of_spark_are_lost(
    stage: Stage, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = SimpleQueue[Event]()
    monkeypatch.setattr(runner_module, "event_listener", lambda name, put: event_listener(name, lost.put))
    producer.produce(stage.kafka, topic, [visit(number) for number in range(30)])
    pipeline, rows = collecting(topic)
    watched = stage.run(pipeline, max_offsets_per_trigger=10, dead_letter=False)
    assert [progress.batch for progress in watched.batches] == sorted({batch for batch, _ in rows})
    assert sum(batch.rows for batch in watched.batches) == len(rows) == 30


def failing(topic: str) -> Pipeline:
    def fail(batch: int) -> None:
        raise ValueError("the sink is on fire")

    bad, _ = collecting(topic, "bad", also=fail)
    return bad


def test_a_failed_pipeline_does_not_stop_the_others(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1)])
    good, rows = collecting(topic, "good")
    with stage.running(good, failing(topic), dead_letter=False) as watched:
        wait_until(lambda: any("The pipeline bad has failed" in note for note in watched.notes))
        producer.produce(stage.kafka, topic, [visit(2)])
        wait_until(lambda: "v2" in [row for _, row in rows])
        watched.runner.request_stop()
        with pytest.raises(QueryError, match=r"The pipeline bad has failed.*the sink is on fire"):
            watched.end()
    assert sorted(row for _, row in rows) == ["v1", "v2"]


def test_fail_fast_stops_the_others_after_their_batch(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1)])
    good, rows = collecting(topic, "good")
    with (
        stage.running(good, failing(topic), dead_letter=False, fail_fast=True) as watched,
        pytest.raises(QueryError, match=r"The pipeline bad has failed.*the sink is on fire"),
    ):
        watched.end()
    assert [row for _, row in rows] == ["v1"]
    assert (Path(stage.settings.checkpoint_store) / "good" / "commits" / "0").is_file()


def test_a_run_whose_pipelines_have_all_failed_ends(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1)])
    with stage.running(failing(topic)) as watched, pytest.raises(QueryError, match="The pipeline bad has failed"):
        watched.end()  # its companion, which could run on, has stopped, too


def test_a_failed_companion_does_not_stop_the_pipelines(
    stage: Stage, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no room for rejected records")

    monkeypatch.setattr(RejectedSink, "write", fail)
    producer.produce(stage.kafka, topic, [visit(1), BAD[0]])
    pipeline, rows = collecting(topic)
    with stage.running(pipeline) as watched:
        wait_until(lambda: any("no room for rejected records" in note for note in watched.notes))
        producer.produce(stage.kafka, topic, [visit(2)])
        wait_until(lambda: "v2" in [row for _, row in rows])
        watched.runner.request_stop()
        with pytest.raises(QueryError, match="no room for rejected records"):
            watched.end()
    monkeypatch.undo()
    stage.run(pipeline)  # nothing was lost: its checkpoint has not moved
    assert [record.key for record in consumer.read(stage.kafka, f"{topic}-rejected")] == [b"a"]


def test_a_record_that_two_decoders_reject_is_kept_once_with_both_reasons(stage: Stage, topic: str) -> None:
    order = JsonDecoder("order_id STRING NOT NULL, at TIMESTAMP", "at")
    visits, _ = collecting(topic, "visits")
    orders = replace(visits, name="orders", decode=order, transform=lambda rows: rows.selectExpr("order_id visit_id"))
    both = b'{"visit_id": "v", "event_time": "2025-09-04T07:00:00", "order_id": "o", "at": "2025-09-04T07:00:00"}'
    only_order = b'{"order_id": "o", "at": "2025-09-04T07:00:00"}'
    messages = [visit(1), Message(b"both", both), Message(b"order", only_order), Message(b"none", b"not json"), BAD[3]]
    producer.produce(stage.kafka, topic, messages)
    stage.run(visits, orders)
    kept = {record.key: dict(record.headers) for record in consumer.read(stage.kafka, f"{topic}-rejected")}
    reasons = {key: (headers["respool-reason"], headers["respool-rejected-by"]) for key, headers in kept.items()}
    assert reasons == {
        b"key": (b"at is missing", b"orders"),
        b"order": (b"event_time is missing", b"visits"),
        b"none": (b"not JSON", b"visits, orders"),
        b"b": (b"event_time is missing; at is missing", b"visits, orders"),
    }
    # Each once, also in a later run of the same two.
    producer.produce(stage.kafka, topic, [Message(b"later", b"[]")])
    stage.run(orders, visits)
    assert len(list(consumer.read(stage.kafka, f"{topic}-rejected"))) == len(reasons) + 1


def test_a_decoder_is_applied_by_one_process_in_every_mix_of_runs(stage: Stage, topic: str) -> None:
    order = JsonDecoder("order_id STRING NOT NULL, at TIMESTAMP", "at")
    visits, _ = collecting(topic, "visits")
    other, _ = collecting(topic, "other")
    orders = replace(visits, name="orders", decode=order, transform=lambda rows: rows.selectExpr("order_id visit_id"))
    producer.produce(stage.kafka, topic, [visit(1)])  # rejected by the decoder of the orders only
    with stage.running(visits), stage.running(other, orders) as mixed:
        assert [note for note in mixed.notes if "are kept by process" in note]
        producer.produce(stage.kafka, topic, [BAD[3]])
        kept = consumer.read(stage.kafka, f"{topic}-rejected", follow=True, limit=3)
        assert sorted(key.key or b"" for key in kept) == [b"b", b"b", b"key"]


def test_a_large_record_passes_to_kafka(stage: Stage, kafka: KafkaCluster) -> None:
    source = f"large-{uuid.uuid4().hex[:8]}"
    topics.create(kafka, source, partitions=1, config={"max.message.bytes": str(40 * 2**20)})
    value = f'{{"visit_id": "v", "event_time": "2025-09-04T07:00:00", "page": "{"x" * 10_000_000}"}}'
    producer.produce(kafka, source, [Message(b"good", value.encode()), Message(b"bad", b"y" * 10_000_000)])
    copy = Pipeline(
        "copy", source, lambda rows: rows.select("visit_id", "page"), KafkaSink(f"{source}-copy", ("visit_id",)), VISIT
    )
    stage.run(copy)
    [sent] = consumer.read(kafka, f"{source}-copy")
    assert json.loads(sent.value or b"") == {"visit_id": "v", "page": "x" * 10_000_000}
    [rejected] = consumer.read(kafka, f"{source}-rejected")
    assert rejected.value == b"y" * 10_000_000
    # What respool creates accepts all that the source accepts, whatever the broker's default is.
    for name in (f"{source}-copy", f"{source}-rejected"):
        assert (topics.max_message_bytes(kafka, name) or 0) > 40 * 2**20


def test_rejected_records_have_one_keeper(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1), BAD[0]])
    first, _ = collecting(topic, "first")
    second, _ = collecting(topic, "second")
    with stage.running(second) as later:
        with stage.running(first) as sooner:
            assert [note for note in sooner.notes if "are kept by process" in note]
        producer.produce(stage.kafka, topic, [BAD[3]])
        kept = consumer.read(stage.kafka, f"{topic}-rejected", follow=True, limit=2)
        assert {record.key for record in kept} == {b"a", b"b"}
        assert not later.notes
    third, _ = collecting(topic, "third")
    stage.run(third)
    assert len(list(consumer.read(stage.kafka, f"{topic}-rejected"))) == 2


def test_a_waiting_run_takes_over_the_rejected_records(stage: Stage, topic: str) -> None:
    producer.produce(stage.kafka, topic, [visit(1), BAD[0]])
    first, _ = collecting(topic, "first")
    second, _ = collecting(topic, "second")
    with stage.running(first) as sooner, stage.running(second) as later:
        assert later.notes
        sooner.runner.request_stop()
        sooner.end()
        # The claim is released when the first run ends; here explicitly, as the end of a process would.
        sooner.runner.__exit__()
        producer.produce(stage.kafka, topic, [BAD[3]])
        kept = consumer.read(stage.kafka, f"{topic}-rejected", follow=True, limit=2)
        assert {record.key for record in kept} == {b"a", b"b"}


def test_a_checkpoint_has_one_pipeline_and_one_process(stage: Stage, topic: str, kafka: KafkaCluster) -> None:
    producer.produce(kafka, topic, [visit(1)])
    pipeline, _ = collecting(topic)
    where = str(stage.settings.home / "shared")
    with (
        stage.running(pipeline, checkpoint=where, dead_letter=False),
        pytest.raises(CheckpointError, match="is in use by process"),
    ):
        stage.run(pipeline, checkpoint=where)
    other, rows = collecting(topic, "other")
    with pytest.raises(CheckpointError, match="belongs to the pipeline collecting"):
        stage.run(other, checkpoint=where)
    assert rows == []


def test_a_run_that_lost_its_lease_stops_its_queries(
    stage: Stage, topic: str, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.produce(kafka, topic, [visit(1)])
    calls: list[Callable[[str], None]] = []
    monkeypatch.setattr(Lease, "on_lost", lambda self, call: calls.append(call))
    pipeline, _ = collecting(topic)
    with stage.running(pipeline, dead_letter=False) as watched:
        [query] = watched.runner._queries.values()
        calls[0]("The lease is lost.")
        with pytest.raises(CheckpointError, match=r"The lease is lost\."):
            watched.end()
        assert not query.isActive


def test_results_in_kafka_have_a_key_and_headers_with_their_origin(stage: Stage, topic: str) -> None:
    from pyspark.sql import functions as F

    producer.produce(stage.kafka, topic, [visit(1), visit(1), visit(2)])
    counts = Pipeline(
        name="counts",
        topic=topic,
        decode=VISIT,
        watermark="10 minutes",
        transform=lambda events: events.groupBy(F.window("event_time", "10 minutes"), "visit_id").count(),
        output_mode="update",
        sink=KafkaSink(f"{topic}-counts", key=("visit_id",)),
        timezone="Europe/Paris",
    )
    watched = stage.run(counts, dead_letter=False)
    results = {record.key: record for record in consumer.read(stage.kafka, f"{topic}-counts")}
    window = '{"start":"2025-09-04T07:00:00.000+02:00","end":"2025-09-04T07:10:00.000+02:00"}'
    assert results[b"v1"].value == f'{{"window":{window},"visit_id":"v1","count":2}}'.encode()
    assert dict(results[b"v2"].headers) == {
        "respool-source": b"live",
        "respool-pipeline": b"counts",
        "respool-batch": b"0",
    }
    first = watched.batches[0]
    assert (first.rows, first.state_rows, first.late_rows, first.watermark) == (3, 2, 0, None)


def test_the_console_shows_tables_as_spark_draws_them(
    stage: Stage, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.produce(stage.kafka, topic, [visit(1)])
    pipeline, rows = collecting(topic)
    stage.run(pipeline, console=True, dead_letter=False)
    line = "-" * 43
    table = "+--------+\n|visit_id|\n+--------+\n|v1      |\n+--------+\n"
    assert capsys.readouterr().out == f"{line}\nBatch: 0\n{line}\n{table}\n"
    assert rows == []
    assert ConsoleSink().describe() == "console"


def test_a_wrong_schema_is_reported_before_anything_runs(stage: Stage, topic: str) -> None:
    pipeline, _ = collecting(topic)
    with pytest.raises(PipelineError, match="is not readable"):
        stage.run(replace(pipeline, decode=JsonDecoder("visit_id TEXTT", "visit_id")))
