"""Values that are a line of comma-separated values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from respool.decoders.base import PARSED, Parsed, ValueDecoder, declared_schema, require_timestamp, required_fields
from respool.decoders.event_time import replace_leaf
from respool.errors import PipelineError
from respool.spark.sql import DdlError, canonical_ddl, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_CORRUPT, _VALID = "_respool_corrupt", "_respool_valid"


@dataclass(frozen=True)
class CsvDecoder(ValueDecoder):
    """Decodes values that are one line of comma-separated values, in UTF-8.

    A record with more or fewer values than fields is rejected, and so is a value of another type.

    Attributes:
        schema: The fields, in order, as Spark DDL, such as `shop STRING NOT NULL, ordered_at TIMESTAMP`; NOT NULL makes
            a field required.
        event_time: The field with the event time, declared as TIMESTAMP: ISO-8601 text, or with `time_unit` a number
            since 1970. KAFKA_TIMESTAMP stands for the timestamp of the record.
        separator: The character between two values.
        quote: The character around a value that has a separator in it; doubled, it stands for itself.
        null: The text that stands for null.

    >>> respool.CsvDecoder("shop STRING, amount DOUBLE, at TIMESTAMP", event_time="at", separator=";").check()
    ['shop', 'amount', 'at']
    """

    schema: str
    event_time: str
    separator: str = ","
    quote: str = '"'
    null: str = ""

    KIND: ClassVar[str] = "csv"

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the declared fields, the event time as text."""
        for name, text in (("separator", self.separator), ("quote", self.quote)):
            if not isinstance(text, str) or len(text) != 1 or text in "\r\n":
                raise PipelineError(f"The decoder's {name} is {text!r}. Expected one character.")
        schema = declared_schema(self.schema, types)
        for field in schema:
            if isinstance(field.dataType, (types.ArrayType, types.MapType, types.StructType)):
                raise PipelineError(
                    f"The decoder's field '{field.name}' is of the type {field.dataType.simpleString()}, which a line "
                    "of CSV cannot have. Declare it as STRING, and parse it in the transform."
                )
        time = self.parse_time(schema)
        require_timestamp(time, schema)
        return replace_leaf(schema, time.path, types.StringType(), types)

    def _own_identity(self) -> Mapping[str, Any]:
        try:
            schema = canonical_ddl(self.schema)
        except DdlError:  # reported by `check`
            schema = self.schema
        return {"schema": schema, "separator": self.separator, "quote": self.quote, "null": self.null}

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.sql import functions as F
        from pyspark.sql import types

        schema = self.schema_of_events(types)
        options = {
            **{"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
            **{"sep": self.separator, "quote": self.quote, "escape": self.quote, "nullValue": self.null},
        }
        kind = types.StructType([*schema, types.StructField(_CORRUPT, types.StringType())])
        parsed = F.from_csv(F.expr("CAST(value AS STRING)"), _ddl(kind), options)
        valid = F.expr("is_valid_utf8(CAST(value AS STRING))")
        reasons = {
            f"NOT {_VALID}": literal("not UTF-8"),
            f"{PARSED}.{_CORRUPT} IS NOT NULL": literal("not a line of these fields and types"),
        }
        return Parsed(records, {PARSED: parsed, _VALID: valid}, schema, reasons)

    def _required(self) -> Iterator[tuple[str, str]]:
        from pyspark.sql import types

        return required_fields(declared_schema(self.schema, types), PARSED)


def _ddl(schema: "StructType") -> str:
    from respool.spark.sql import quote

    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema)
