"""Rows as JSON: the only place that renders the keys and values of results.

A time is rendered with milliseconds, as Spark does by default, and with microseconds where milliseconds would not be
exact: two different times never have the same text. Spark's own options have one format for all times of a column.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from respool.spark.sql import literal, quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_MILLISECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSS"
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def json_of(schema: "StructType", names: Iterable[str], zone: str | None = None) -> str:
    """Return some columns as a JSON object, in SQL.

    Args:
        schema: The schema of the rows.
        names: The columns.
        zone: The time zone in which times are rendered; the session's by default.
    """
    kinds = {field.name.lower(): field.dataType for field in schema}  # Spark ignores the case; it reports unknown names
    fields = (f"{_exact(quote(name), kinds.get(name.lower()), zone)} AS {quote(name)}" for name in names)
    return f"to_json(struct({', '.join(fields)}){_options({}, zone)})"


def _exact(value: str, kind: "DataType | None", zone: str | None, depth: int = 0) -> str:
    """Return a value with each time in it as text; without times it is left as it is."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType | TimestampNTZType):
        return _time(value, zone)
    if isinstance(kind, StructType):
        fields = [(field.name, _exact(f"{value}.{quote(field.name)}", field.dataType, zone, depth)) for field in kind]
        if all(sql == f"{value}.{quote(name)}" for name, sql in fields):
            return value
        struct = ", ".join(f"{sql} AS {quote(name)}" for name, sql in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN struct({struct}) END"
    if isinstance(kind, ArrayType):
        element = f"respool_{depth}"
        changed = _exact(element, kind.elementType, zone, depth + 1)
        return value if changed == element else f"transform({value}, {element} -> {changed})"
    if isinstance(kind, MapType):
        element = f"respool_{depth}"
        changed = _exact(element, kind.valueType, zone, depth + 1)
        return value if changed == element else f"transform_values({value}, (respool_key, {element}) -> {changed})"
    return value


def _time(value: str, zone: str | None) -> str:
    is_exact = f"extract(SECOND FROM {value}) * 1000 % 1 = 0"
    return (
        f"CASE WHEN {is_exact} THEN {_formatted(value, _MILLISECONDS, zone)} "
        f"ELSE {_formatted(value, _MICROSECONDS, zone)} END"
    )


def _formatted(value: str, pattern: str, zone: str | None) -> str:
    """Return a time as Spark's JSON has it, for its time zone and for times without a zone alike."""
    options = _options({"timestampFormat": f"{pattern}XXX", "timestampNTZFormat": pattern}, zone)
    return f"CASE WHEN {value} IS NOT NULL THEN trim(BOTH '[\"]' FROM to_json(array({value}){options})) END"


def _options(options: dict[str, str], zone: str | None) -> str:
    if zone is not None:
        options = {**options, "timeZone": zone}
    pairs = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f", map({pairs})" if pairs else ""
