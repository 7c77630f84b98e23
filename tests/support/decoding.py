"""Data for the tests of decoders: Avro and Protobuf written by their own libraries, records as Spark reads them."""

import io
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from respool.decoders.protocol import Decoder, decode
from respool.kafka.records import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2025, 9, 4, 7, 0, tzinfo=timezone.utc)
KAFKA_AT = datetime(2025, 9, 5, 12, 0, tzinfo=timezone.utc)


def avro(schema: Any, event: Any, schema_id: int | None = None) -> bytes:
    """Return an event as fastavro writes it; with the id of a schema, in Confluent's wire format."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), event)
    return framed(data.getvalue(), schema_id)


def framed(data: bytes, schema_id: int | None) -> bytes:
    """Return data in Confluent's wire format, as the serializers of Confluent frame Avro."""
    return data if schema_id is None else b"\0" + schema_id.to_bytes(4, "big") + data


def records(spark: "SparkSession", values: list[bytes | None], *, key: bytes | None = None) -> "DataFrame":
    """Return records with these values, all of the columns that records have, and their number as the offset."""
    header = [("trace", b"t1")]
    rows = [("orders", 1, number, KAFKA_AT, 0, key, value, header) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA)


def decoded(spark: "SparkSession", values: list[bytes | None], decoder: Decoder, **options: Any) -> list[Any]:
    """Return the records with `rejected` and `event`, in order."""
    return decode(records(spark, values, **options), decoder).orderBy("offset").collect()


def order_file(*more: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the file `order.proto`, with further text fields in the message `shop.Order`."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    other = file.message_type.add(name="Other")
    other.field.add(name="x", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    line.field.add(name="price", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    state = order.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    kinds = {
        "shop": field.TYPE_STRING,
        "amount": field.TYPE_DOUBLE,
        "count": field.TYPE_UINT32,
        "big": field.TYPE_UINT64,
        "signed": field.TYPE_SINT64,
        "flag": field.TYPE_BOOL,
        "data": field.TYPE_BYTES,
    }
    for number, (name, kind) in enumerate(kinds.items(), start=1):
        order.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    order.field.add(name="state", number=8, type=field.TYPE_ENUM, type_name=".shop.Order.State", label=1)
    order.field.add(name="lines", number=9, type=field.TYPE_MESSAGE, type_name=".shop.Order.Line", label=3)
    order.field.add(name="tags", number=10, type=field.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=3)
    order.field.add(name="at", number=11, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    order.field.add(name="codes", number=12, type=field.TYPE_INT32, label=3)
    note = order.field.add(name="note", number=13, type=field.TYPE_STRING, label=1, oneof_index=0)
    note.proto3_optional = True
    order.oneof_decl.add(name="_note")
    for number, name in enumerate(more, start=20):
        order.field.add(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    return file


def descriptor_set(file: descriptor_pb2.FileDescriptorProto) -> bytes:
    """Return what `protoc --include_imports --descriptor_set_out` writes for a file."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return bytes(files.SerializeToString())


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """Return the class of a message, as protoc would generate it."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
