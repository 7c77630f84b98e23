"""The examples of the public functions that need Spark and Kafka, on the shared broker and session."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool
from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from support.examples import examples_of, run_example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def minute(number: int) -> bytes:
    hour, rest = divmod(number, 60)
    return json.dumps(
        {"visit_id": "v", "event_time": f"2025-09-04T{7 + hour:02}:{rest:02}:00", "page": "home"}
    ).encode()


def test_the_examples_work(
    spark: "SparkSession",
    kafka: KafkaCluster,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run live, archive, plan, preview, reprocess, audit, compare: in the order in which a user would."""

    @contextmanager
    def shared(_: Settings, **__: object) -> "Iterator[SparkSession]":
        yield spark  # a second session of one process would be the same, and its end would end it

    monkeypatch.setattr("respool.spark.session.spark_session", shared)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "respool.toml").write_text(f'bootstrap_servers = "{kafka.bootstrap_servers}"\n')
    for topic in ("api-visits", "totals", "totals-v2"):
        topics.create(kafka, topic, partitions=1)
    pipeline = respool.find_pipeline("visit-counts", topic="api-visits", output_topic="totals")
    producer.produce_together(kafka, "api-visits", [minute(number) for number in range(60)])
    notes: list[str] = []
    respool.run(pipeline, respool.archive_pipeline(pipeline), available_now=True, on_note=notes.append)
    assert any("api-visits → Kafka topic totals" in note for note in notes)
    # A later batch lets the watermark pass the hour, and a batch after it closes the windows.
    for number in (100, 101):
        producer.produce_together(kafka, "api-visits", [minute(number)])
        respool.run(pipeline, respool.archive_pipeline(pipeline), available_now=True)
    second = replace(pipeline, name="visit-counts-v2", sink=respool.KafkaSink("totals-v2", key=("window",)))
    respool.run(second, available_now=True)
    capsys.readouterr()

    plan = respool.plan_reprocess(pipeline, "2025-09-04T07:00Z", "2025-09-04T08:00Z")
    names: dict[str, Any] = {"respool": respool, "pipeline": pipeline, "plan": plan}
    for item in (
        respool.preview,
        respool.ReprocessPreview,
        respool.audit,
        respool.AuditReport,
        respool.reprocess,
        respool.ReprocessRun,
        respool.diff,
        respool.DiffReport,
        respool.start,
        respool.Runner,
    ):
        for example in examples_of(item):
            run_example(example, names)
    assert capsys.readouterr() == ("", "")  # the library does not print
    for example in examples_of(respool.run):
        run_example(example, names)
    report = respool.audit(plan)
    assert "6 windows compared: 0 wrong, 0 missing, 0 unexpected" in str(report)
    assert report.to_json()["same"] == 6
    for value in (report, respool.diff("kafka:totals", "kafka:totals-v2"), respool.preview(plan)):
        assert "\n" not in repr(value)
