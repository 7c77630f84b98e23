"""The event time of an event: which field has it, and how its value becomes a TIMESTAMP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from respool.decoders.protocol import EVENT_TIME, KAFKA_TIMESTAMP
from respool.errors import PipelineError
from respool.spark.sql import quote
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TimeUnit = Literal["seconds", "milliseconds", "microseconds"]
_MICROS: dict[TimeUnit, int] = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
# In microseconds: the years 0000 and 9999 are refused, since Python cannot represent them in some time zones.
_FIRST, _LAST = -62_135_596_800_000_000, 253_370_764_800_000_000


@dataclass(frozen=True)
class EventTime:
    """Where an event has its time.

    Attributes:
        path: The names of the fields that lead to it; empty for Kafka's timestamp.
        unit: The unit of a number since 1970; None for a time, or text in ISO 8601.
    """

    path: tuple[str, ...]
    unit: TimeUnit | None = None

    @property
    def column(self) -> str:
        """The column of events that has it."""
        return self.path[0] if len(self.path) == 1 else EVENT_TIME

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return ".".join(self.path) if self.path else "Kafka's timestamp"


def parse_event_time(text: str, unit: TimeUnit | None, names: Sequence[str]) -> EventTime:
    """Return the event time that a decoder names; `names` are the fields of its events."""
    if unit is not None and unit not in _MICROS:
        raise PipelineError(
            f"The decoder's time_unit is {unit!r}.{did_you_mean(str(unit), list(_MICROS))} Expected one of "
            f"{', '.join(_MICROS)}, or None for text in ISO 8601 and for timestamps."
        )
    if text == KAFKA_TIMESTAMP:
        if unit is not None:
            raise PipelineError(
                "The decoder's time_unit has no effect with the timestamp of Kafka as the event time. Leave it out."
            )
        return EventTime(())
    return EventTime((text,) if text in names else tuple(text.split(".")), unit)


def leaf_type(time: EventTime, schema: "StructType") -> "DataType":
    """Return the type of the field that has the event time; raise PipelineError when there is none."""
    kind: Any = schema
    for depth, name in enumerate(time.path):
        names = getattr(kind, "names", [])
        if name not in names:
            where = f"of its fields ({', '.join(schema.names)})"
            if depth:
                parent = ".".join(time.path[:depth])
                where = f"of the fields of {parent} ({', '.join(names)})" if names else f"in {parent}, not a struct"
            raise PipelineError(
                f"The decoder's event time '{time.name}' is not one {where}.{did_you_mean(name, names)} Name one of "
                "them, a nested field as 'struct.field', or KAFKA_TIMESTAMP."
            )
        kind = kind[name].dataType
    leaf: DataType = kind
    return leaf


def replace_leaf(schema: "StructType", path: Sequence[str], kind: "DataType", types: Any) -> "StructType":
    """Return a schema with another type of one field, every field nullable as parsers return them."""
    fields = []
    for field in schema:
        inner: Any = field.dataType
        if path and field.name == path[0]:
            inner = kind if len(path) == 1 else replace_leaf(inner, path[1:], kind, types)
        fields.append(types.StructField(field.name, inner))
    result: StructType = types.StructType(fields)
    return result


def require_readable(time: EventTime, kind: "DataType", types: Any) -> None:
    """Raise PipelineError when no time can be read from a field of a type."""
    numbers = (types.IntegerType, types.LongType, types.FloatType, types.DoubleType, types.DecimalType)
    if isinstance(kind, (types.TimestampType, types.TimestampNTZType)):
        if time.unit is not None:
            raise PipelineError(
                f"The decoder's event time '{time.name}' is a timestamp: time_unit has no effect. Leave it out."
            )
    elif isinstance(kind, numbers):
        if time.unit is None:
            raise PipelineError(
                f"The decoder's event time '{time.name}' is a number ({kind.simpleString()}). Name its unit since "
                "1970 with time_unit: seconds, milliseconds or microseconds."
            )
    elif not isinstance(kind, types.StringType):
        raise PipelineError(
            f"The decoder's event time '{time.name}' is of the type {kind.simpleString()}. Expected a timestamp, a "
            "number with time_unit, or text."
        )


def time_sql(value: str, kind: "DataType", unit: TimeUnit | None) -> str:
    """Return a value as a TIMESTAMP, in SQL; null when it is not readable as a time."""
    from pyspark.sql import types as T

    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        time = value if isinstance(kind, T.TimestampType) else f"CAST({value} AS TIMESTAMP)"
        return _in_range(f"unix_micros({time})", time)
    if unit is None:
        return iso_sql(value)
    if isinstance(kind, T.StringType) or not isinstance(kind, T.LongType):
        value = f"try_cast({value} AS DECIMAL(38, 6))"
    factor = _MICROS[unit]
    micros = value if factor == 1 else f"try_multiply({value}, {factor}L)"
    micros = f"try_cast({micros} AS BIGINT)"
    return _in_range(micros, f"timestamp_micros({micros})")


def kafka_time_sql() -> str:
    """Return the timestamp of a record in SQL; null when its producer has set none."""
    return "CASE WHEN unix_micros(timestamp) >= 0 THEN timestamp END"


def _in_range(micros: str, time: str) -> str:
    return f"CASE WHEN {micros} >= {_FIRST}L AND {micros} < {_LAST}L THEN {time} END"


def iso_sql(text: str) -> str:
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


def field_sql(root: str, path: Sequence[str]) -> str:
    """Return a field of a struct, in SQL."""
    return ".".join((root, *map(quote, path)))
