"""Decode records into events; a record that does not decode becomes a rejected record with a reason.

Decoding never fails a query. The value of a record must be one JSON object in UTF-8, its fields of the declared types,
fields declared NOT NULL present, also those of nested structs, its event time readable.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from respool.decoders.base import PARSED, Parsed, ValueDecoder, declared_schema, require_timestamp, required_fields
from respool.decoders.event_time import replace_leaf
from respool.errors import PipelineError
from respool.spark.sql import DdlError, canonical_ddl, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_CORRUPT = "_respool_corrupt"
_READER = "respool.JsonReader"  # a class in jvm_classes.JAR
# Columns between two steps, named so that no field of an event is called the same.
_VALID, _ALONE, _READ = ("_respool_valid", "_respool_alone", "_respool_read")
# Whether a value has nothing after its JSON object. A flat object ends at its first brace: only other values are
# parsed again, to check whether a second value follows.
_IS_ALONE = """
    endswith(CAST(value AS STRING), '}')
        AND NOT contains(CAST(substring(value, 1, octet_length(value) - 1) AS STRING), '}')
    OR json_array_length(concat('[', CAST(value AS STRING), ']')) <=> 1
"""


@dataclass(frozen=True)
class JsonDecoder(ValueDecoder):
    """Decodes values that are JSON objects.

    Attributes:
        schema: The event's fields as Spark DDL, such as `visit_id STRING NOT NULL, event_time TIMESTAMP`: any type,
            also STRUCT, ARRAY, MAP and DECIMAL. Other fields of a record are ignored; NOT NULL makes a field required,
            also one of a struct that is present.
        event_time: The field that holds the event time, declared as TIMESTAMP: ISO-8601 text such as
            `2025-09-04T07:30Z`, read in the pipeline's time zone when it names no zone of its own, or with `time_unit`
            a number since 1970. A nested field is named `struct.field`; KAFKA_TIMESTAMP stands for the timestamp of
            the record. In text a space may stand for the T, seconds may be left out and have a fraction of any length
            (kept to the microsecond), an offset is `Z`, `+02:00`, `+0200` or `+02`.

    >>> respool.JsonDecoder("shop STRING NOT NULL, ordered_at TIMESTAMP", event_time="ordered_at").event_time
    'ordered_at'
    >>> nested = respool.JsonDecoder(
    ...     "items ARRAY<STRUCT<sku: STRING, price: DECIMAL(10, 2)>>, meta STRUCT<at: TIMESTAMP>",
    ...     event_time="meta.at",
    ...     time_unit="milliseconds",
    ...     include=("key", "offset"),
    ... )
    >>> nested.check()
    ['items', 'meta', 'event_time', 'record']
    """

    schema: str
    event_time: str

    KIND: ClassVar[str] = "json"

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the declared fields, the event time as text."""
        schema = declared_schema(self.schema, types)
        require_timestamp(self.parse_time(schema), schema)
        return _text_time(schema, self, types)

    def _own_identity(self) -> Mapping[str, Any]:
        try:
            return {"schema": canonical_ddl(self.schema)}  # however it is spelled
        except DdlError:  # a schema that only Spark can read is compared as it is
            return {"schema": self.schema}

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.sql import functions as F
        from pyspark.sql import types

        schema = _parse_schema(self)
        fields = _text_time(schema, self, types)
        parsed = _from_json(fields)
        valid, alone = F.expr("is_valid_utf8(CAST(value AS STRING))"), F.expr(_IS_ALONE)
        read = _read(records.sparkSession, fields)
        if read is not None:
            records = records.withColumn(_READ, read)
            is_read = F.col(_READ).isNotNull()
            parsed = F.coalesce(F.col(_READ), parsed)
            valid, alone = is_read | valid, is_read | alone
        return Parsed(records, {PARSED: parsed, _VALID: valid, _ALONE: alone}, fields, _REASONS)

    def _required(self) -> Iterator[tuple[str, str]]:
        return required_fields(_parse_schema(self), PARSED)


def _reasons() -> dict[str, str]:
    text = f"{PARSED}.{_CORRUPT}"  # the whole value when it could not be parsed
    reasons = {
        f"NOT {_VALID}": "not UTF-8",
        f"{PARSED} IS NULL": "not JSON",
        f"{text} IS NOT NULL AND try_parse_json({text}) IS NULL": "not JSON",
        f"{text} IS NOT NULL AND NOT startswith(ltrim({text}), '{{')": "not a JSON object",
        f"{text} IS NOT NULL": "a field has the wrong type",
        f"NOT {_ALONE}": "more than one JSON object",
    }
    return {when: literal(reason) for when, reason in reasons.items()}


_REASONS = _reasons()


def _parse_schema(decoder: JsonDecoder) -> "StructType":
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = cast(StructType, StructType.fromDDL(decoder.schema))
    except PySparkException as error:
        raise PipelineError(
            f"The decoder's schema '{decoder.schema}' is not readable. Write fields as NAME TYPE, separated by commas, "
            "such as: visit_id STRING NOT NULL, event_time TIMESTAMP."
        ) from error
    require_timestamp(decoder.parse_time(schema), schema)
    return schema


def _read(spark: "SparkSession", fields: "StructType") -> "Column | None":
    """Return what `_from_json` returns, but null for most values that it rejects, and for some rare values.

    Return None where `_from_json` has to read every value: the schema has a type that JsonReader does not read, Spark
    parses times as Spark 2 did, or the JVM has no classes of respool, as under spark-submit.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    legacy_times = str(spark.conf.get("spark.sql.legacy.timeParserPolicy")).upper() == "LEGACY"
    if legacy_times or not all(_is_readable(field.dataType) for field in fields):
        return None
    result = _with_corrupt(fields).toNullable()
    # Each result type has a separate name: sessions are shared by threads, and a name has one type.
    name = f"respool_read_json_{hashlib.sha256(result.json().encode()).hexdigest()[:16]}"
    try:
        spark.udf.registerJavaFunction(name, _READER, result)
    except PySparkException:
        return None
    timezone = spark.conf.get("spark.sql.session.timeZone")
    return F.call_function(name, F.col("value"), F.lit(f"{timezone}\n{fields.json()}".encode()))


def _is_readable(kind: "DataType") -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return all(_is_readable(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _is_readable(kind.elementType)
    if isinstance(kind, T.MapType):
        return kind.keyType == T.StringType() and _is_readable(kind.valueType)
    if isinstance(kind, T.StringType):
        return kind == T.StringType()  # with no collation
    numbers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType)
    return isinstance(kind, (*numbers, T.BooleanType, T.DateType, T.TimestampType))


def _from_json(fields: "StructType") -> "Column":
    """Parse the JSON with the event time still as text, so that an unreadable time has its own reason."""
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    return F.from_json(F.expr("CAST(value AS STRING)"), _with_corrupt(fields), options)


def _text_time(schema: "StructType", decoder: JsonDecoder, types: Any) -> "StructType":
    return replace_leaf(schema, decoder.parse_time(schema).path, types.StringType(), types)


def _with_corrupt(fields: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*fields, StructField(_CORRUPT, StringType())])
