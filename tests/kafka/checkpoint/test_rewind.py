"""A respool pipeline is rewound: replayed results, records that Kafka no longer has, a query that runs."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.kafka import cluster, consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.consumer import Record
from respool.kafka.producer import Message
from respool.pipeline.definition import Pipeline
from respool.running.options import RunOptions
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.kafka import KafkaSink
from respool.visits.counts import VISIT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Command = Callable[..., "subprocess.CompletedProcess[str]"]
RECORDS = 6


@pytest.fixture
def home(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, tmp_path: Path) -> Path:
    """A home in which the pipeline `counts` has run three batches of two records each."""
    for number in range(RECORDS):
        value = f'{{"visit_id": "v{number % 2}", "event_time": "2025-09-04T07:00:00", "page": "home"}}'
        producer.produce(kafka, topic, [Message(b"key", value.encode())])
    run(spark, kafka, settings, topic, tmp_path)
    return tmp_path


def counts(topic: str) -> Pipeline:
    def count(events: "DataFrame") -> "DataFrame":
        return events.groupBy("visit_id").count()

    sink = KafkaSink(f"{topic}-counts", key=("visit_id",))
    return Pipeline("counts", topic, count, sink, decode=VISIT, output_mode="update")


def run(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, home: Path) -> None:
    options = RunOptions(available_now=True, max_offsets_per_trigger=2, dead_letter=False)
    with Runner(spark, kafka, replace(settings, home=home), options, lambda _: None, lambda _: None) as runner:
        runner.start([counts(topic)])
        runner.wait()


@pytest.fixture
def checkpoint(respool: str, kafka: KafkaCluster, home: Path) -> Command:
    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [respool, "checkpoint", *words, "--home", str(home)]
        if words[0] == "rewind":
            command += ["--bootstrap-servers", kafka.bootstrap_servers]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return call


def results(kafka: KafkaCluster, topic: str) -> list[tuple[str, bytes | None, bytes | None]]:
    """The results with the batch that their header names, in the order of their offsets."""

    def batch_of(record: Record) -> str:
        return (dict(record.headers)["respool-batch"] or b"").decode()

    return [(batch_of(record), record.key, record.value) for record in consumer.read(kafka, f"{topic}-counts")]


def test_the_results_of_rewound_batches_are_published_again_under_the_same_keys(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, home: Path, checkpoint: Command
) -> None:
    first = results(kafka, topic)
    assert {batch for batch, _, _ in first} == {"0", "1", "2"}
    done = checkpoint("rewind", "counts", "--to-batch", "1", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"Kafka topic {topic}-counts: Results are sent to {topic}-counts again, under the same keys" in done.stdout
    assert "Kafka, 4 records" in done.stdout
    run(spark, kafka, settings, topic, home)
    again = results(kafka, topic)[len(first) :]
    assert sorted(again) == sorted(result for result in first if result[0] != "0")


def test_records_that_kafka_has_deleted_stop_a_rewind(kafka: KafkaCluster, topic: str, checkpoint: Command) -> None:
    from confluent_kafka import TopicPartition

    ends = topics.end_offsets(kafka, topic)
    cut = [TopicPartition(topic, number, min(2, end)) for number, end in ends.items()]
    admin = cluster.admin_client(kafka)
    for future in admin.delete_records(cut).values():
        future.result(timeout=60)
    refused = checkpoint("rewind", "counts", "--to-batch", "0", "--yes")
    assert refused.returncode == 1
    lost = [part for part in cut if part.offset]
    for part in lost:
        assert f"Kafka no longer has {part.offset} of the records of {topic}-{part.partition}" in refused.stdout
    assert "--allow-data-loss" in refused.stdout
    done = checkpoint("rewind", "counts", "--to-batch", "0", "--allow-data-loss", "--yes", "--json")
    assert json.loads(done.stdout)["done"] is True


def test_a_pipeline_that_runs_is_not_rewound(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, home: Path, checkpoint: Command
) -> None:
    options = RunOptions(trigger=timedelta(seconds=1), dead_letter=False)
    with Runner(spark, kafka, replace(settings, home=home), options, lambda _: None, lambda _: None) as runner:
        runner.start([counts(topic)])
        refused = checkpoint("rewind", "counts", "--to-batch", "1", "--yes")
        assert refused.returncode == 1
        assert "The query runs: process " in refused.stdout
        assert "Stop it first." in refused.stdout
        assert "now, in process " in checkpoint("show", "counts").stdout
    assert checkpoint("rewind", "counts", "--to-batch", "1", "--yes").returncode == 0
