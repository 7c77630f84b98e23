"""Avro records, with or without a schema registry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from respool.decoders.avro_types import avro_struct, canonical_avro, parse_avro
from respool.decoders.registry import SchemaRegistry
from respool.decoders.wire import WireDecoder
from respool.errors import PipelineError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class AvroDecoder(WireDecoder):
    """Decodes values that are Avro records.

    Events have the fields of `schema`, the reader's schema, whatever later or earlier version a producer wrote with:
    a new field needs a default in one of the two schemas, numbers are widened, aliases are followed, as Avro specifies.

    Attributes:
        schema: The reader's schema, a record, as JSON; `AvroDecoder.from_file` reads a file.
        event_time: The field with the event time: a timestamp, a number with `time_unit`, or ISO-8601 text. A nested
            field is named `struct.field`; KAFKA_TIMESTAMP stands for the timestamp of the record.
        writer_schema: The schema of the data, if it is another and there is no registry.

    >>> order = '''{"type": "record", "name": "Order", "fields": [
    ...     {"name": "shop", "type": "string"},
    ...     {"name": "amount", "type": ["null", "double"], "default": null},
    ...     {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}'''
    >>> registry = respool.SchemaRegistry("http://127.0.0.1:8081")
    >>> respool.AvroDecoder(order, event_time="ordered_at", registry=registry).check()
    ['shop', 'amount', 'ordered_at']
    """

    schema: str
    event_time: str
    writer_schema: str | None = None

    KIND: ClassVar[str] = "avro"
    READER: ClassVar[str] = "respool.AvroReader"

    @staticmethod
    def from_file(path: str | Path, event_time: str, **options: Any) -> "AvroDecoder":
        """Return a decoder whose schema is in a file, such as `order.avsc`; `options` are the other attributes."""
        try:
            schema = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineError(f"The Avro schema {path} cannot be read: {error}") from error
        return AvroDecoder(schema, event_time, **options)

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the fields of the reader's schema."""
        if self.writer_schema is not None:
            if self.registry is not None:
                raise PipelineError(
                    "The decoder has a writer_schema and a registry, which has the schemas of the writers. Give one."
                )
            avro_struct(parse_avro(self.writer_schema), types)
        return avro_struct(parse_avro(self.schema), types)

    def _own_identity(self) -> Mapping[str, Any]:
        fields = {"avro_schema": _canonical(self.schema)}
        if self.writer_schema is not None:
            fields["writer_schema"] = _canonical(self.writer_schema)
        if self.registry is not None:
            fields["registry"] = self.registry.url
        return fields

    def _config(self) -> Mapping[str, str]:
        return {"schema": self.schema, "writer": json.dumps([self.writer_schema or self.schema])}

    def _serve(self, registry: SchemaRegistry) -> str:
        def text(schema: "Schema") -> str:
            if schema.schema_type != "AVRO":
                return "[]"
            return json.dumps([part.schema_str for part in (*registry.referenced(schema), schema)])

        return registry.serve("AVRO", text)


def _canonical(schema: str) -> str:
    return json.dumps(canonical_avro(parse_avro(schema)), separators=(",", ":"), ensure_ascii=False)
