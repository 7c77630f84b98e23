"""Decode records into events; a record that does not decode becomes a rejected record with a reason.

Decoding never fails a query. The value of a record must be one JSON object in UTF-8, its fields of the declared types,
fields declared NOT NULL present, also those of nested structs, its event time readable.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from respool.errors import PipelineError
from respool.identity import Identity
from respool.spark.sql import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_CORRUPT = "_respool_corrupt"
_READER = "respool.JsonReader"  # a class in jvm_classes.JAR
# Columns between two steps, named so that no field of an event is called the same.
_PARSED, _VALID, _ALONE, _TIME = ("_respool_parsed", "_respool_valid", "_respool_alone", "_respool_time")
_READ, _REJECTED = ("_respool_read", "_respool_rejected")
# Whether a value has nothing after its JSON object. A flat object ends at its first brace: only other values are
# parsed again, to check whether a second value follows.
_IS_ALONE = """
    endswith(CAST(value AS STRING), '}')
        AND NOT contains(CAST(substring(value, 1, octet_length(value) - 1) AS STRING), '}')
    OR json_array_length(concat('[', CAST(value AS STRING), ']')) <=> 1
"""


@dataclass(frozen=True)
class JsonDecoder:
    """Decodes the values of records.

    Attributes:
        schema: The event's fields as Spark DDL, such as `visit_id STRING NOT NULL, event_time TIMESTAMP`. Other fields
            of a record are ignored; NOT NULL makes a field required, also one of a struct that is present.
        event_time: The field that holds the event time: ISO-8601 text such as `2025-09-04T07:30Z`, read in the
            pipeline's time zone when it names no zone of its own. A space may stand for the T, seconds may be left out
            and have a fraction of any length (kept to the microsecond), an offset is `Z`, `+02:00`, `+0200` or `+02`.

    >>> respool.JsonDecoder("shop STRING NOT NULL, ordered_at TIMESTAMP", event_time="ordered_at").event_time
    'ordered_at'
    """

    schema: str
    event_time: str

    def identity(self) -> Identity:
        """Return the identity of this decoder, however its schema is spelled."""
        from respool.spark.sql import DdlError, canonical_ddl

        try:
            schema = canonical_ddl(self.schema)
        except DdlError:  # a schema that only Spark can read is compared as it is
            schema = self.schema
        return Identity("json", {"schema": schema, "event_time": self.event_time})

    def fields(self) -> list[str]:
        """Return the names of the event's fields."""
        return _parse_schema(self).names


def decode(records: "DataFrame", decoder: JsonDecoder) -> "DataFrame":
    """Return the records with two more columns: `event`, a struct, and `rejected`, the reason why there is none.

    Exactly one of the two is null in every row.
    """
    from pyspark.sql import functions as F

    event = F.when(F.col("rejected").isNull(), F.struct(*_fields(decoder)))
    kept = (name for name in records.columns if name not in ("rejected", "event"))
    return _examine(records, decoder).select(*kept, "rejected", event.alias("event"))


def decode_events(records: "DataFrame", decoder: JsonDecoder, observation: str) -> "DataFrame":
    """Return the events of records, each field a column, and observe how many were `rejected`.

    Fields that the transform does not use are not carried along, as they would be in a struct.

    Args:
        records: The records.
        decoder: The decoder.
        observation: The name under which Spark reports the number, for each batch.
    """
    from pyspark.sql import functions as F

    examined = _examine(records, decoder).select(F.col("rejected").alias(_REJECTED), *_fields(decoder))
    observed = examined.observe(observation, F.count(_REJECTED).alias("rejected"))
    return observed.where(F.col(_REJECTED).isNull()).drop(_REJECTED)


def _examine(records: "DataFrame", decoder: JsonDecoder) -> "DataFrame":
    """Return the records with `rejected` and the parts of an event.

    Spark parses outside of its generated code, into a row that it copies. So everything that needs the value itself is
    computed in the same step, and the value is not carried further unless it is used. Expressions are SQL where
    possible: a column made in Python costs a call to the JVM for each of its parts.
    """
    from pyspark.sql import functions as F

    schema = _parse_schema(decoder)
    parsed, valid, alone = _parse(schema, decoder), F.expr("is_valid_utf8(CAST(value AS STRING))"), F.expr(_IS_ALONE)
    kept = records.columns
    read = _read(records.sparkSession, schema, decoder)
    if read is not None:
        records = records.withColumn(_READ, read)
        is_read = F.col(_READ).isNotNull()
        parsed = F.coalesce(F.col(_READ), parsed)
        valid, alone = is_read | valid, is_read | alone
    columns = records.select(*map(quote, kept), parsed.alias(_PARSED), valid.alias(_VALID), alone.alias(_ALONE))
    timed = columns.withColumn(_TIME, F.expr(_event_time(_field(decoder.event_time))))
    return timed.withColumn("rejected", F.expr(_reason(schema, decoder)))


def _fields(decoder: JsonDecoder) -> "list[Column]":
    """Return the fields of an event, from the columns of `_examine`."""
    from pyspark.sql import functions as F

    columns = {name: _field(name) for name in decoder.fields()}
    columns[decoder.event_time] = _TIME
    return [F.expr(f"{sql} AS {quote(name)}") for name, sql in columns.items()]


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
    _check(decoder, schema)
    return schema


def check(decoder: JsonDecoder) -> list[str]:
    """Return the names of the event's fields, without a JVM; raise PipelineError for a decoder that cannot be used."""
    from respool.spark.sql import DdlError, parse_ddl

    try:
        schema = parse_ddl(decoder.schema)
    except DdlError as error:
        raise PipelineError(
            f"The decoder's schema '{decoder.schema}' is not readable: {error} Write fields as NAME TYPE, separated by "
            "commas, such as: visit_id STRING NOT NULL, event_time TIMESTAMP."
        ) from error
    _check(decoder, schema)
    return schema.names


def _check(decoder: JsonDecoder, schema: "StructType") -> None:
    from pyspark.sql.types import TimestampType

    names = [name.lower() for name in schema.names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PipelineError(
            f"The decoder's schema has the field '{twice}' twice; Spark ignores the case of field names. "
            "Leave one of them out."
        )
    if decoder.event_time not in schema.names:
        raise PipelineError(
            f"The decoder's event time '{decoder.event_time}' is not one of its fields ({', '.join(schema.names)}). "
            "Name one of them."
        )
    if not isinstance(schema[decoder.event_time].dataType, TimestampType):
        raise PipelineError(f"The decoder's event time '{decoder.event_time}' must be declared as TIMESTAMP.")


def _read(spark: "SparkSession", schema: "StructType", decoder: JsonDecoder) -> "Column | None":
    """Return what `_parse` returns, but null for most values that it rejects, and for some rare values.

    Return None where `_parse` has to read every value: the schema has a type that JsonReader does not read, Spark
    parses times as Spark 2 did, or the JVM has no classes of respool, as under spark-submit.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    fields = _text_time(schema, decoder)
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
    return F.call_function(name, F.col("value"), F.lit(fields.json()), F.lit(timezone))


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


def _parse(schema: "StructType", decoder: JsonDecoder) -> "Column":
    """Parse the JSON with the event time still as text, so that an unreadable time has its own reason."""
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    return F.from_json(F.expr("CAST(value AS STRING)"), _with_corrupt(_text_time(schema, decoder)), options)


def _text_time(schema: "StructType", decoder: JsonDecoder) -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType(
        [
            StructField(field.name, StringType() if field.name == decoder.event_time else field.dataType)
            for field in schema
        ]
    )


def _with_corrupt(fields: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*fields, StructField(_CORRUPT, StringType())])


def _event_time(text: str) -> str:
    """Read ISO-8601 date and time; Spark alone would also take '07:00' (today) and '12345' (a year).

    Spark needs seconds before a zone, and capital letters: both are completed. The years 0000 and 9999 are refused: in
    some time zones Python cannot represent them.
    """
    complete = f"substring({text}, 5, 1) = '-' AND substring({text}, 14, 1) = ':'"
    complete += f" AND NOT startswith({text}, '0000') AND NOT startswith({text}, '9999')"
    # Most times are as Spark reads them, and a regular expression costs more than parsing a time.
    usual = f"substring({text}, 11, 1) <> 't' AND substring({text}, 17, 1) = ':' AND NOT endswith({text}, 'z')"
    capital = f"concat(substring({text}, 1, 10), upper(substring({text}, 11, 1)), substring({text}, 12))"
    capital = f"regexp_replace({capital}, '(?<=[0-9])z$', 'Z')"
    with_seconds = f"regexp_replace({capital}, '^(.{{16}})(?=[Z+ -])', '$1:00')"
    return (
        f"CASE WHEN {complete} THEN "
        f"CASE WHEN {usual} THEN try_cast({text} AS TIMESTAMP) ELSE try_cast({with_seconds} AS TIMESTAMP) END END"
    )


def _reason(schema: "StructType", decoder: JsonDecoder) -> str:
    text = _field(_CORRUPT)  # the whole value when it could not be parsed
    time = decoder.event_time
    reasons = {
        f"{_VALID} IS NULL": "no value",
        f"NOT {_VALID}": "not UTF-8",
        f"{_PARSED} IS NULL": "not JSON",
        f"{text} IS NOT NULL AND try_parse_json({text}) IS NULL": "not JSON",
        f"{text} IS NOT NULL AND NOT startswith(ltrim({text}), '{{')": "not a JSON object",
        f"{text} IS NOT NULL": "a field has the wrong type",
        f"NOT {_ALONE}": "more than one JSON object",
        f"{_field(time)} IS NULL": f"{time} is missing",
        f"{_TIME} IS NULL": f"{time} is not readable",
    }
    for missing, path in _required(schema, _PARSED):
        reasons.setdefault(missing, f"{path} is missing")
    return f"CASE {' '.join(f'WHEN {when} THEN {literal(reason)}' for when, reason in reasons.items())} END"


def _required(kind: "DataType", value: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield an SQL condition that is true when a required part of a value is missing, and the path of that part.

    For Spark's `from_json` every part may be missing. The parts of a value that is itself missing are not required. In
    a path, `[]` stands for the elements of an array and for the values of a map.

    Args:
        kind: The declared type.
        value: The value, in SQL.
        path: Its path.
        depth: How many arrays and maps it is in.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        fields = [(field, f"{value}.{quote(field.name)}", f"{path}.{field.name}".lstrip(".")) for field in kind]
        for field, inner, name in fields:
            if not field.nullable:
                yield f"{value} IS NOT NULL AND {inner} IS NULL" if path else f"{inner} IS NULL", name
        for field, inner, name in fields:
            yield from _required(field.dataType, inner, name, depth)
    elif isinstance(kind, ArrayType):
        yield from _required_inside(kind.elementType, kind.containsNull, value, path, depth)
    elif isinstance(kind, MapType):
        yield from _required_inside(kind.valueType, kind.valueContainsNull, f"map_values({value})", path, depth)


def _required_inside(kind: "DataType", nullable: bool, array: str, path: str, depth: int) -> Iterator[tuple[str, str]]:
    element, path = f"respool_{depth}", f"{path}[]"
    if not nullable:
        yield f"exists({array}, {element} -> {element} IS NULL)", path
    for missing, name in _required(kind, element, path, depth + 1):
        yield f"exists({array}, {element} -> {missing})", name


def _field(name: str) -> str:
    """Return a parsed field, in SQL."""
    return f"{_PARSED}.{quote(name)}"
