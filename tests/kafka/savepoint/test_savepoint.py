"""Savepoints of a query under load: each can be restored, and the restored query has the same results."""

import random
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from respool.kafka.cluster import KafkaCluster
from respool.savepoint.store import SavepointStore
from support.queries import end_maintenance
from support.savepoints import restore, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SAVEPOINTS = 50
RECORDS = 40_000
KEYS = 20
_FIRST = 1_757_000_000_000  # the time of the first record, in milliseconds; each comes 15 ms after the one before
_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS = {
    "RocksDB with changelog": {
        f"{_STORE}.providerClass": f"{_PROVIDER}.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "HDFS-backed": {f"{_STORE}.providerClass": f"{_PROVIDER}.HDFSBackedStateStoreProvider"},
}
# Snapshots are frequent, and old files are deleted early: files vanish while they are copied.
_RESTLESS = {
    f"{_STORE}.minDeltasForSnapshot": "2",
    f"{_STORE}.maintenanceInterval": "100ms",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

Counts = dict[tuple[str, str], int]


class Query:
    """Counts the records of a topic by key and minute; keeps the results of each batch."""

    def __init__(self, spark: "SparkSession", kafka: KafkaCluster, topic: str, conf: dict[str, str]) -> None:
        self._session = spark.newSession()
        for name, value in {**_RESTLESS, **conf}.items():
            self._session.conf.set(name, value)
        self._kafka, self._topic = kafka, topic
        self.batches: dict[int, Counts] = {}

    def start(self, checkpoint: Path, most: int | None = None) -> "StreamingQuery":
        """Start it: in batches of so many records without an end, or on all that is there in one batch."""
        from pyspark.sql import functions as F

        reader = self._session.readStream.format("kafka").options(**self._kafka.for_spark())
        reader = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        if most is not None:
            reader = reader.option("maxOffsetsPerTrigger", most)
        records = reader.load().withWatermark("timestamp", "2 minutes")
        counts = records.groupBy(F.window("timestamp", "1 minute"), F.col("value").cast("string").alias("key")).count()
        writer = counts.writeStream.outputMode("update").foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return (writer if most is not None else writer.trigger(availableNow=True)).start()

    def _collect(self, frame: "DataFrame", batch: int) -> None:
        rows = frame.selectExpr("string(window.start)", "key", "count").collect()
        self.batches[batch] = {(row[0], row[1]): row[2] for row in rows}

    def said(self, last: int) -> Counts:
        """Return the newest result of every key, up to a batch."""
        counts: Counts = {}
        for batch in sorted(number for number in self.batches if number <= last):
            counts |= self.batches[batch]
        return counts


def generate(kafka: KafkaCluster, topic: str) -> Counts:
    """Send records at full rate, in order of time, and return how many there are by minute and key."""
    producer = confluent_kafka.Producer({**kafka.for_client(), "linger.ms": 5})
    chance = random.Random(7)
    expected: Counts = {}
    for number in range(RECORDS):
        at, key = _FIRST + 15 * number, f"k{chance.randrange(KEYS)}"
        while True:
            try:
                producer.produce(topic, value=key, partition=number % 2, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
        minute = f"{datetime.fromtimestamp(at // 60_000 * 60, timezone.utc):%Y-%m-%d %H:%M:%S}"
        expected[(minute, key)] = expected.get((minute, key), 0) + 1
    producer.flush()
    return expected


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_savepoint_of_a_query_under_load_restores_to_the_uninterrupted_run(
    spark: "SparkSession", kafka: KafkaCluster, topic: str, tmp_path: Path, provider: str
) -> None:
    end_maintenance(spark)  # its interval is that of the first query in the application
    store, checkpoint = SavepointStore(str(tmp_path / "store")), tmp_path / "checkpoint"
    expected: Counts = {}
    generator = threading.Thread(target=lambda: expected.update(generate(kafka, topic)))
    generator.start()
    original = Query(spark, kafka, topic, PROVIDERS[provider])
    running = original.start(checkpoint, most=RECORDS // 60)
    try:
        while not (checkpoint / "commits" / "0").exists() and running.isActive:
            time.sleep(0.05)
        moments = random.Random(11)
        for number in range(SAVEPOINTS):
            save(checkpoint, store, f"s{number}")
            time.sleep(moments.uniform(0, 0.3))
        generator.join()
        running.processAllAvailable()
    finally:
        running.stop()
    assert running.exception() is None
    newest = max(original.batches)
    assert original.said(newest) == expected

    savepoints = store.all()
    assert len(savepoints) == SAVEPOINTS
    assert len({savepoint.manifest.batch for savepoint in savepoints}) > SAVEPOINTS // 4  # they are of many moments
    for savepoint in savepoints:
        restored = Query(spark, kafka, topic, PROVIDERS[provider])
        where = tmp_path / savepoint.manifest.name
        restore(savepoint, where)
        restored.start(where).awaitTermination()
        assert not restored.batches or min(restored.batches) == savepoint.manifest.next_batch
        assert original.said(savepoint.manifest.batch) | restored.said(newest + SAVEPOINTS) == expected
