"""The columns of a state as a flat table: keys first, struct fields by their path, unique names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from respool.errors import SettingsError
from respool.spark.sql import quote
from respool.text import did_you_mean
from respool.times import epoch_micros, parse_time

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_KEYS = ("key", "user_map_key")
_CHANGE = {"batch_id": "batch", "change_type": "change"}
# Times that Spark stores as numbers, of timers and of deduplication, each with its unit in microseconds.
_TIMES = {"expiration_timestamp_ms": 1000, "value.expiresAtMicros": 1}
_LEFT_OUT = ("partition_id",)
READ_ORDER = "respool-order"  # the order in which Spark's reader returned the rows: that of the elements of a list


@dataclass(frozen=True)
class StateColumn:
    """A column of the table.

    Attributes:
        name: Its name.
        source: The column of Spark's reader that it comes from.
        path: Its path in that column: the numbers of fields, from the outermost on.
        type: Its type.
        micros: The unit of a time that is stored as a number, in microseconds; None for other columns.
    """

    name: str
    source: str
    path: tuple[int, ...]
    type: "DataType"
    micros: int | None = None

    @property
    def is_key(self) -> bool:
        """Whether it is part of the key."""
        return self.source in _KEYS


def columns_of(schema: "StructType") -> tuple[StateColumn, ...]:
    """Return the columns of a state from the schema that Spark's reader gives it."""
    from pyspark.sql.types import NullType, TimestampType

    candidates: list[tuple[str, str, StateColumn]] = []  # the short name, the long one, and the column
    for field in schema.fields:
        if field.name in _LEFT_OUT:
            continue
        for names, path, kind in _leaves(field.dataType):
            if isinstance(kind, NullType):  # a placeholder of Spark's
                continue
            short = ".".join(names) or _CHANGE.get(field.name, field.name)
            long = ".".join([field.name, *names])
            unit = _TIMES.get(long) if len(list(_leaves(field.dataType))) == 1 else None
            if unit is not None:
                short, kind = "expires", TimestampType()
            candidates.append((short, long, StateColumn("", field.name, path, kind, unit)))
    candidates.sort(
        key=lambda candidate: (candidate[2].source not in _CHANGE, not candidate[2].is_key)
    )  # stable: other columns keep their order
    often = Counter(short for short, _, _ in candidates)
    taken: Counter[str] = Counter()
    named = []
    for short, long, column in candidates:
        name = short if often[short] == 1 or (column.is_key and not taken[short]) else long
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name}_{taken[name]}"
        named.append(replace(column, name=name))
    return tuple(named)


def flat(frame: "DataFrame", columns: Sequence[StateColumn], where: "Expression | None" = None) -> "DataFrame":
    """Return a frame of Spark's reader as a flat table, with one more column for the order in which it was read."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    # By number, as fields of the same name are common, and Spark has rows with more fields than their schema.
    numbered = frame.select(
        *(
            F.col(field.name).cast(_numbered(field.dataType)) if isinstance(field.dataType, StructType) else field.name
            for field in frame.schema.fields
        )
    )
    numbered = numbered if where is None else numbered.where(where)
    return numbered.select(
        *(_cell(column).alias(column.name) for column in columns), F.monotonically_increasing_id().alias(READ_ORDER)
    )


def condition(columns: Sequence[StateColumn], wanted: Mapping[str, str], zone: tzinfo) -> "Expression | None":
    """Return the condition that columns have the given values; None when there are no values.

    Raises:
        SettingsError: A column is unknown, or cannot have such a value.
    """
    combined: Expression | None = None
    known = {column.name: column for column in columns}
    for name, text in wanted.items():
        if name not in known:
            keys = [column.name for column in columns if column.is_key]
            rest = ", ".join(column.name for column in columns if not column.is_key)
            raise SettingsError(
                f"There is no column '{name}'.{did_you_mean(name, list(known))} The key has: "
                f"{', '.join(keys) or 'no column'}; the rest: {rest or 'nothing'}."
            )
        comparison = _cell(known[name]) == _value(known[name], text, zone)
        combined = comparison if combined is None else combined & comparison
    return combined


def order(columns: Sequence[StateColumn]) -> list["Expression"]:
    """Return the sort order: changes by their batch, then rows by their key, then in reading order."""
    from pyspark.sql import functions as F

    first = [column for column in columns if column.source == "batch_id"]
    keys = [column for column in columns if column.is_key and _sorts(column.type)]
    return [*(F.col(quote(column.name)) for column in (*first, *keys)), F.col(quote(READ_ORDER))]


def select(frame: "DataFrame", columns: Sequence[StateColumn], nested: bool = True) -> "DataFrame":
    """Return some columns of a flat table; nested columns become JSON unless `nested`, for formats without nesting."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType

    def cell(shown: StateColumn) -> "Expression":
        column = F.col(quote(shown.name))
        if nested or not isinstance(shown.type, ArrayType | MapType | BinaryType):
            return column
        return (F.base64 if isinstance(shown.type, BinaryType) else F.to_json)(column).alias(shown.name)

    return frame.select(*map(cell, columns))


def _leaves(
    kind: "DataType", names: tuple[str, ...] = (), path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], "DataType"]]:
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        yield names, path, kind
        return
    for number, field in enumerate(kind.fields):
        yield from _leaves(field.dataType, (*names, field.name), (*path, number))


def _numbered(kind: "DataType") -> "DataType":
    from pyspark.sql.types import StructField, StructType

    if not isinstance(kind, StructType):
        return kind
    return StructType([StructField(f"f{at}", _numbered(field.dataType)) for at, field in enumerate(kind.fields)])


def _cell(column: StateColumn) -> "Expression":
    from pyspark.sql import functions as F

    cell = F.col(".".join([quote(column.source), *(f"f{number}" for number in column.path)]))
    return cell if column.micros is None else F.timestamp_micros(cell * column.micros)


def _sorts(kind: "DataType") -> bool:
    from pyspark.sql.types import ArrayType, MapType

    if isinstance(kind, ArrayType):
        return _sorts(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() != "variant"


def _value(column: StateColumn, text: str, zone: tzinfo) -> Any:
    """Return text as a value of a column's type."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = column.type
    try:
        if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
            return F.lit(text)
        if isinstance(kind, T.BooleanType):
            return F.lit({"true": True, "false": False}[text.lower()])
        if isinstance(kind, T.IntegralType):
            return F.lit(int(text.replace(",", "")))
        if isinstance(kind, T.FloatType | T.DoubleType):
            return F.lit(float(text)).cast(kind)
        if isinstance(kind, T.DecimalType):
            return F.lit(Decimal(text))
        if isinstance(kind, T.TimestampType):
            return F.timestamp_micros(F.lit(epoch_micros(parse_time(text, zone))))
        if isinstance(kind, T.TimestampNTZType):
            return F.lit(datetime.fromisoformat(text)).cast(kind)
        if isinstance(kind, T.DateType):
            return F.lit(date.fromisoformat(text))
    except (ValueError, KeyError, InvalidOperation) as error:
        raise SettingsError(
            f"Column {column.name} is of type {kind.simpleString()}; '{text}' cannot be converted."
        ) from error
    raise SettingsError(f"Rows cannot be chosen by the column {column.name}: it is of type {kind.simpleString()}.")
