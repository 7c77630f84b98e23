"""Values that are text, or bytes that are left as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from respool.decoders.base import PARSED, Parsed, ValueDecoder
from respool.decoders.protocol import KAFKA_TIMESTAMP, Tombstones
from respool.errors import PipelineError
from respool.spark.sql import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_VALID = "_respool_valid"


@dataclass(frozen=True)
class TextDecoder(ValueDecoder):
    """Decodes values that are text in UTF-8: an event has the field `value`, a STRING, and `event_time`.

    Attributes:
        event_time: KAFKA_TIMESTAMP, the timestamp of the record; or `value`, if the text is a time.
        column: The name of the field.

    >>> respool.TextDecoder(column="line").check()
    ['line', 'event_time']
    """

    event_time: str = KAFKA_TIMESTAMP
    column: str = "value"

    KIND: ClassVar[str] = "text"

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the only field."""
        return _one_field(self.column, types.StringType(), types)

    def _own_identity(self) -> Mapping[str, Any]:
        return {"column": self.column}

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.sql import functions as F
        from pyspark.sql import types

        parsed = F.expr(f"struct(CAST(value AS STRING) AS {quote(self.column)})")
        valid = F.expr("is_valid_utf8(CAST(value AS STRING))")
        reasons = {f"NOT {_VALID}": literal("not UTF-8")}
        return Parsed(records, {PARSED: parsed, _VALID: valid}, self.schema_of_events(types), reasons)


@dataclass(frozen=True)
class RawDecoder(ValueDecoder):
    """Leaves values as they are: an event has the field `value`, BINARY, and `event_time`. No record is rejected.

    Attributes:
        event_time: KAFKA_TIMESTAMP, the timestamp of the record.
        column: The name of the field.
        tombstones: By default a record without a value is an event, too.

    >>> respool.RawDecoder(include=("key", "headers")).check()
    ['value', 'event_time', 'record']
    """

    event_time: str = KAFKA_TIMESTAMP
    column: str = "value"
    tombstones: Tombstones = field(default="keep", kw_only=True)

    KIND: ClassVar[str] = "raw"

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the only field."""
        return _one_field(self.column, types.BinaryType(), types)

    def _own_identity(self) -> Mapping[str, Any]:
        return {"column": self.column}

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.sql import functions as F
        from pyspark.sql import types

        return Parsed(
            records, {PARSED: F.expr(f"struct(value AS {quote(self.column)})")}, self.schema_of_events(types), {}
        )


def _one_field(name: str, kind: "DataType", types: Any) -> "StructType":
    if not isinstance(name, str) or not name:
        raise PipelineError(f"The decoder's column is {name!r}. Expected the name of the field.")
    schema: StructType = types.StructType([types.StructField(name, kind)])
    return schema
