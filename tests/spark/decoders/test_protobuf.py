"""Protobuf messages become events; anything else is rejected with a reason."""

from datetime import timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.decoders.protobuf import ProtobufDecoder
from respool.decoders.registry import SchemaRegistry
from support import schema_registry
from support.decoding import AT, decoded, descriptor_set, framed, message_class, order_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = order_file()
Order = message_class(FILE, "shop.Order")
DECODER = ProtobufDecoder(descriptor_set(FILE), "shop.Order", event_time="at")


def order(**fields: Any) -> Any:
    message = Order(**fields)
    message.at.FromDatetime(AT)
    return message


FULL = order(
    shop="Lyon é",
    amount=12.5,
    count=2**32 - 1,
    big=2**64 - 1,
    signed=-5,
    flag=True,
    data=b"\0\xff",
    state=1,
    lines=[{"sku": "a", "price": 1.5}, {}],
    tags={"x": -1},
    codes=[1, -2, 3],
    note="",
)


def test_every_type_of_protobuf_becomes_the_type_of_spark(spark: "SparkSession") -> None:
    full, sparse = decoded(spark, [FULL.SerializeToString(), order().SerializeToString()], DECODER)
    event = full.event.asDict(recursive=True)
    assert event.pop("at").astimezone(timezone.utc) == AT
    assert event == {
        "shop": "Lyon é",
        "amount": 12.5,
        "count": 2**32 - 1,
        "big": Decimal(2**64 - 1),
        "signed": -5,
        "flag": True,
        "data": bytearray(b"\0\xff"),
        "state": "PAID",
        "lines": [{"sku": "a", "price": 1.5}, {"sku": "", "price": 0.0}],
        "tags": {"x": -1},
        "codes": [1, -2, 3],
        "note": "",
    }
    assert (sparse.event.shop, sparse.event["count"], sparse.event.state) == ("", 0, "NEW")
    assert (sparse.event.lines, sparse.event.tags, sparse.event.note) == ([], {}, None)


def test_what_is_not_a_message_is_rejected(spark: "SparkSession") -> None:
    good = FULL.SerializeToString()
    wrong = "not a Protobuf message of the type"
    values: dict[bytes | None, str | None] = {
        None: "no value",
        b"": "at is missing",  # a message without any field
        good[:-1]: wrong,
        b"\x0a\xff\xff\xff\x7fx": wrong,  # a text of 256 MB
        b"\x0a\x01\xff": wrong,  # not UTF-8
        b"\xff" * 20: wrong,
        good: None,
    }
    assert [row.rejected for row in decoded(spark, list(values), DECODER)] == list(values.values())


@hypothesis_settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.binary(max_size=40), min_size=200))
def test_anything_at_all_is_an_event_or_is_rejected(spark: "SparkSession", values: list[bytes]) -> None:
    good = FULL.SerializeToString()
    for row in decoded(spark, [*values, *(good[: len(value)] + value for value in values)], DECODER):
        assert (row.event is None) != (row.rejected is None)


def test_each_version_of_a_schema_is_read_as_the_decoders_message(spark: "SparkSession") -> None:
    newer = order_file("country")
    message = message_class(newer, "shop.Order")(shop="b", country="FR")
    message.at.FromDatetime(AT)
    with schema_registry.running() as server:
        first, second = (
            server.register("orders-value", "syntax = …", "PROTOBUF", serialized=file.SerializeToString())
            for file in (FILE, newer)
        )
        avro = server.register("orders-value", '"string"')
        registry = SchemaRegistry(server.url)
        decoder = ProtobufDecoder(descriptor_set(FILE), "shop.Order", event_time="at", registry=registry)
        values: list[bytes | None] = [
            # The indexes of the message: Order is the second one of its file; 0 alone stands for the first.
            framed(b"\x02\x02" + order(shop="a").SerializeToString(), first),
            framed(b"\x02\x02" + message.SerializeToString(), second),
            framed(b"\x00" + b"\x08\x01", first),
            framed(b"\x04\x02\x00" + b"", first),
            framed(b"\x02\x0a" + b"", first),
            framed(b"\x02\x02", avro),
            framed(b"\x02\x02", 99),
            b"\x0a\x01a",
        ]
        rows = decoded(spark, values, decoder)
    assert [row.event and row.event.shop for row in rows] == ["a", "b", *[None] * 6]
    assert [row.rejected for row in rows[2:]] == [
        "the message shop.Other, not shop.Order",
        "the message shop.Order.Line, not shop.Order",
        "its schema has no such message",
        f"schema {avro} is not a Protobuf schema",
        "the registry has no schema 99",
        "not in the wire format of a schema registry",
    ]
