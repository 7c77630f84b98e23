"""How many records a second each decoder reads, on all cores, from a file in memory: no Kafka, no transform, no sink.

The records are orders: text, numbers, a decimal, an array of structs, a map and a time. `json, flat text` has the same
number of bytes in fields that are all text, as a pipeline of flat JSON has them. `fastavro in Python` is the same as
`avro`, decoded by fastavro in Arrow batches, the way that needs no class in the JVM. Formats take turns. A figure
counts only if every record became an event.
"""

import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.decoders.avro import AvroDecoder
from respool.decoders.csv import CsvDecoder
from respool.decoders.json import JsonDecoder
from respool.decoders.protobuf import ProtobufDecoder
from respool.decoders.protocol import Decoder, decode_events
from respool.decoders.text import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FLAT, NESTED, AVRO, FASTAVRO = "json, flat text", "json, nested and typed", "avro", "fastavro in Python"
_DISTINCT = 10_000
_START = datetime(2025, 9, 4, tzinfo=timezone.utc)
_LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "count", "type": "int"},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "customer", "type": "long"},
        {"name": "total", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "lines", "type": {"type": "array", "items": _LINE}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
_NESTED = (
    "order_id STRING NOT NULL, customer BIGINT, total DOUBLE, paid BOOLEAN, "
    "lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(10, 2), count: INT>>, tags MAP<STRING, STRING>, at TIMESTAMP"
)
_FLAT = ("order_id", "customer", "shop", "note")


def orders() -> Iterator[dict[str, Any]]:
    """Yield different orders."""
    for number in range(_DISTINCT):
        lines = [{"sku": f"sku-{number % 97}", "price": Decimal(number % 5000) / 100 + 1, "count": 1 + number % 3}] * 2
        yield {
            "order_id": f"order-{number:08}",
            "customer": number * 7919,
            "total": number / 4,
            "paid": number % 2 == 0,
            "lines": lines,
            "tags": {"channel": "web", "country": "FR"},
            "at": _START + timedelta(milliseconds=number * 37),
        }


def formats() -> dict[str, tuple[Decoder, Callable[[dict[str, Any]], bytes]]]:
    """Return the decoder of each format, and what writes its values."""
    file = _descriptors()
    message = _message(file)
    avro = AvroDecoder(json.dumps(SCHEMA), "at")
    return {
        FLAT: (JsonDecoder(", ".join(f"{name} STRING" for name in _FLAT) + ", at TIMESTAMP", "at"), _flat),
        NESTED: (JsonDecoder(_NESTED, "at"), _nested),
        AVRO: (avro, _avro),
        FASTAVRO: (avro, _avro),
        "protobuf": (ProtobufDecoder(file, "Order", "at"), lambda order: _protobuf(message, order)),
        "csv": (CsvDecoder("order_id STRING, customer BIGINT, total DOUBLE, paid BOOLEAN, at TIMESTAMP", "at"), _csv),
        "text": (TextDecoder(), _flat),
    }


def measure_all(spark: "SparkSession", records: int, runs: int) -> list[dict[str, Any]]:
    """Return a row for each format."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        frames = {name: _write(spark, Path(folder), name, writer, records) for name, (_, writer) in formats().items()}
        sizes = {name: frame.selectExpr("avg(length(value))").first()[0] for name, frame in frames.items()}  # type: ignore[index]
        for run in range(-1, runs):  # the first warms up
            for name, (decoder, _) in formats().items():
                took = _read(frames[name], decoder, records, in_python=name == FASTAVRO)
                if run >= 0:
                    seconds.setdefault(name, []).append(took)
    return [
        {
            "format": name,
            "records": records,
            "bytes": round(sizes[name]),
            "median_s": statistics.median(times),
            "least_s": min(times),
            "most_s": max(times),
            "rate": round(records / statistics.median(times)),
        }
        for name, times in seconds.items()
    ]


def _read(frame: "DataFrame", decoder: Decoder, records: int, in_python: bool) -> float:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    events = _in_python(frame) if in_python else decode_events(frame, decoder, "rejected")
    counted = Observation()
    events = events.observe(counted, F.count("*").alias("events"))
    started = time.perf_counter()
    events.write.format("noop").mode("overwrite").save()
    took = time.perf_counter() - started
    if counted.get["events"] != records:
        raise RuntimeError(f"{decoder}: {counted.get['events']:,} events of {records:,} records")
    return took


def _in_python(frame: "DataFrame") -> "DataFrame":
    """Decode with fastavro in Arrow batches."""
    from pyspark.sql import types

    schema = AvroDecoder(json.dumps(SCHEMA), "at").schema_of_events(types)

    def decode(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import fastavro
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        parsed = fastavro.parse_schema(SCHEMA)
        arrow = to_arrow_schema(schema)
        for batch in batches:
            values = batch.column("value").to_pylist()
            events = [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values]
            yield pa.RecordBatch.from_pylist(events, schema=arrow)

    return frame.select("value").mapInArrow(decode, schema)


def _write(
    spark: "SparkSession", folder: Path, name: str, writer: Callable[[dict[str, Any]], bytes], records: int
) -> "DataFrame":
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = [writer(order) for order in orders()]
    value = pa.array((values * (records // len(values) + 1))[:records], pa.binary())
    time_column = pa.array([_START] * records, pa.timestamp("us", tz="UTC"))
    file = folder / f"{name.replace(' ', '-').replace(',', '')}.parquet"
    table = pa.table({"value": value, "timestamp": time_column})
    pq.write_table(table, file, compression="none", use_dictionary=False, row_group_size=records // 4 + 1)
    return spark.read.parquet(str(file))


def _flat(order: dict[str, Any]) -> bytes:
    text = {"order_id": order["order_id"], "customer": str(order["customer"]), "shop": "Lyon, rue de la République"}
    event = {**text, "note": "x" * 150, "at": order["at"].isoformat()}
    return json.dumps(event, ensure_ascii=False).encode()


def _nested(order: dict[str, Any]) -> bytes:
    lines = [{**line, "price": float(line["price"])} for line in order["lines"]]
    return json.dumps({**order, "lines": lines, "at": order["at"].isoformat()}).encode()


def _csv(order: dict[str, Any]) -> bytes:
    names = ("order_id", "customer", "total", "paid")
    return ",".join([*(str(order[name]).lower() for name in names), order["at"].isoformat()]).encode()


def _avro(order: dict[str, Any]) -> bytes:
    import fastavro

    data = io.BytesIO()
    fastavro.schemaless_writer(data, SCHEMA, order)
    return data.getvalue()


def _descriptors() -> bytes:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet()
    file = files.file.add(name="order.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    for number, (name, kind) in enumerate((("sku", F.TYPE_STRING), ("price", F.TYPE_DOUBLE), ("count", F.TYPE_INT32))):
        line.field.add(name=name, number=number + 1, type=kind, label=F.LABEL_OPTIONAL)
    kinds = {"order_id": F.TYPE_STRING, "customer": F.TYPE_INT64, "total": F.TYPE_DOUBLE, "paid": F.TYPE_BOOL}
    for number, (name, kind) in enumerate(kinds.items(), start=1):
        order.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    order.field.add(name="lines", number=5, type=F.TYPE_MESSAGE, type_name=".Order.Line", label=F.LABEL_REPEATED)
    order.field.add(name="at", number=6, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    return bytes(files.SerializeToString())


def _message(descriptors: bytes) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message_factory import GetMessages

    return GetMessages(list(FileDescriptorSet.FromString(descriptors).file))["Order"]


def _protobuf(message: Any, order: dict[str, Any]) -> bytes:
    lines = [{**line, "price": float(line["price"])} for line in order["lines"]]
    fields = {name: order[name] for name in ("order_id", "customer", "total", "paid")}
    data: bytes = message(**fields, lines=lines, at=order["at"].isoformat()).SerializeToString()
    return data
