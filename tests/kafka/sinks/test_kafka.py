"""Records that a sink sends: JSON as ever, Avro with a registry, headers and partitions of a pipeline's own."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.errors import PipelineError, SinkError, SinkUnreachable
from respool.kafka import consumer
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.avro import AvroFormat
from respool.sinks.kafka import KafkaSink
from respool.sinks.protocol import WriteContext
from support import writable_registry
from support.writable_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Total",
        "fields": [
            {"name": "shop", "type": "string"},
            {"name": "total", "type": ["null", "double"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
ROWS = (
    "SELECT * FROM VALUES ('Lyon', 1.5D, TIMESTAMP'2025-09-04T07:00:00.123456Z', array('a', 'b'), 'acme', 1, false), "
    "('Metz', NULL, TIMESTAMP'2025-09-04T07:00:00Z', array(), 'bert', 0, false) "
    "AS t(shop, total, at, tags, tenant, part, gone)"
)


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with writable_registry.running() as running:
        yield running


@pytest.fixture
def write(kafka: KafkaCluster, tmp_path: Path) -> WriteContext:
    return WriteContext("totals", 3, kafka, Settings(home=tmp_path), query="the query")


def sent(kafka: KafkaCluster, topic: str) -> dict[bytes | None, Any]:
    return {record.key: record for record in consumer.read(kafka, topic)}


def totals(spark: "SparkSession", *columns: str) -> "DataFrame":
    return spark.sql(ROWS).select(*columns)


def test_json_is_what_it_always_was(spark: "SparkSession", write: WriteContext, topic: str) -> None:
    sink = KafkaSink(topic, key=("shop", "at"), withdrawn="gone")
    frame = totals(spark, "shop", "total", "at", "gone").unionAll(
        spark.sql("SELECT 'Nice', 1D, TIMESTAMP'2025-09-04T07:00:00Z', true")
    )
    sink.write(frame, write)
    values = {key: record.value for key, record in sent(write.kafka, topic).items()}
    lyon, metz, nice = (
        b'{"shop":"Lyon","at":"2025-09-04T07:00:00.123456Z"}',
        b'{"shop":"Metz","at":"2025-09-04T07:00:00.000Z"}',
        b'{"shop":"Nice","at":"2025-09-04T07:00:00.000Z"}',
    )
    assert values == {
        lyon: b'{"shop":"Lyon","total":1.5,"at":"2025-09-04T07:00:00.123456Z"}',
        metz: b'{"shop":"Metz","at":"2025-09-04T07:00:00.000Z"}',
        nice: None,
    }


@pytest.mark.parametrize("with_registry", [False, True])
def test_avro_is_read_by_another_reader_and_read_back(
    spark: "SparkSession", write: WriteContext, topic: str, registry: SchemaRegistry, with_registry: bool
) -> None:
    import fastavro

    sink = KafkaSink(
        topic, key="shop", withdrawn="gone", format=AvroFormat(SCHEMA, registry.url if with_registry else None)
    )
    frame = totals(spark, "shop", "total", "at", "tags", "gone")
    sink.write(frame, write)
    records = sent(write.kafka, topic)
    value = records[b"Lyon"].value
    if with_registry:
        assert value[:1] == b"\0"
        number = int.from_bytes(value[1:5], "big")
        assert registry.subjects[f"{topic}-value"] == [number]
        assert json.loads(registry.schemas[number - 1]) == json.loads(SCHEMA)
        value = value[5:]
    read: Any = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(json.loads(SCHEMA)), None)
    assert (read["shop"], read["total"], read["tags"]) == ("Lyon", 1.5, ["a", "b"])
    assert read["at"].isoformat() == "2025-09-04T07:00:00.123456+00:00"

    published = sink.published(spark, write, frame.schema).orderBy("key").collect()
    expected = sink.render(frame).orderBy("key").collect()
    assert [(row.key, row.value, row.row) for row in published] == [(row.key, row.value, row.row) for row in expected]
    assert {row.batch for row in published} == {3}

    sink.write(frame.selectExpr("shop", "total", "at", "tags", "true AS gone"), write)
    assert sink.published(spark, write, frame.schema).count() == 0


def test_headers_and_the_partition_are_not_in_the_value(spark: "SparkSession", write: WriteContext, topic: str) -> None:
    sink = KafkaSink(topic, key="shop", headers="tenant", partition="part")
    frame = totals(spark, "shop", "tenant", "part", "total")
    sink.write(frame, write)
    records = sent(write.kafka, topic)
    assert [json.loads(records[shop].value) for shop in (b"Lyon", b"Metz")] == [
        {"shop": "Lyon", "total": 1.5},
        {"shop": "Metz"},
    ]
    assert [records[shop].partition for shop in (b"Lyon", b"Metz")] == [1, 0]
    assert dict(records[b"Lyon"].headers) == {
        "respool-source": b"live",
        "respool-pipeline": b"totals",
        "respool-batch": b"3",
        "tenant": b"acme",
    }

    published = sink.published(spark, write, frame.schema).orderBy("key")
    assert [row.row for row in published.collect()] == [row.row for row in sink.render(frame).orderBy("key").collect()]
    sink.correct(published.selectExpr("key", "CAST(NULL AS BINARY) AS value", "row"), write)
    assert {key: (record.partition, record.value) for key, record in sent(write.kafka, topic).items()} == {
        b"Lyon": (1, None),
        b"Metz": (0, None),
    }


def test_a_schema_of_other_columns_is_refused_before_anything_is_sent(
    spark: "SparkSession", write: WriteContext, topic: str
) -> None:
    sink = KafkaSink(topic, key="shop", format=AvroFormat(SCHEMA))
    with pytest.raises(PipelineError, match=r"lacks shopp.* Did you mean 'shop'|has at, which no column is"):
        sink.write(totals(spark, "shop", "total", "tenant"), write)
    assert sent(write.kafka, topic) == {}


def test_a_registry_that_refuses_or_does_not_answer_is_named(registry: SchemaRegistry) -> None:
    with pytest.raises(SinkUnreachable, match=r"http://127\.0\.0\.1:1"):
        AvroFormat(SCHEMA, "http://127.0.0.1:1").prefix("t")
    with pytest.raises(SinkError, match="Invalid schema"):
        AvroFormat(SCHEMA, registry.url, subject="refused").prefix("t")
