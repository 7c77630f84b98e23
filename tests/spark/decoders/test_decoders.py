"""What all decoders have: event times, tombstones, parts of the record; and those for CSV, text and functions."""

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    KAFKA_TIMESTAMP,
    ConsoleSink,
    CsvDecoder,
    FunctionDecoder,
    JsonDecoder,
    Pipeline,
    PipelineError,
    RawDecoder,
    TextDecoder,
)
from respool.archive.table import to_archive
from respool.decoders.protocol import decode_events
from respool.testing import InputRecord, run_batches
from support.decoding import AT, KAFKA_AT, decoded, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def utc(time: datetime) -> datetime:
    return time.astimezone(timezone.utc)


@pytest.mark.parametrize(
    ("unit", "good", "wrong"),
    [
        ("seconds", {"1756969200": 0, '"1756969200.25"': 250_000, "1756969200.5": 500_000}, ['"soon"', "1e30", "true"]),
        ("milliseconds", {"1756969200015": 15_000, "1756969200000.5": 500}, ["9223372036854775807", '""']),
        ("microseconds", {"1756969200000001": 1}, ["[1]", "253402300800000000"]),
    ],
)
def test_an_event_time_may_be_a_number_since_1970(
    spark: "SparkSession", unit: Any, good: dict[str, int], wrong: list[str]
) -> None:
    decoder = JsonDecoder("at TIMESTAMP", "at", time_unit=unit)
    rows = decoded(spark, [f'{{"at": {text}}}'.encode() for text in (*good, *wrong)], decoder)
    expected = [AT + timedelta(microseconds=micros) for micros in good.values()]
    assert [utc(row.event["at"]) for row in rows[: len(good)]] == expected
    assert [row.rejected for row in rows[len(good) :]] == ["at is not readable"] * len(wrong)


def test_an_event_time_may_be_a_nested_field(spark: "SparkSession") -> None:
    decoder = JsonDecoder("meta STRUCT<source: STRING, deep: STRUCT<at: TIMESTAMP>>, n INT", "meta.deep.at")
    values: list[bytes | None] = [
        b'{"meta": {"source": "x", "deep": {"at": "2025-09-04T07:00Z"}}, "n": 1}',
        b'{"meta": {"deep": {"at": "later"}}}',
        b'{"meta": {"deep": null}}',
        b"{}",
    ]
    good, *bad = decoded(spark, values, decoder)
    assert (utc(good.event.event_time), utc(good.event.meta.deep["at"]), good.event.meta.source) == (AT, AT, "x")
    assert decoder.time_column == "event_time"
    assert [row.rejected for row in bad] == ["meta.deep.at is not readable", *["meta.deep.at is missing"] * 2]


def test_an_event_time_may_be_the_timestamp_of_kafka(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    decoder = JsonDecoder("n INT", KAFKA_TIMESTAMP)
    good, bad = decoded(spark, [b'{"n": 1}', b"x"], decoder)
    assert (good.event.n, utc(good.event.event_time), bad.rejected) == (1, KAFKA_AT, "not JSON")
    before = records(spark, [b"{}"]).withColumn("timestamp", F.timestamp_millis(F.lit(-1)))
    assert decoder.decode(before).records.select("_respool_reason").first()[0] == "Kafka's timestamp is missing"  # type: ignore[index]


ORDER = b'{"shop": "a", "at": "2025-09-04T07:00Z"}'
ORDERS = JsonDecoder("shop STRING NOT NULL, at TIMESTAMP", "at")


def test_a_tombstone_is_rejected_dropped_or_kept(spark: "SparkSession") -> None:
    values = [ORDER, None]
    _, row = decoded(spark, values, ORDERS)
    assert (row.rejected, row.event) == ("no value", None)
    _, row = decoded(spark, values, JsonDecoder(ORDERS.schema, "at", tombstones="drop"))
    assert (row.rejected, row.event) == (None, None)
    kept = JsonDecoder(ORDERS.schema, "at", tombstones="keep", include=("key", "tombstone"))
    order, row = decoded(spark, values, kept, key=b"k")
    assert (row.rejected, row.event.shop, utc(row.event["at"])) == (None, None, KAFKA_AT)
    assert (bytes(row.event.record.key), row.event.record.tombstone, order.event.record.tombstone) == (
        b"k",
        True,
        False,
    )


@pytest.mark.parametrize(("tombstones", "events", "rejected"), [("reject", 1, 1), ("drop", 1, 0), ("keep", 2, 0)])
def test_a_stream_treats_tombstones_alike(spark: "SparkSession", tombstones: Any, events: int, rejected: int) -> None:
    decoder = JsonDecoder(ORDERS.schema, "at", tombstones=tombstones, include=("offset",))
    pipeline = Pipeline("orders", "orders", lambda rows: rows.select("shop", "record.offset"), ConsoleSink(), decoder)
    (batch,) = run_batches(spark, pipeline, [[ORDER, InputRecord(None, key=b"k")]])
    assert (len(batch.rows), batch.rejected) == (events, rejected)
    assert {row["offset"] for row in batch.rows} == set(range(events))


def test_the_archive_has_every_record_and_a_dropped_one_by_its_timestamp(spark: "SparkSession") -> None:
    decoder = JsonDecoder(ORDERS.schema, "at", tombstones="drop")
    rows = to_archive(records(spark, [ORDER, None, b"x"]), decoder).orderBy("offset").collect()
    assert [row.rejected for row in rows] == [None, None, "not JSON"]
    assert [row.event_time and utc(row.event_time) for row in rows] == [AT, KAFKA_AT, None]
    assert [row.event_hour for row in rows] == [7, 12, None]


def test_events_have_the_parts_of_the_record_that_are_included(spark: "SparkSession") -> None:
    parts: Any = ("topic", "partition", "offset", "timestamp", "key", "headers")
    (row,) = decoded(spark, [ORDER], JsonDecoder(ORDERS.schema, "at", include=parts), key=b"k")
    record = row.event.record.asDict(recursive=True)
    assert utc(record.pop("timestamp")) == KAFKA_AT
    assert record == {
        **{"topic": "orders", "partition": 1, "offset": 0, "key": bytearray(b"k")},
        "headers": [{"key": "trace", "value": bytearray(b"t1")}],
    }
    assert decode_events(records(spark, [ORDER]), ORDERS, "rejected").columns == ["shop", "at"]


def test_what_is_not_used_is_not_computed(spark: "SparkSession") -> None:
    decoder = JsonDecoder(ORDERS.schema, "at", include=("key", "headers"))
    events = decode_events(records(spark, [ORDER]), decoder, "rejected")
    plan = events.select("shop")._jdf.queryExecution().optimizedPlan().toString()
    assert "record" not in plan


def test_nested_json_has_every_type(spark: "SparkSession") -> None:
    decoder = JsonDecoder(
        "items ARRAY<STRUCT<sku: STRING NOT NULL, price: DECIMAL(10, 2)>>, tags MAP<STRING, ARRAY<INT>>, "
        "meta STRUCT<at: BIGINT, by: STRING>, total DECIMAL(20, 4), at TIMESTAMP",
        "at",
    )
    value = {
        **{"items": [{"sku": "a", "price": "12.50"}, {"sku": "b", "price": 3}], "tags": {"x": [1, 2]}},
        **{"meta": {"at": 7}, "total": 12345678901.5, "at": "2025-09-04T07:00:00Z"},
    }
    (row,) = decoded(spark, [json.dumps(value).encode()], decoder)
    event = row.event.asDict(recursive=True)
    assert event.pop("at") is not None
    assert event == {
        "items": [{"sku": "a", "price": Decimal("12.50")}, {"sku": "b", "price": Decimal("3.00")}],
        "tags": {"x": [1, 2]},
        "meta": {"at": 7, "by": None},
        "total": Decimal("12345678901.5000"),
    }


def test_a_line_of_csv_is_an_event(spark: "SparkSession") -> None:
    decoder = CsvDecoder("shop STRING NOT NULL, amount DOUBLE, at TIMESTAMP", "at", separator=";", null="-")
    wrong = "not a line of these fields and types"
    values: dict[bytes | None, str | None] = {
        b'"a;""b""";1.5;2025-09-04T07:00Z': None,
        "é;-;2025-09-04T07:00Z".encode(): None,
        b"a;1.5": wrong,
        b"a;1.5;2025-09-04T07:00Z;more": wrong,
        b"a;x;2025-09-04T07:00Z": wrong,
        b"a;1;later": "at is not readable",
        b"a;1;-": "at is missing",
        b"-;1;2025-09-04T07:00Z": "shop is missing",
        b"\xff;1;2025-09-04T07:00Z": "not UTF-8",
        None: "no value",
    }
    rows = decoded(spark, list(values), decoder)
    assert [row.rejected for row in rows] == list(values.values())
    assert [(row.event.shop, row.event.amount, utc(row.event["at"])) for row in rows[:2]] == [
        ('a;"b"', 1.5, AT),
        ("é", None, AT),
    ]


def test_text_and_bytes_are_events_as_they_are(spark: "SparkSession") -> None:
    text, wrong, none = decoded(spark, [b"a line", b"\xff", None], TextDecoder(column="line"))
    assert (text.event.line, utc(text.event.event_time), wrong.rejected, none.rejected) == (
        *("a line", KAFKA_AT, "not UTF-8", "no value"),
    )
    rows = decoded(spark, [b"\xff\0", b"", None], RawDecoder(include=("tombstone",)))
    assert [row.event.value for row in rows] == [b"\xff\0", b"", None]
    assert [row.event.record.tombstone for row in rows] == [False, False, True]


def test_a_function_decodes(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    decoder = FunctionDecoder(
        lambda: F.struct(
            F.element_at(F.split(F.col("value").cast("string"), "@"), 1).alias("sensor"),
            F.expr("try_cast(try_element_at(split(CAST(value AS STRING), '@'), 2) AS BIGINT)").alias("at"),
            F.decode("key", "UTF-8").alias("of"),
        ),
        "sensor STRING NOT NULL, at BIGINT, of STRING",
        event_time="at",
        time_unit="seconds",
        reason=lambda: F.when(F.col("value").cast("string").startswith("#"), F.lit("a comment")),
        uses=("key", "value"),
    )
    values: list[bytes | None] = [b"s1@1756969200", b"# s1@1756969200", b"s1", b"s1@x"]
    good, *bad = decoded(spark, values, decoder, key=b"k")
    assert (good.event.sensor, good.event.of, utc(good.event["at"])) == ("s1", "k", AT)
    assert [row.rejected for row in bad] == ["a comment", "at is missing", "at is missing"]
    other = FunctionDecoder(lambda: F.struct(F.lit(1).alias("n")), "n STRING", event_time=KAFKA_TIMESTAMP)
    with pytest.raises(PipelineError, match="returns struct<n:int>; its schema declares struct<n:string>"):
        decoded(spark, [b""], other)
