"""respool's own pipelines with everything on a real S3 server: each command's result is that of a local run."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import respool
from respool.delta.log import open_table
from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from support.store_proxy import StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 180.0  # seconds
SPAN = ("2025-09-04T07:00Z", "2025-09-04T08:00Z")


def minute(number: int) -> bytes:
    hour, rest = divmod(number, 60)
    return json.dumps(
        {"visit_id": "v", "event_time": f"2025-09-04T{7 + hour:02}:{rest:02}:00", "page": "home"}
    ).encode()


def pipeline_of(topic: str) -> Pipeline:
    """Return counts of visits that go to a Delta table."""
    counts = respool.find_pipeline("visit-counts", topic=topic, output_topic=f"{topic}-unused")
    return replace(counts, name="totals", sink=respool.DeltaSink("totals", key=("window",)))


def rows_of(table: str) -> list[str]:
    """Return the rows of a table, without Spark."""
    opened: DeltaTable = open_table(table)
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in opened.to_pyarrow_table().to_pylist())


def outcome(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str) -> dict[str, Any]:
    """Run and use a pipeline; return every result that must not depend on where its files are."""
    facts: dict[str, Any] = {}
    pipeline = pipeline_of(topic)
    respool.run(
        pipeline,
        respool.archive_pipeline(pipeline),
        available_now=True,
        max_offsets_per_trigger=25,
        settings=settings,
        spark=spark,
    )
    results = f"{settings.result_store}/totals"
    facts["rows"] = rows_of(results)
    checkpoint = respool.Checkpoint("totals", settings=settings)
    facts["batches"] = checkpoint.summary().next_batch
    facts["state"] = checkpoint.state(spark=spark).rows
    assert checkpoint.verify().ok

    archive = respool.Archive(f"{topic}_table", settings=settings)
    facts["archived"] = archive.contents().records
    open_table(archive.location).delete("offset % 7 = 3")
    report = archive.verify()
    facts["broken"] = [check.name for check in report.broken]
    assert not report.ok
    repaired = archive.repair(pipeline=pipeline, spark=spark)
    facts["refilled"] = repaired.refilled
    facts["compacted"] = archive.compact(spark=spark).days
    assert archive.verify().ok

    plan = respool.plan_reprocess(pipeline, *SPAN, settings=settings)
    facts["audit"] = respool.audit(plan, spark=spark).to_json()["same"]
    spark.sql(f"UPDATE delta.`{for_spark(results)}` SET count = 999 WHERE minute(window.start) = 10")
    facts["wrong"] = len(respool.audit(plan, spark=spark).differences)
    respool.audit(plan, fix=True, spark=spark)
    facts["corrected"] = rows_of(results)
    output = f"{settings.storage}/again"
    facts["reprocessed"] = respool.reprocess(plan, output=output, spark=spark).results
    facts["again"] = rows_of(output)

    saved = respool.Savepoints(settings=settings).create(checkpoint, "second", batch=1)
    checkpoint.rewind(last=2, allow_data_loss=True)
    respool.run(pipeline, available_now=True, settings=settings, spark=spark)
    facts["replayed"] = rows_of(results)
    fork = saved.fork(f"{settings.storage}/fork")
    respool.run(
        pipeline, checkpoint=fork.location, sink_suffix="-2", available_now=True, settings=settings, spark=spark
    )
    facts["of the fork"] = rows_of(f"{results}-2")
    difference = respool.diff(f"delta:{results}", f"delta:{results}-2", spark=spark, settings=settings)
    facts["difference"] = len(difference.differences)
    checkpoint.apply(checkpoint.plan_promote(fork))
    facts["promoted"] = checkpoint.summary().next_batch
    facts["history"] = [change.operation for change in checkpoint.history()]
    assert checkpoint.verify().ok
    return facts


def test_every_result_is_that_of_a_local_run(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, s3a: str, tmp_path: Path
) -> None:
    topics.create(kafka, f"{topic}-unused", partitions=1)
    producer.produce_together(kafka, topic, [minute(number) for number in (*range(60), *range(100, 115))])
    outcomes = {}
    for name, storage in (("store", s3a), ("disk", str(tmp_path / "disk"))):
        own = replace(settings, home=tmp_path / name, storage=storage, bootstrap_servers=kafka.bootstrap_servers)
        outcomes[name] = outcome(spark, kafka, own, topic)
    assert {what: value for what, value in outcomes["store"].items() if outcomes["disk"][what] != value} == {}
    assert outcomes["store"]["wrong"] == 1
    assert outcomes["store"]["refilled"] > 0
    assert outcomes["store"]["corrected"] == outcomes["store"]["rows"] == outcomes["store"]["replayed"]


@contextmanager
def running(
    spark: "SparkSession", settings: Settings, pipeline: Pipeline, notes: list[str]
) -> "Iterator[respool.Runner]":
    """Run a pipeline as long as the block lasts."""
    runner = respool.start(
        pipeline,
        trigger=timedelta(0),
        give_up_after=timedelta(seconds=PATIENCE),
        on_note=notes.append,
        spark=spark,
        settings=settings,
    )
    with runner:
        waiting = threading.Thread(target=runner.wait)
        waiting.start()
        try:
            yield runner
        finally:
            runner.request_stop()
            waiting.join(PATIENCE)


def wait_until(holds: Callable[[], object], notes: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, notes
        time.sleep(0.2)


def committed(checkpoint: respool.Checkpoint) -> int:
    try:
        return checkpoint.summary().next_batch
    except respool.RespoolError:
        return 0


@pytest.mark.parametrize(("seconds", "delay"), [(20, 0.0), (0, 0.5)])
def test_a_live_query_survives_a_store_that_is_away_or_slow(
    spark: "SparkSession",
    kafka: KafkaCluster,
    settings: Settings,
    topic: str,
    s3a: str,
    store_proxy: StoreProxy,
    tmp_path: Path,
    seconds: int,
    delay: float,
) -> None:
    """The checkpoint is on the store; the table is on the disk, so that it can be read at any time."""
    own = replace(
        settings,
        home=tmp_path / "home",
        checkpoints=f"{s3a}/checkpoints",
        storage=str(tmp_path / "disk"),
        bootstrap_servers=kafka.bootstrap_servers,
    )
    pipeline, notes = pipeline_of(topic), list[str]()
    checkpoint = respool.Checkpoint("totals", settings=own)
    producer.produce_together(kafka, topic, [minute(number) for number in range(30)])
    with running(spark, own, pipeline, notes):
        wait_until(lambda: committed(checkpoint) >= 1, notes)
        store_proxy.delay = delay
        if seconds:
            store_proxy.down()
        producer.produce_together(kafka, topic, [minute(number) for number in (*range(30, 60), 100, 101)])
        if seconds:
            time.sleep(seconds)  # the length of the outage
            store_proxy.up()
        wait_until(lambda: len(published(own)) == 6, notes)  # the watermark has passed six windows
        store_proxy.delay = 0.0
    assert [row["count"] for row in published(own)] == [10] * 6
    assert checkpoint.verify().ok


def published(settings: Settings) -> list[dict[str, Any]]:
    try:
        opened: DeltaTable = open_table(f"{settings.result_store}/totals")
    except respool.CheckpointError:
        return []
    rows: list[dict[str, Any]] = opened.to_pyarrow_table().to_pylist()
    return rows
