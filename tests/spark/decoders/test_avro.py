"""Avro records become events, whatever version of the schema wrote them; anything else is rejected with a reason."""

import json
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.decoders.avro import AvroDecoder
from respool.decoders.registry import SchemaRegistry
from respool.spark.failures import Cause, classify
from support import schema_registry
from support.decoding import AT, avro, decoded, framed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "An order.",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "long"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "either", "type": ["null", "string", "long"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
EVENT: dict[str, Any] = {
    "shop": "Lyon é",
    "count": -3,
    "amount": 12.5,
    "price": Decimal("19.99"),
    "state": "PAID",
    "hash": b"\x00\x01\x02\xff",
    "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2**40}],
    "tags": {"x": 1, "y": -2},
    "first": {"sku": "a", "n": 1},
    "either": "text",
    "day": date(2025, 9, 4),
    "clock": datetime(2025, 9, 4, 9, 0),  # noqa: DTZ001
    "flag": True,
    "ratio": 0.5,
    "ordered_at": AT,
}
DECODER = AvroDecoder(json.dumps(ORDER), event_time="ordered_at")


@pytest.fixture(scope="module")
def server() -> "Iterator[schema_registry.Registry]":
    with schema_registry.running() as registry:
        yield registry


def test_every_type_of_avro_becomes_the_type_of_spark(spark: "SparkSession") -> None:
    empty = {**EVENT, "amount": None, "lines": [], "tags": {}, "first": None, "either": 7, "price": Decimal("-0.01")}
    full, sparse, neither = decoded(
        spark, [avro(ORDER, event) for event in (EVENT, empty, {**EVENT, "either": None})], DECODER
    )
    event = full.event.asDict(recursive=True)
    assert event.pop("ordered_at").astimezone(timezone.utc) == AT
    assert event.pop("either") == {"member0": "text", "member1": None}
    expected = {name: value for name, value in EVENT.items() if name not in ("ordered_at", "either")}
    assert event == {**expected, "hash": bytearray(EVENT["hash"])}
    assert full.rejected is None
    assert (sparse.event.amount, sparse.event.lines, sparse.event.tags, sparse.event.first) == (None, [], {}, None)
    assert (sparse.event.price, sparse.event.either.member1) == (Decimal("-0.01"), 7)
    assert neither.event.either is None


def test_what_is_not_avro_is_rejected(spark: "SparkSession") -> None:
    good = avro(ORDER, EVENT)
    values: dict[bytes | None, str | None] = {
        None: "no value",
        b"": "not an Avro record of the schema",
        good[:-1]: "not an Avro record of the schema",
        good[:5]: "not an Avro record of the schema",
        good + b"\0": "has bytes behind its Avro record",
        b"\xfe\xff\xff\xff\x0f" + b"x" * 50: "not an Avro record of the schema",  # a text of 2 GB
        b"\x02\xff" + good[9:]: "not an Avro record of the schema",  # a text that is not UTF-8
        good: None,
    }
    assert [row.rejected for row in decoded(spark, list(values), DECODER)] == list(values.values())


@hypothesis_settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.binary(max_size=60), min_size=200))
def test_anything_at_all_is_an_event_or_is_rejected(spark: "SparkSession", values: list[bytes]) -> None:
    good = avro(ORDER, EVENT)
    cut = [good[: len(value)] + value for value in values]
    for row in decoded(spark, [*values, *cut], DECODER):
        assert (row.event is None) != (row.rejected is None)


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


SHOP = {"name": "shop", "type": "string"}
SECONDS = {"name": "at", "type": "long"}


def test_each_version_of_a_schema_is_read_as_the_decoders_schema(
    spark: "SparkSession", server: schema_registry.Registry
) -> None:
    first = record(SHOP, {"name": "amount", "type": "int"}, SECONDS)
    second = record(
        SECONDS,
        {"name": "note", "type": "string"},
        {"name": "store", "type": "string"},
        {"name": "amount", "type": "double"},
    )
    reader = record(
        {"name": "shop", "type": "string", "aliases": ["store"]},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": "string", "default": "FR"},
        SECONDS,
    )
    text = record({"name": "shop", "type": "string"}, {"name": "amount", "type": "string"}, SECONDS)
    ids = [server.register("orders-value", json.dumps(schema)) for schema in (first, second, reader, text)]
    proto = server.register("orders-value", 'syntax = "proto3";', "PROTOBUF")
    decoder = AvroDecoder(json.dumps(reader), event_time="at", time_unit="seconds", registry=SchemaRegistry(server.url))
    at = int(AT.timestamp())
    newest = {"shop": "c", "amount": 0.5, "country": "IT", "at": at}
    values: list[bytes | None] = [
        avro(first, {"shop": "a", "amount": 2, "at": at}, ids[0]),
        avro(second, {"at": at, "note": "skipped", "store": "b", "amount": 1.5}, ids[1]),
        avro(reader, newest, ids[2]),
        avro(text, {"shop": "d", "amount": "x", "at": at}, ids[3]),
        framed(b"\x02", proto),
        framed(b"\x02", 4711),
        avro(reader, newest),
        b"\0\0\0",
        framed(avro(reader, newest)[:-2], ids[2]),
        avro(first, {"shop": "e", "amount": 3, "at": at}, ids[0]),
    ]
    rows = decoded(spark, values, decoder)
    events = [row.event and (row.event.shop, row.event.amount, row.event.country) for row in rows]
    assert events == [("a", 2.0, "FR"), ("b", 1.5, "FR"), ("c", 0.5, "IT"), *[None] * 6, ("e", 3.0, "FR")]
    assert [row.rejected for row in rows if row.rejected] == [
        f"schema {ids[3]} is not compatible with the decoder's schema at /fields/1/type",
        f"schema {proto} is not an Avro schema",
        "the registry has no schema 4711",
        "not in the wire format of a schema registry",
        "not in the wire format of a schema registry",
        "not an Avro record of the schema",
    ]
    assert rows[0].event["at"].astimezone(timezone.utc) == AT
    assert sum(f"/schemas/ids/{ids[0]}" in path for path in server.asked) == 1, "a schema is asked for once"


def test_a_schema_may_refer_to_others(spark: "SparkSession", server: schema_registry.Registry) -> None:
    line = record({"name": "sku", "type": "string"}, name="Line")
    server.register("line", json.dumps(line))
    order = record({"name": "line", "type": "Line"}, SECONDS)
    reference = {"name": "Line", "subject": "line", "version": 1}
    number = server.register("refers", json.dumps(order), references=[reference])
    reader = record({"name": "line", "type": line}, SECONDS)
    registry = SchemaRegistry(server.url)
    decoder = AvroDecoder(json.dumps(reader), event_time="at", time_unit="milliseconds", registry=registry)
    (row,) = decoded(spark, [avro(reader, {"line": {"sku": "a"}, "at": 1000}, number)], decoder)
    assert (row.rejected, row.event.line.sku) == (None, "a")


def test_the_schema_of_the_writer_may_be_given(spark: "SparkSession") -> None:
    writer = record(SECONDS, SHOP)
    decoder = AvroDecoder(json.dumps(record(SHOP, SECONDS)), "at", json.dumps(writer), time_unit="microseconds")
    (row,) = decoded(spark, [avro(writer, {"shop": "a", "at": 5})], decoder)
    assert (row.event.shop, row.event["at"].astimezone(timezone.utc).microsecond) == ("a", 5)


@pytest.mark.parametrize(
    ("status", "cause", "is_transient"),
    [(503, Cause.REGISTRY, True), (401, Cause.REGISTRY_REFUSED, False)],
)
def test_without_the_registry_nothing_is_rejected(
    spark: "SparkSession", status: int, cause: Cause, is_transient: bool
) -> None:
    with schema_registry.running() as server:
        number = server.register("orders-value", json.dumps(record(SHOP, SECONDS)))
        registry = SchemaRegistry(server.url, {"max.retries": 0})
        decoder = AvroDecoder(json.dumps(record(SHOP, SECONDS)), "at", time_unit="seconds", registry=registry)
        value = avro(record(SHOP, SECONDS), {"shop": "a", "at": 5}, number)
        server.status = status
        with pytest.raises(Exception, match=r"respool\.Schemas") as caught:
            decoded(spark, [value], decoder)
        failure = classify("orders", caught.value, "checkpoint")
        assert (failure.cause, failure.is_transient) == (cause, is_transient)
        assert "schema registry" in failure.message
        server.status = None
        (row,) = decoded(spark, [value], decoder)
        assert row.event.shop == "a"
