"""Avro with a schema registry, from a real topic: live, archived, reprocessed and audited."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool import AvroDecoder, KafkaSink, Pipeline, SchemaRegistry, Windows, archive_pipeline
from respool.kafka import consumer, producer
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.running.options import RunOptions
from respool.running.runner import Runner
from respool.settings import Settings
from support import schema_registry
from support.decoding import avro
from support.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "country", "type": "string"}]}
READER = {
    **FIRST,
    "fields": [
        FIRST["fields"][0],
        {"name": "amount", "type": "double"},
        {"name": "country", "type": ["null", "string"], "default": None},
        FIRST["fields"][2],
    ],
}
AT = datetime(2025, 9, 4, 7, 30, tzinfo=timezone.utc)


def totals(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    last = F.max_by("record.key", "record.offset").cast("string")
    return events.groupBy(F.window("at", "1 hour"), "shop").agg(F.sum("amount").alias("total"), last.alias("last"))


@dataclass(frozen=True)
class OwnStage(Stage):
    own: Pipeline

    @property
    def pipeline(self) -> Pipeline:
        return self.own


@pytest.fixture
def server() -> Iterator[schema_registry.Registry]:
    with schema_registry.running() as registry:
        yield registry


def test_avro_with_a_registry_is_run_archived_reprocessed_and_audited(
    spark: "SparkSession",
    kafka: KafkaCluster,
    settings: Settings,
    tmp_path: Path,
    topic: str,
    server: schema_registry.Registry,
) -> None:
    first, second = (server.register(f"{topic}-value", json.dumps(schema)) for schema in (FIRST, SECOND))
    orders = Pipeline(
        name="orders",
        topic=topic,
        decode=AvroDecoder(
            json.dumps(READER),
            event_time="at",
            registry=SchemaRegistry(server.url, {"max.retries": 0}),
            include=("key", "offset"),
            tombstones="drop",
        ),
        transform=totals,
        watermark="10 minutes",
        output_mode="update",
        sink=KafkaSink(f"{topic}-totals", key=("window", "shop")),
        results=Windows("1 hour"),
        archive="orders_table",
    )
    here = OwnStage(
        spark, replace(settings, home=tmp_path, bootstrap_servers=kafka.bootstrap_servers), kafka, "", {}, orders
    )
    messages = [
        Message(b"a", avro(FIRST, {"shop": "Lyon", "amount": 2, "at": AT}, first)),
        Message(b"b", avro(SECOND, {"shop": "Lyon", "amount": 3, "at": AT, "country": "FR"}, second)),
        Message(b"c", b"not Avro"),
        Message(b"d", avro(FIRST, {"shop": "Nice", "amount": 5, "at": AT}, 4711)),
        Message(b"e", None),
        Message(b"f", avro(FIRST, {"shop": "Oslo", "amount": 1, "at": AT + timedelta(hours=3)}, first)),  # closes 07:00
    ]
    producer.produce(kafka, topic, messages)

    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        if "schema registry" in text:
            server.status = None

    server.status = 503
    options = RunOptions(available_now=True)
    with ExitStack() as stack:
        runner = stack.enter_context(Runner(spark, kafka, here.settings, options, lambda _: None, note))
        runner.start([orders, archive_pipeline(orders)])
        runner.wait()
    assert [text for text in notes if "the schema registry does not answer" in text], notes

    published = [json.loads(record.value or b"") for record in consumer.read(kafka, f"{topic}-totals")]
    published.sort(key=lambda row: str(row["shop"]))
    assert [(row["shop"], row["total"]) for row in published] == [("Lyon", 5.0), ("Oslo", 1.0)]
    kept = {record.key: dict(record.headers) for record in consumer.read(kafka, f"{topic}-rejected")}
    assert {key: headers["respool-reason"] for key, headers in kept.items()} == {
        b"c": b"not in the wire format of a schema registry",
        b"d": b"the registry has no schema 4711",
    }

    start, end = (moment.isoformat() for moment in (AT.replace(minute=0), AT.replace(minute=0) + timedelta(hours=1)))
    report = here.audit(start, end)
    assert (report.compared, report.different) == (1, 0)
    here.reprocess(start, end)
    again = [json.loads(record.value or b"") for record in consumer.read(kafka, f"{topic}-totals")]
    assert len(again) == 3
    assert again.count(published[0]) == 2
