"""Values of Kafka records in Avro, encoded and decoded by fastavro on Arrow batches.

With a schema registry a value has Confluent's wire format: a zero byte, the schema's id in four bytes, the Avro body.
Without one it is the Avro body alone.
"""

import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.errors import MachineError, PipelineError, SettingsError, SinkError, SinkUnreachable
from respool.text import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MAGIC = b"\x00"
_HEADER = 5  # bytes before the body


@dataclass(frozen=True)
class AvroFormat:
    """Values in Avro, for `KafkaSink`.

    Attributes:
        schema: The schema of a record as JSON, or the path of a file that holds it, which ends in .avsc. It has the
            columns of the results, without those that are sent as headers or decide the partition.
        registry: The URL of a schema registry: the schema is registered there, and values name its id.
        subject: The name under which it is registered; `<topic>-value` by default.
        registry_auth_env: The environment variable that holds `user:password` for the registry.

    >>> schema = '{"type": "record", "name": "Total", "fields": [{"name": "total", "type": "double"}]}'
    >>> respool.AvroFormat(schema).columns
    ('total',)
    """

    schema: str
    registry: str | None = None
    subject: str | None = None
    registry_auth_env: str | None = None

    def __post_init__(self) -> None:
        """Refuse a schema that is not one of a record."""
        _ = self.columns
        if self.registry is not None and "@" in self.registry:
            raise PipelineError(
                "AvroFormat.registry has a password. It would be in logs and records. Name an environment variable "
                "that holds user:password with registry_auth_env."
            )

    @property
    def parsed(self) -> dict[str, Any]:
        """The schema."""
        text = self.schema
        try:
            if text.endswith(".avsc"):
                text = Path(text).expanduser().read_text(encoding="utf-8")
            schema = json.loads(text)
        except (OSError, ValueError) as error:
            raise PipelineError(f"AvroFormat.schema cannot be read: {error}. Expected a schema as JSON.") from error
        if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
            raise PipelineError("AvroFormat.schema is not the schema of a record; expected an object with its fields.")
        return schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it has."""
        return tuple(str(field.get("name")) for field in self.parsed["fields"])

    def prefix(self, topic: str) -> bytes:
        """Return the bytes before each value; the schema is registered first."""
        if self.registry is None:
            return b""
        subject = self.subject or f"{topic}-value"
        number = _registered(self.registry, subject, json.dumps(self.parsed), self.registry_auth_env)
        return _MAGIC + number.to_bytes(_HEADER - 1, "big")

    def check(self, columns: list[str]) -> None:
        """Raise PipelineError when the columns of values are not those of the schema."""
        missing = [name for name in self.columns if name not in columns]
        unknown = [name for name in columns if name not in self.columns]
        if missing or unknown:
            names = [*(f"lacks {name}" for name in unknown), *(f"has {name}, which no column is" for name in missing)]
            near = did_you_mean(unknown[0], list(self.columns)) if unknown else ""
            raise PipelineError(
                f"AvroFormat.schema {' and '.join(names)}.{near} The columns of values are {', '.join(columns)}. "
                "Correct the schema or the transform."
            )

    def encode(self, frame: "DataFrame", topic: str, withdrawn: str) -> "DataFrame":
        """Return a frame with one more column: `value`, its struct `fields` in Avro; null where it is withdrawn.

        Args:
            frame: The rows.
            topic: The topic.
            withdrawn: A boolean column.
        """
        from pyspark.sql.types import BinaryType

        require_fastavro()
        self.check(frame.select("fields.*").columns)
        schema, prefix = json.dumps(self.parsed), self.prefix(topic)
        with_value = type(frame.schema)(list(frame.schema.fields)).add("value", BinaryType())
        return frame.mapInArrow(_encoder(schema, prefix, withdrawn), with_value)

    def decode(self, frame: "DataFrame", rows: "StructType") -> "DataFrame":
        """Return a frame with one more column: `fields`, the struct in the column `value`."""
        from pyspark.sql.pandas.types import to_arrow_type

        require_fastavro()
        kind = to_arrow_type(rows, timezone="UTC")
        schema = type(frame.schema)(list(frame.schema.fields)).add("fields", rows)
        return frame.mapInArrow(_decoder(json.dumps(self.parsed), kind, self.registry, self.registry_auth_env), schema)


def require_fastavro() -> None:
    """Raise MachineError when fastavro is not installed."""
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise MachineError(
            "Avro is written with fastavro, which is not installed. Install it: pip install 'respool[avro]'."
        ) from error


def _encoder(
    schema: str, prefix: bytes, withdrawn: str
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def encode(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import fastavro
        import pyarrow as pa

        parsed, buffer = fastavro.parse_schema(json.loads(schema)), io.BytesIO()

        def value(row: dict[str, Any] | None, is_withdrawn: bool | None) -> bytes | None:
            if is_withdrawn or row is None:
                return None
            buffer.seek(len(prefix))
            buffer.truncate()
            try:
                fastavro.schemaless_writer(buffer, parsed, row)
            except (TypeError, ValueError, KeyError, OverflowError) as error:
                raise ValueError(f"A result does not fit the Avro schema: {error}") from error
            return buffer.getvalue()

        buffer.write(prefix)
        for batch in batches:
            rows = zip(batch.column("fields").to_pylist(), batch.column(withdrawn).to_pylist(), strict=True)
            values = pa.array([value(*row) for row in rows], pa.binary())
            yield pa.RecordBatch.from_arrays([*batch.columns, values], [*batch.schema.names, "value"])

    return encode


def _decoder(
    schema: str, kind: "pa.DataType", registry: str | None, auth_env: str | None
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def decode(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import fastavro
        import pyarrow as pa

        own = fastavro.parse_schema(json.loads(schema))

        def row(data: bytes | None) -> dict[str, Any] | None:
            if data is None:
                return None
            if registry is None:
                return dict(fastavro.schemaless_reader(io.BytesIO(data), own, own))  # type: ignore[arg-type]
            if len(data) < _HEADER or data[:1] != _MAGIC:
                return None  # not of this sink
            writer = _schema_of(registry, int.from_bytes(data[1:_HEADER], "big"), auth_env)
            return dict(fastavro.schemaless_reader(io.BytesIO(data[_HEADER:]), writer, own))  # type: ignore[arg-type]

        for batch in batches:
            fields = pa.array([row(data) for data in batch.column("value").to_pylist()], kind)
            yield pa.RecordBatch.from_arrays([*batch.columns, fields], [*batch.schema.names, "fields"])

    return decode


@lru_cache(maxsize=256)
def _registered(registry: str, subject: str, schema: str, auth_env: str | None) -> int:
    """Return the id of a schema in a registry; it is registered when it is new."""
    from confluent_kafka.schema_registry import Schema

    return int(_asked(registry, lambda client: client.register_schema(subject, Schema(schema, "AVRO")), auth_env))


@lru_cache(maxsize=256)
def _schema_of(registry: str, number: int, auth_env: str | None) -> Any:
    import fastavro

    text = _asked(registry, lambda client: client.get_schema(number), auth_env).schema_str
    return fastavro.parse_schema(json.loads(text))


def _asked(registry: str, ask: "Callable[[SchemaRegistryClient], Any]", auth_env: str | None) -> Any:
    """Ask a registry; raise SinkError for its answer, or SinkUnreachable without one."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ImportError as error:
        raise MachineError(
            "A schema registry is asked with confluent-kafka's client, of which a part is not installed. Install it: "
            "pip install 'respool[avro]'."
        ) from error
    settings: dict[str, Any] = {"url": registry}
    if auth_env is not None:
        if auth_env not in os.environ:
            raise SettingsError(f"AvroFormat.registry_auth_env names {auth_env}, which is not set. Set it.")
        settings["basic.auth.user.info"] = os.environ[auth_env]
    try:
        return ask(SchemaRegistryClient(settings))
    except SchemaRegistryError as error:
        raise SinkError(f"schema registry {registry}", str(error.error_message).rstrip(".")) from error
    except Exception as error:  # of its HTTP client
        raise SinkUnreachable(f"schema registry {registry}", f"{type(error).__name__}: {error}") from error
