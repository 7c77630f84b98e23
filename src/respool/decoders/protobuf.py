"""Protobuf messages, with or without a schema registry."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from respool.decoders.registry import SchemaRegistry
from respool.decoders.wire import WireDecoder
from respool.errors import PipelineError
from respool.text import did_you_mean

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ProtobufDecoder(WireDecoder):
    """Decodes values that are Protobuf messages.

    Events have the fields of the message as `descriptors` describe it, whatever version a producer wrote with. A field
    without a value is null if the message distinguishes it from the default, otherwise the default.

    Attributes:
        descriptors: The descriptor set that `protoc --include_imports --descriptor_set_out=FILE` writes;
            `ProtobufDecoder.from_file` reads the file.
        message: The full name of the message, such as `shop.Order`.
        event_time: The field with the event time: a google.protobuf.Timestamp, a number with `time_unit`, or ISO-8601
            text. A nested field is named `struct.field`; KAFKA_TIMESTAMP stands for the timestamp of the record.

    >>> from google.protobuf import descriptor_pb2, timestamp_pb2
    >>> descriptors = descriptor_pb2.FileDescriptorSet()
    >>> _ = timestamp_pb2.DESCRIPTOR.CopyToProto(descriptors.file.add())
    >>> ticks = respool.ProtobufDecoder(
    ...     descriptors.SerializeToString(), "google.protobuf.Timestamp", event_time="seconds", time_unit="seconds"
    ... )
    >>> ticks.check()
    ['seconds', 'nanos']
    """

    descriptors: bytes = field(repr=False)
    message: str
    event_time: str

    KIND: ClassVar[str] = "protobuf"
    READER: ClassVar[str] = "respool.ProtobufReader"

    @staticmethod
    def from_file(path: str | Path, message: str, event_time: str, **options: Any) -> "ProtobufDecoder":
        """Return a decoder whose descriptor set is in a file; `options` are the other attributes."""
        try:
            descriptors = Path(path).read_bytes()
        except OSError as error:
            raise PipelineError(f"The descriptor set {path} cannot be read: {error}") from error
        return ProtobufDecoder(descriptors, message, event_time, **options)

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the fields of the message."""
        return _struct(_descriptor(self.descriptors, self.message), (), types)

    def _own_identity(self) -> Mapping[str, Any]:
        fields = {"descriptors": hashlib.sha256(self.descriptors).hexdigest(), "message": self.message}
        return {**fields, "registry": self.registry.url} if self.registry is not None else fields

    def _config(self) -> Mapping[str, str]:
        return {"descriptor": base64.b64encode(self.descriptors).decode("ascii"), "message": self.message}

    def _serve(self, registry: SchemaRegistry) -> str:
        return registry.serve("PROTOBUF", _messages)


def _descriptor(descriptors: bytes, message: str) -> "Descriptor":
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(descriptors).file
        if not files:
            raise DecodeError("it has no file")
        waiting = {file.name: file for file in files}
        while waiting:
            ready = [file for file in waiting.values() if not set(file.dependency) & waiting.keys()]
            if not ready:
                raise DecodeError("its files import each other")
            for file in ready:
                pool.Add(file)
                del waiting[file.name]
    except (DecodeError, TypeError) as error:
        raise PipelineError(
            f"The decoder's descriptors are not a complete descriptor set: {error}. Write it with: protoc "
            "--include_imports --descriptor_set_out=FILE"
        ) from error
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [name for file in files for _, name in _names(file.message_type, file.package, "")]
        raise PipelineError(
            f"The decoder's descriptors have no message '{message}', but {', '.join(names[:20]) or 'none'}."
            f"{did_you_mean(message, names)} Give its full name."
        ) from None


def _names(messages: Any, package: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield the indexes that lead to each message, and its full name."""
    for number, message in enumerate(messages):
        name, place = f"{package}.{message.name}".lstrip("."), f"{path}.{number}".lstrip(".")
        yield place, name
        yield from _names(message.nested_type, name, place)


def _messages(schema: "Schema") -> str:
    """Return what the JVM needs of a schema of the registry: its messages; empty for a schema of another type."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if schema.schema_type != "PROTOBUF":
        return ""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or "", validate=True))
    except (DecodeError, ValueError) as error:
        raise PipelineError(
            "The schema registry does not return descriptors of Protobuf (format=serialized). Use one that does."
        ) from error
    return "\n".join(f"{place} {name}" for place, name in _names(file.message_type, file.package, ""))


def _struct(message: "Descriptor", outer: tuple[str, ...], types: Any) -> "StructType":
    if message.full_name in outer:
        raise PipelineError(
            f"The message {message.full_name} contains itself: Spark has no type for it. Decode it with a message "
            "without that field."
        )
    names = (*outer, message.full_name)
    fields = [types.StructField(part.name, _field_type(part, names, types)) for part in message.fields]
    struct: StructType = types.StructType(fields)
    return struct


def _field_type(part: "FieldDescriptor", outer: tuple[str, ...], types: Any) -> Any:
    if part.message_type is not None and part.message_type.GetOptions().map_entry:
        names = part.message_type.fields_by_name
        return types.MapType(*(_element_type(names[name], outer, types) for name in ("key", "value")))
    element = _element_type(part, outer, types)
    return types.ArrayType(element) if part.is_repeated else element


def _element_type(part: "FieldDescriptor", outer: tuple[str, ...], types: Any) -> Any:
    from google.protobuf.descriptor import FieldDescriptor as F

    if part.message_type is not None:
        is_time = part.message_type.full_name == "google.protobuf.Timestamp"
        return types.TimestampType() if is_time else _struct(part.message_type, outer, types)
    kinds: dict[int, Any] = {
        F.TYPE_BOOL: types.BooleanType(),
        F.TYPE_BYTES: types.BinaryType(),
        F.TYPE_DOUBLE: types.DoubleType(),
        F.TYPE_FLOAT: types.FloatType(),
        F.TYPE_ENUM: types.StringType(),
        F.TYPE_STRING: types.StringType(),
        **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), types.IntegerType()),
        **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), types.LongType()),
        **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32), types.LongType()),
        **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), types.DecimalType(20, 0)),
    }
    return kinds[part.type]
