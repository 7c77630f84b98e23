"""Kafka goes down and returns; Python workers start late: a run waits, resumes, and loses and repeats nothing."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.errors import QueryError
from respool.kafka import consumer, outage, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.local import broker
from respool.pipeline.definition import Pipeline
from respool.pipeline.registry import find_pipeline
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 120
# Spark's client gives up within seconds instead of minutes, so that queries fail while the broker is down.
IMPATIENT = {
    "default.api.timeout.ms": "2000",
    "request.timeout.ms": "1500",
    "max.block.ms": "2000",
    "delivery.timeout.ms": "2000",
    "linger.ms": "0",
}


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """A separate broker that can be stopped and started again with the same address and records."""

    settings: Settings
    pid: int

    @property
    def kafka(self) -> KafkaCluster:
        return KafkaCluster(f"127.0.0.1:{self.settings.broker_port}")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def stop(self) -> None:
        broker.stop(self.settings.home)

    def come_back(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        self.pid = broker.start(self.settings, self.settings.broker_port).pid


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = Settings(home=tmp_path_factory.mktemp("away"), broker_port=free_port())
    cluster = Cluster(settings, broker.start(settings).pid)
    try:
        yield cluster
    finally:
        with suppress(ProcessLookupError):
            os.kill(cluster.pid, signal.SIGCONT)
        broker.stop(settings.home)


@pytest.fixture
def cluster(away: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(outage, "_EVERY", 0.5)
    monkeypatch.setattr(outage, "_TIMEOUT", 2.0)
    away.come_back()
    return away


@dataclass
class Watched:
    """A run in a thread, and what it reported."""

    runner: Runner
    batches: list[BatchProgress]
    notes: list[str]
    errors: list[BaseException]
    thread: threading.Thread

    def end(self) -> None:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        for error in self.errors:
            raise error


@pytest.fixture
def running(spark: "SparkSession", settings: Settings, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def running(kafka: KafkaCluster, *pipelines: Pipeline, **options: Any) -> Iterator[Watched]:
        batches: list[BatchProgress] = []
        notes: list[str] = []
        errors: list[BaseException] = []
        here = replace(settings, home=tmp_path)
        wanted = RunOptions(**{"trigger": timedelta(0), "dead_letter": False, **options})
        with Runner(spark, kafka, here, wanted, batches.append, notes.append) as runner:
            runner.start(pipelines)

            def wait() -> None:
                try:
                    runner.wait()
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            try:
                yield Watched(runner, batches, notes, errors, thread)
            finally:
                runner.request_stop()
                thread.join(PATIENCE)

    return running


def copy(topic: str, name: str = "copy") -> Pipeline:
    """Return a pipeline that copies each record under its value as the key."""
    sink = KafkaSink(f"{topic}-{name}", key=("number",))
    return Pipeline(name, topic, lambda rows: rows.selectExpr("CAST(value AS STRING) number"), sink)


def produce(cluster: Cluster, topic: str, numbers: range) -> None:
    producer.produce(cluster.kafka, topic, [Message(None, str(number).encode()) for number in numbers])


def copied(cluster: Cluster, topic: str) -> set[int]:
    return {int(record.key or b"") for record in consumer.read(cluster.kafka, f"{topic}-copy")}


@pytest.mark.parametrize("fault", [Cluster.kill, Cluster.pause])
def test_a_run_resumes_after_an_outage(
    cluster: Cluster, running: Callable[..., Any], fault: Callable[[Cluster], None]
) -> None:
    topic = f"outage-{fault.__name__}"
    topics.create(cluster.kafka, topic, partitions=2)
    produce(cluster, topic, range(10))
    with running(replace(cluster.kafka, options=IMPATIENT), copy(topic)) as watched:
        wait_until(lambda: watched.batches)
        fault(cluster)
        wait_until(lambda: watched.runner._restarts.waiting())  # the query has failed
        wait_until(lambda: any("is unreachable since" in note for note in watched.notes))
        cluster.come_back()
        produce(cluster, topic, range(10, 20))
        wait_until(lambda: copied(cluster, topic) == set(range(20)))
        wait_until(lambda: len(watched.notes) == 2)
        watched.runner.request_stop()
        watched.end()
    began, ended = watched.notes
    assert f"Kafka at {cluster.kafka.bootstrap_servers} is unreachable since " in began
    assert "Kafka answers again at " in ended
    numbers = [batch.batch for batch in watched.batches]
    assert numbers == sorted(set(numbers))
    assert sum(batch.rows for batch in watched.batches) == 20
    # After an upsert by key each record is there once, with its own value.
    newest = {record.key: record.value for record in consumer.read(cluster.kafka, f"{topic}-copy")}
    assert newest == {str(number).encode(): f'{{"number":"{number}"}}'.encode() for number in range(20)}


def test_a_run_gives_up_after_the_time_that_it_was_given(cluster: Cluster, running: Callable[..., Any]) -> None:
    topics.create(cluster.kafka, "given-up", partitions=1)
    produce(cluster, "given-up", range(3))
    # With Spark's long timeouts: the query itself would wait for minutes.
    with running(cluster.kafka, copy("given-up"), give_up_after=timedelta(seconds=3)) as watched:
        wait_until(lambda: watched.batches)
        cluster.kill()
        start = time.monotonic()
        with pytest.raises(QueryError, match=r"Kafka does not answer, for more than 3 s.*--give-up-after"):
            watched.end()
        assert time.monotonic() - start < 30
    assert "for at most 3 s" in watched.notes[0]


def test_a_run_can_be_stopped_while_kafka_is_away(cluster: Cluster, running: Callable[..., Any]) -> None:
    topics.create(cluster.kafka, "stopped", partitions=1)
    produce(cluster, "stopped", range(3))
    with running(cluster.kafka, copy("stopped")) as watched:
        wait_until(lambda: watched.batches)
        cluster.pause()
        wait_until(lambda: watched.notes)
        start = time.monotonic()
        watched.runner.request_stop()
        watched.end()
        assert time.monotonic() - start < 30


def test_a_run_that_starts_before_kafka_waits_for_it(cluster: Cluster, running: Callable[..., Any]) -> None:
    topics.create(cluster.kafka, "early", partitions=1)
    produce(cluster, "early", range(3))
    cluster.stop()
    notes: list[str] = []
    waiting = threading.Thread(target=outage.wait_until_answers, args=(cluster.kafka, None, notes.append))
    waiting.start()
    wait_until(lambda: notes)
    cluster.come_back()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert ["unreachable" in notes[0], "answers again" in notes[1], len(notes)] == [True, True, 2]
    with running(cluster.kafka, copy("early"), available_now=True) as watched:
        watched.end()
    assert copied(cluster, "early") == {0, 1, 2}


def test_a_python_worker_that_starts_late_is_started_again(
    cluster: Cluster,
    running: Callable[..., Any],
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark waits 10 seconds for the worker with which a stateful query starts; a busy machine may take longer."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nseen={tmp_path}/seen\n"
        'case $2 in *driver_worker) if [ ! -e "$seen" ]; then touch "$seen"; sleep 12; fi;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    topics.create(cluster.kafka, "late-worker", partitions=1)
    visit = b'{"visit_id": "v1", "event_time": "2025-09-04T07:00:00", "page": "home"}'
    producer.produce(cluster.kafka, "late-worker", [Message(None, visit)])
    sessions = find_pipeline("sessions", {"topic": "late-worker", "output_topic": "late-worker-sessions"})
    with running(cluster.kafka, sessions, available_now=True) as watched:
        watched.end()
    assert [record.key for record in consumer.read(cluster.kafka, "late-worker-sessions")] != []
    interrupted = [note for note in watched.notes if "sessions is interrupted" in note]
    assert len(interrupted) == 1
    assert "a Python worker did not start in time" in interrupted[0]
    assert [note for note in watched.notes if note.startswith("sessions runs again")]
