"""What a KafkaSource reads of a real broker: several topics, a pattern, and from where."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition

import respool
from respool import FunctionSink, Input, JsonDecoder, KafkaSource, Pipeline, QueryError, Settings, TopicError
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster, admin_client
from respool.kafka.producer import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = JsonDecoder("id INT NOT NULL, at TIMESTAMP", event_time="at")


class Stage:
    """A broker, a home, topics of a common prefix, and the ids that a pipeline has written."""

    def __init__(self, spark: "SparkSession", kafka: KafkaCluster, settings: Settings) -> None:
        self.spark, self.kafka, self.settings = spark, kafka, settings
        self.prefix = f"t{uuid4().hex[:10]}"
        self.ids: list[int] = []

    def topic(self, name: str, partitions: int = 1) -> str:
        topics.create(self.kafka, f"{self.prefix}-{name}", partitions=partitions)
        return f"{self.prefix}-{name}"

    def send(self, topic: str, *ids: int, at: str = "07:00") -> None:
        values = [json.dumps({"id": number, "at": f"2025-09-04T{at}:00Z"}).encode() for number in ids]
        producer.produce(self.kafka, topic, [Message(None, value) for value in values])

    def sink(self) -> FunctionSink:
        return FunctionSink(lambda frame, batch: self.ids.extend(row.id for row in frame.collect()), "a list")

    def run(
        self, source: KafkaSource | None = None, on_note: Callable[[str], None] | None = None, **fields: Any
    ) -> list[int]:
        """Run a pipeline over all available records, and return the new ids."""
        self.ids.clear()
        reading = {"source": source, "decode": ORDER} if source is not None else {}
        pipeline = Pipeline("ids", **{"sink": self.sink(), **reading, **fields})
        respool.run(pipeline, available_now=True, settings=self.settings, spark=self.spark, on_note=on_note)
        return sorted(self.ids)


@pytest.fixture
def here(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path) -> Stage:
    return Stage(spark, kafka, replace(settings, home=tmp_path, bootstrap_servers=kafka.bootstrap_servers))


def test_several_topics_are_one_input(here: Stage) -> None:
    first, second = here.topic("a"), here.topic("b")
    here.send(first, 1)
    here.send(second, 2)
    assert here.run(KafkaSource((first, second))) == [1, 2]
    here.send(second, 3)
    assert here.run(KafkaSource((first, second))) == [3]
    with pytest.raises(TopicError, match="There is no topic"):
        here.run(KafkaSource((first, f"{here.prefix}-missing")))


def test_a_pattern_reads_later_topics_too_and_never_rejected_records(here: Stage) -> None:
    pattern = KafkaSource(pattern=f"{here.prefix}-orders-.*")
    first = here.topic("orders-eu")
    here.topic("other")
    here.send(first, 1)
    producer.produce(here.kafka, first, [Message(None, b"not json")])
    assert here.run(pattern) == [1]
    later = here.topic("orders-us")
    here.send(later, 2)
    assert here.run(pattern) == [2]
    rejected = list(consumer.read(here.kafka, f"{first}-rejected"))
    assert [record.value for record in rejected] == [b"not json"]
    assert f"{first}-rejected-rejected" not in topics.topic_names(here.kafka)


def test_where_a_query_starts(here: Stage) -> None:
    topic = here.topic("a", partitions=2)
    producer.produce(here.kafka, topic, [Message(None, b'{"id": 1, "at": "2025-09-04T07:00Z"}')])
    time.sleep(0.01)  # Kafka's timestamps are in milliseconds
    between = datetime.now(timezone.utc)
    here.send(topic, 2)

    def ids(starting: Any) -> list[int]:
        here.settings = replace(here.settings, home=here.settings.home / "again")
        return here.run(KafkaSource(topic, starting=starting))

    assert ids("earliest") == [1, 2]
    assert ids(between) == [2]
    assert ids("latest") == []
    ends = topics.end_offsets(here.kafka, topic)
    full = max(ends, key=lambda partition: ends[partition])
    assert ids({topic: {full: ends[full]}}) == sorted({1, 2} - set(_ids(here, topic, full)))


def _ids(here: Stage, topic: str, partition: int) -> list[int]:
    records = [record for record in consumer.read(here.kafka, topic) if record.partition == partition]
    return [json.loads(record.value or b"")["id"] for record in records]


def test_two_topics_are_joined_and_each_keeps_its_own_rejected_records(here: Stage) -> None:
    orders, payments = here.topic("orders"), here.topic("payments")
    here.send(orders, 1, 2)
    here.send(payments, 2, 3, at="07:30")
    producer.produce(here.kafka, payments, [Message(None, b"not json")])

    def paid(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
        return orders.join(payments.withColumnRenamed("at", "paid_at"), "id").select("id")

    inputs = {
        "orders": Input(KafkaSource(orders), ORDER, watermark="1 hour"),
        "payments": Input(KafkaSource(payments), ORDER, watermark="1 hour"),
    }
    assert here.run(inputs=inputs, transform=paid) == [2]
    here.send(payments, 1)
    assert here.run(inputs=inputs, transform=paid) == [1]
    assert len(list(consumer.read(here.kafka, f"{payments}-rejected"))) == 1
    assert not topics.topic_exists(here.kafka, f"{orders}-rejected") or not list(
        consumer.read(here.kafka, f"{orders}-rejected")
    )
    savepoints = respool.Savepoints(settings=here.settings)
    savepoint = savepoints.create(respool.Checkpoint("ids", settings=here.settings), "monday")
    assert savepoint.verify().ok


def expire(here: Stage, topic: str, before: int) -> None:
    """Let Kafka delete the records of partition 0 before an offset, as retention does."""
    client = admin_client(here.kafka)  # kept, so that its answers arrive
    for answer in client.delete_records([TopicPartition(topic, 0, before)]).values():
        answer.result()


def test_expired_records_are_skipped_with_a_report_or_fail_the_query(here: Stage) -> None:
    topic = here.topic("a")
    here.send(topic, 1)
    skipping = KafkaSource(topic, on_data_loss="skip")
    assert here.run(skipping) == [1]
    here.send(topic, 2, 3, 4)
    expire(here, topic, 3)

    with pytest.raises(QueryError, match="no longer in Kafka"):
        here.run(KafkaSource(topic))
    notes: list[str] = []
    assert here.run(skipping, on_note=notes.append) == [4]
    assert [note for note in notes if note.startswith("ids skips")] == [
        f"ids skips up to 2 records that it has not read and that Kafka no longer has, at offsets {topic}-0: 1 to 2."
    ]
    notes.clear()
    here.send(topic, 5)
    assert here.run(skipping, on_note=notes.append) == [5]
    assert not [note for note in notes if "skips" in note]
