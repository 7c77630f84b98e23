"""Mistakes of users, and faults under a running pipeline: one clear message, the next step, nothing changed."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.errors import CheckpointError, CheckpointInUseError, PipelineError, QueryError, TopicError
from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.pipeline.definition import Pipeline
from respool.running.claim import claim
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.console import FunctionSink
from respool.sinks.kafka import KafkaSink
from respool.spark import failures
from support.small_disk import fill, small_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PATIENCE = 120
LONG_PATIENCE = 400  # Spark asks Kafka three times for a topic that is gone, and waits a minute for each answer
MINE = """
from respool.pipeline.definition import Pipeline
from respool.sinks.console import ConsoleSink

orders = Pipeline("orders", "TOPIC", lambda rows: rows, ConsoleSink())
"""


def fails(result: "subprocess.CompletedProcess[str]", *expected: str) -> None:
    """Expect exit code 1, one message with all of these texts, and no stack trace."""
    assert result.returncode == 1, result.stderr
    for words in expected:
        assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("error: ")]) == 1
    assert result.stdout == ""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def put(kafka: KafkaCluster, topic: str, count: int) -> None:
    producer.produce(kafka, topic, (Message(None, str(number).encode()) for number in range(count)))


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Run:
    """Run `respool` in a folder of its own."""

    def run(*words: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [respool, *words],
            cwd=tmp_path,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


@dataclass
class Stage:
    """Where a small pipeline runs, in this process: it keeps the place of every record that it gets."""

    spark: "SparkSession"
    kafka: KafkaCluster
    settings: Settings
    checkpoint: Path
    got: list[tuple[int, int]] = field(default_factory=list)

    def pipeline(self, topic: str, name: str = "small") -> Pipeline:
        def keep(rows: "DataFrame", batch: int) -> None:
            self.got += [(row["partition"], row["offset"]) for row in rows.select("partition", "offset").collect()]

        return Pipeline(name, topic, lambda rows: rows, FunctionSink(keep, "keeps places"))

    def play(
        self,
        topic: str,
        available_now: bool = False,
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
        checkpoint: Path | None = None,
    ) -> None:
        """Run the pipeline until it ends."""
        where = str(checkpoint or self.checkpoint)
        options = RunOptions(dead_letter=False, trigger=timedelta(0), checkpoint=where, available_now=available_now)
        with Runner(self.spark, self.kafka, self.settings, options, on_progress, print) as runner:
            runner.start([self.pipeline(topic)])
            # If the failure does not occur, the test must fail, not hang.
            timer = threading.Timer(LONG_PATIENCE, runner.request_stop)
            timer.start()
            try:
                runner.wait()
            finally:
                timer.cancel()
                timer.join()


@pytest.fixture
def stage(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path) -> Stage:
    return Stage(spark, kafka, settings, tmp_path / "checkpoint")


def test_a_key_that_the_results_lack_is_reported_before_the_query_starts(
    stage: Stage, topic: str, tmp_path: Path
) -> None:
    wrong = Pipeline("small", topic, lambda rows: rows, KafkaSink(f"{topic}-results", key=("key", "ofset")))
    options = RunOptions(dead_letter=False, checkpoint=str(stage.checkpoint), available_now=True)
    with (
        Runner(stage.spark, stage.kafka, stage.settings, options, lambda _: None, print) as runner,
        pytest.raises(PipelineError, match=r"column 'ofset', which its results do not have .*Did you mean 'offset'\?"),
    ):
        runner.start([wrong])
    assert not (stage.checkpoint / "offsets").exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    with small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


# A port in use


def test_a_requested_port_that_is_taken_is_reported(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = run("broker", "start", "--port", port)
    fails(result, f"Port {port} is in use by another program. Choose another port, or leave --port out")
    assert set(contents(tmp_path)) <= {".respool/.broker.lock"}


# Unknown topic


@pytest.mark.parametrize("words", [["topic", "read"], ["topic", "read", "--follow"], ["topic", "produce"]])
def test_an_unknown_topic_is_reported_and_not_made(run: Run, kafka: KafkaCluster, topic: str, words: list[str]) -> None:
    unknown = f"{topic}s"
    result = run(*words, unknown, "--bootstrap-servers", kafka.bootstrap_servers)
    fails(result, f"There is no topic '{unknown}' at {kafka.bootstrap_servers}", f"respool topic create {unknown}")
    assert f"Did you mean '{topic}'?" in result.stderr
    assert unknown not in [listed.name for listed in topics.list_topics(kafka)]


def test_a_pipeline_of_an_unknown_topic_is_refused_before_spark_starts(
    run: Run, kafka: KafkaCluster, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("TOPIC", "no-such-topic"))
    begin = time.monotonic()
    result = run("run", "mine:orders", "--bootstrap-servers", kafka.bootstrap_servers)
    fails(result, "There is no topic 'no-such-topic'", "Create it with: respool topic create no-such-topic")
    assert "Starting Spark" not in result.stderr
    assert time.monotonic() - begin < 10
    assert not (tmp_path / ".respool").exists()


def test_a_runner_refuses_an_unknown_topic_before_it_makes_a_checkpoint(stage: Stage) -> None:
    with pytest.raises(TopicError, match="There is no topic 'no-such-topic'"):
        stage.play("no-such-topic")
    assert not stage.checkpoint.exists()


# No Java for Spark


@pytest.mark.parametrize("version", [None, "11.0.22"])
def test_a_pipeline_without_a_java_for_spark_is_reported(
    run: Run, kafka: KafkaCluster, topic: str, tmp_path: Path, version: str | None
) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("TOPIC", topic))
    (tmp_path / "bin").mkdir()
    problem = "No Java was found"
    if version:
        problem = f"is Java {version}; respool needs Java 17 or newer"
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    result = run(
        *("run", "mine:orders", "--bootstrap-servers", kafka.bootstrap_servers),
        environ={"PATH": str(tmp_path / "bin"), "JAVA_HOME": ""},
    )
    fails(result, problem, "Install a JDK 17 or newer")
    assert not (tmp_path / ".respool" / "checkpoints").exists()


# A checkpoint of another pipeline, or in use


def test_a_checkpoint_of_another_pipeline_is_refused(stage: Stage, topic: str) -> None:
    held = claim(str(stage.checkpoint), stage.pipeline(topic, "first"))
    assert held is not None
    held.close()
    before = contents(stage.checkpoint)
    message = rf"belongs to the pipeline first, which reads {topic}; expected second, .* name another .* --checkpoint"
    with pytest.raises(CheckpointError, match=message):
        claim(str(stage.checkpoint), stage.pipeline(topic, "second"))
    with pytest.raises(CheckpointError, match=r"reads .*; expected first, which reads another-topic"):
        claim(str(stage.checkpoint), stage.pipeline("another-topic", "first"))
    with pytest.raises(CheckpointError, match=r"belongs to the pipeline first, which reads .*; expected small"):
        stage.play(topic)
    assert contents(stage.checkpoint) == before


def test_a_checkpoint_that_plain_spark_made_of_another_topic_is_refused(stage: Stage, topic: str) -> None:
    put(stage.kafka, topic, 3)
    reader = stage.spark.readStream.format("kafka").options(**stage.kafka.for_spark()).option("subscribe", topic)
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(stage.checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    before = contents(stage.checkpoint)
    assert "offsets/0" in before

    other = f"{topic}-other"
    topics.create(stage.kafka, other)
    message = rf"is of a query that reads {topic}; the pipeline small reads {other}. .* --checkpoint"
    with pytest.raises(CheckpointError, match=message):
        stage.play(other)
    assert contents(stage.checkpoint) == before
    # A checkpoint that reads the same topic is accepted.
    held = claim(str(stage.checkpoint), stage.pipeline(topic))
    assert held is not None
    held.close()


def test_a_checkpoint_in_use_is_refused(stage: Stage, topic: str) -> None:
    held = claim(str(stage.checkpoint), stage.pipeline(topic))
    assert held is not None
    try:
        before = contents(stage.checkpoint)
        message = (
            rf"{stage.checkpoint} is in use by process {os.getpid()}. Stop that run of the pipeline small first, or"
        )
        with pytest.raises(CheckpointInUseError, match=message) as caught:
            stage.play(topic)
        assert caught.value.holder == f"process {os.getpid()}"
        assert contents(stage.checkpoint) == before
    finally:
        held.close()


def test_a_folder_that_is_not_a_checkpoint_is_refused(stage: Stage, topic: str) -> None:
    stage.checkpoint.write_text("a letter")
    with pytest.raises(CheckpointError, match=r"is a file; expected a folder. Name another with --checkpoint"):
        stage.play(topic)
    assert stage.checkpoint.read_text() == "a letter"


def test_a_checkpoint_whose_owner_cannot_be_read_is_refused(stage: Stage, topic: str) -> None:
    (stage.checkpoint / "_respool").mkdir(parents=True)
    (stage.checkpoint / "_respool" / "run.json").write_text(json.dumps({"pipeline": "small"})[:-3])
    with pytest.raises(CheckpointError, match=r"run\.json is damaged: .*Move it away"):
        stage.play(topic)


# A topic that vanished


def test_a_topic_that_vanishes_under_a_running_pipeline_is_reported(stage: Stage, topic: str) -> None:
    put(stage.kafka, topic, 10)
    with pytest.raises(QueryError) as caught:
        stage.play(topic, on_progress=lambda _: topics.delete(stage.kafka, topic))
    message = str(caught.value)
    assert message.startswith("The pipeline small has failed. A topic that it uses is gone. ")
    assert "respool topic create" in message
    assert f"move {stage.checkpoint} away" in message
    assert "\tat " not in message
    assert len(stage.got) == 10


def test_a_topic_that_vanished_between_two_runs_is_reported(stage: Stage, topic: str) -> None:
    put(stage.kafka, topic, 10)
    stage.play(topic, available_now=True)
    before = contents(stage.checkpoint)
    topics.delete(stage.kafka, topic)
    with pytest.raises(TopicError, match=rf"There is no topic '{topic}'.*Create it with: respool topic create {topic}"):
        stage.play(topic, available_now=True)
    assert contents(stage.checkpoint) == before

    # Created again, with fewer records: the checkpoint stands behind the end of the new topic.
    topics.create(stage.kafka, topic, partitions=2)
    put(stage.kafka, topic, 2)
    with pytest.raises(QueryError) as caught:
        stage.play(topic, available_now=True)
    message = str(caught.value)
    assert "are no longer in Kafka: the topic was recreated or its retention passed" in message
    assert f"start over without its checkpoint: move {stage.checkpoint} away" in message
    assert f"Spark says: Partition {topic}-" in message
    assert len(stage.got) == 10

    # The reported step helps.
    stage.checkpoint.rename(stage.checkpoint.with_name("away"))
    stage.play(topic, available_now=True)
    assert len(stage.got) == 12


# A full disk


def test_a_disk_that_fills_up_under_a_running_pipeline_is_reported(stage: Stage, topic: str, disk: Path) -> None:
    def fill_and_go_on(_: BatchProgress) -> None:
        fill(disk)
        put(stage.kafka, topic, 5)

    put(stage.kafka, topic, 10)
    checkpoint = disk / "checkpoint"
    with pytest.raises(QueryError) as caught:
        stage.play(topic, on_progress=fill_and_go_on, checkpoint=checkpoint)
    message = str(caught.value)
    assert message.startswith("The pipeline small has failed. The disk is full. Free some space and run this again")
    assert "No space left on device" in message

    # The reported step helps: no record is missing, and none of a finished batch is replayed.
    (disk / "filler").unlink()
    stage.play(topic, available_now=True, checkpoint=checkpoint)
    assert len(set(stage.got)) == 15
    assert len(stage.got) == 15


def test_a_home_on_a_full_disk_is_reported(
    run: Run, kafka: KafkaCluster, topic: str, tmp_path: Path, disk: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("TOPIC", topic))
    fill(disk)
    home = disk / "home"
    fails(
        run("broker", "start", "--home", str(home)),
        f"The disk that holds {home} is full, or nearly so",
        "Free some space, or choose a home on another disk with --home",
    )
    fails(
        run("run", "mine:orders", "--home", str(home), "--bootstrap-servers", kafka.bootstrap_servers),
        "is full. Free some space and run this again",
    )
    assert not (home / "broker").exists()
    assert not (home / "checkpoints").exists()


# What is made of Spark's words


STREAM = "\n=== Streaming Query ===\nIdentifier: small [id = 1]\nLogical Plan:\nProject [Authorization#1, SASL#2]\n"


@pytest.mark.parametrize(
    ("spark_says", "cause"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Call(callName=listOffsets) timed out",
            "Kafka does not answer",
        ),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: no", "Kafka refuses the credentials"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: no", "Kafka refuses the credentials"),
        ("org.apache.kafka.common.errors.RecordTooLargeException: big", "A record is larger than its topic accepts"),
        ("java.io.IOException: No space left on device", "The disk is full"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "Another query writes to the same checkpoint"),
        ("Traceback (most recent call last):\nValueError: Authentication timed out", "has failed: ValueError: Auth"),
        ("py4j.protocol.Py4JJavaError: An error occurred.\n: x\nCaused by: a.B: why", "has failed: a.B: why\n"),
        ("something new", "The pipeline small has failed: something new\n"),
        ("", "The pipeline small has failed: no reason was given\n"),
    ],
)
def test_a_failure_is_reported_by_its_cause_alone(spark_says: str, cause: str) -> None:
    message = str(failures.classify("small", Exception(spark_says + STREAM), "cp").message)
    assert cause in message
    if "\n" in cause or "ValueError" in cause:
        assert "respool --debug run" in message


def test_a_long_failure_is_cut() -> None:
    assert len(str(failures.classify("small", Exception("x" * 10_000), "cp").message)) < 600
