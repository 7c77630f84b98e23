"""Records become events; a record that does not decode becomes a rejected record with a reason.

Decoding never fails a query. The value of a record must be one JSON object in UTF-8, its fields of the declared types,
fields declared NOT NULL present, its event time readable.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from respool.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_CORRUPT = "_respool_corrupt"


@dataclass(frozen=True)
class JsonDecoder:
    """How the value of a record is read.

    Attributes:
        schema: The event's fields as Spark DDL, such as `visit_id STRING NOT NULL, event_time TIMESTAMP`. Other fields
            of a record are ignored; NOT NULL makes a field required.
        event_time: The field that holds the event time: ISO-8601 text, read in the pipeline's time zone when it names
            no zone of its own.
    """

    schema: str
    event_time: str

    def fields(self) -> list[str]:
        """Return the names of the event's fields."""
        return _parse_schema(self).names


def decode(records: "DataFrame", decoder: JsonDecoder) -> "DataFrame":
    """Return the records with two more columns: `event`, a struct, and `rejected`, the reason why there is none.

    Exactly one of the two is null in every row.
    """
    from pyspark.sql import functions as F

    schema = _parse_schema(decoder)
    parsed = records.withColumn("_parsed", _parse(F.col("value").cast("string"), schema, decoder))
    reason = _reason(F.col("value").cast("string"), F.col("_parsed"), schema, decoder)
    fields = [F.col("_parsed").getField(name).alias(name) for name in schema.names if name != decoder.event_time]
    position = schema.names.index(decoder.event_time)
    fields.insert(position, _event_time(F.col("_parsed"), decoder).alias(decoder.event_time))
    return (
        parsed.withColumn("rejected", reason)
        .withColumn("event", F.when(F.col("rejected").isNull(), F.struct(*fields)))
        .drop("_parsed")
    )


def events(decoded: "DataFrame") -> "DataFrame":
    """Return the events of decoded records, each field a column."""
    return decoded.where("rejected IS NULL").select("event.*")


def _parse_schema(decoder: JsonDecoder) -> "StructType":
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, TimestampType

    try:
        schema = cast(StructType, StructType.fromDDL(decoder.schema))
    except PySparkException as error:
        raise PipelineError(
            f"The decoder's schema '{decoder.schema}' is not readable. Write fields as NAME TYPE, separated by commas, "
            "such as: visit_id STRING NOT NULL, event_time TIMESTAMP."
        ) from error
    if decoder.event_time not in schema.names:
        raise PipelineError(
            f"The decoder's event time '{decoder.event_time}' is not one of its fields ({', '.join(schema.names)}). "
            "Name one of them."
        )
    if not isinstance(schema[decoder.event_time].dataType, TimestampType):
        raise PipelineError(f"The decoder's event time '{decoder.event_time}' must be declared as TIMESTAMP.")
    return schema


def _parse(text: "Column", schema: "StructType", decoder: JsonDecoder) -> "Column":
    """Parse the JSON with the event time still as text, so that an unreadable one has a reason of its own."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(one.name, StringType() if one.name == decoder.event_time else one.dataType) for one in schema]
    wanted = StructType([*fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    return F.from_json(text, wanted, options)


def _event_time(parsed: "Column", decoder: JsonDecoder) -> "Column":
    """Read ISO-8601 date and time; Spark alone would also take '07:00' (today) and '12345' (a year).

    The first and the last year that four digits can say are refused: in some time zone Python cannot hold them.
    """
    from pyspark.sql import functions as F

    text = parsed.getField(decoder.event_time)
    complete = (F.substring(text, 5, 1) == "-") & (F.substring(text, 14, 1) == ":")
    complete &= ~F.substring(text, 1, 4).isin("0000", "9999")
    return F.when(complete, text.try_cast("timestamp"))


def _reason(text: "Column", parsed: "Column", schema: "StructType", decoder: JsonDecoder) -> "Column":
    from pyspark.sql import functions as F

    # A flat object ends at its first brace: only what does not is looked at again for a second value behind it.
    values = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    alone = (F.instr(text, "}") == F.length(text)) | values.eqNullSafe(1)
    corrupt = (
        F.when(F.try_parse_json(text).isNull(), "not JSON")
        .when(~F.ltrim(text).startswith("{"), "not a JSON object")
        .otherwise("a field has the wrong type")
    )
    reason = (
        F.when(text.isNull(), "no value")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(parsed.isNull(), "not JSON")
        .when(parsed.getField(_CORRUPT).isNotNull(), corrupt)
        .when(~alone, "more than one JSON object")
        .when(parsed.getField(decoder.event_time).isNull(), f"{decoder.event_time} is missing")
        .when(_event_time(parsed, decoder).isNull(), f"{decoder.event_time} is not readable")
    )
    for field in schema:
        if not field.nullable:
            reason = reason.when(parsed.getField(field.name).isNull(), f"{field.name} is missing")
    return reason
