"""What respool's own decoders share: event time, tombstones, parts of the record, required fields, reasons."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from respool.decoders import event_time as times
from respool.decoders.event_time import EventTime, TimeUnit
from respool.decoders.protocol import EVENT_TIME, RECORD, Decoded, RecordPart, Tombstones
from respool.errors import PipelineError
from respool.identity import Identity
from respool.spark import plain_types
from respool.spark.sql import DdlError, literal, parse_ddl, quote
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

# Columns between two steps, named so that no field of an event is called the same.
PARSED = "_respool_parsed"
_NONE, _TIME, _REASON = ("_respool_none", "_respool_time", "_respool_reason")


@dataclass(frozen=True)
class Parsed:
    """Parsed values of records.

    Attributes:
        records: The records, with further columns if `columns` are made of them.
        columns: Columns to add to the records; `PARSED` is among them, a struct of the event's fields.
        schema: The type of that struct.
        reasons: Why a record is rejected: SQL conditions on the columns, in order, each with the reason as SQL.
    """

    records: "DataFrame"
    columns: "Mapping[str, Column]"
    schema: "StructType"
    reasons: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ValueDecoder(ABC):
    """A decoder whose events have the fields of a schema.

    Attributes:
        time_unit: The unit of an event time that is a number since 1970: seconds, milliseconds or microseconds; None
            for text in ISO 8601 and for timestamps.
        tombstones: A record without a value is rejected (`reject`), dropped (`drop`), or an event (`keep`), whose
            fields are null and whose event time is the timestamp of Kafka.
        include: Parts of the record that events have in the column `record`, a struct: topic, partition, offset,
            timestamp, key, headers, and tombstone, which is true if it has no value.
    """

    time_unit: TimeUnit | None = None
    tombstones: Tombstones = "reject"
    include: tuple[RecordPart, ...] = ()

    KIND: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def event_time(self) -> str:
            """The event time, a field of each subclass."""

    @abstractmethod
    def schema_of_events(self, types: Any) -> "StructType":
        """Return the fields of events as they are parsed, without a JVM; raise PipelineError for a wrong schema.

        Args:
            types: The module that has the types: pyspark.sql.types, or `plain_types` without pyspark.
        """

    @abstractmethod
    def _parse(self, records: "DataFrame") -> Parsed:
        """Parse the values of records."""

    @abstractmethod
    def _own_identity(self) -> Mapping[str, Any]:
        """Return the fields of the identity besides those of this class."""

    def identity(self) -> Identity:
        """Return the identity of this decoder."""
        fields = {**self._own_identity(), "event_time": self.event_time}
        if self.time_unit is not None:
            fields["time_unit"] = self.time_unit
        if self.tombstones != type(self).tombstones:
            fields["tombstones"] = self.tombstones
        if self.include:
            fields["include"] = sorted(self.include)
        return Identity(self.KIND, fields)

    @property
    def time_column(self) -> str:
        """The column of events that has the event time."""
        return self.parse_time().column

    def columns(self) -> set[str]:
        """Return the columns of records that it needs."""
        parts = {"value" if part == "tombstone" else part for part in self.include}
        needs_time = not self.parse_time().path or self.tombstones == "keep"
        return {"value", *parts, *(("timestamp",) if needs_time else ())}

    def check(self) -> list[str]:
        """Return the names of the columns of events; raise PipelineError if this decoder cannot be used."""
        self._check_options()
        return self._check(self.schema_of_events(plain_types), plain_types)

    def decode(self, records: "DataFrame") -> Decoded:
        """Read records.

        Spark parses outside of its generated code, into a row that it copies. So everything that needs the value itself
        is computed in the same step, and the value is not carried further unless it is used. Expressions are SQL where
        possible: a column made in Python costs a call to the JVM for each of its parts.
        """
        from pyspark.sql import functions as F
        from pyspark.sql import types

        self._check_options()
        parsed = self._parse(records)
        self._check(parsed.schema, types)
        time = self.parse_time(parsed.schema)
        kept = (quote(name) for name in records.columns if name not in (_TIME, _REASON))
        added = (column.alias(name) for name, column in parsed.columns.items())
        rows = parsed.records.select(*kept, *added, F.expr(f"value IS NULL AS {_NONE}"))
        rows = rows.withColumn(_TIME, F.expr(self._time_sql(time, parsed.schema)))
        rows = rows.withColumn(_REASON, F.expr(self._reason_sql(time, parsed)))
        dropped = F.col(_NONE) if self.tombstones == "drop" else None
        return Decoded(rows, F.col(_REASON), self._fields(time, parsed.schema), F.col(_TIME), dropped)

    def parse_time(self, schema: "StructType | None" = None) -> EventTime:
        """Return which field has the event time, in a schema or in the declared one."""
        self._check_options()
        schema = self.schema_of_events(plain_types) if schema is None and "." in self.event_time else schema
        return times.parse_event_time(self.event_time, self.time_unit, schema.names if schema else [self.event_time])

    def _time_sql(self, time: EventTime, schema: "StructType") -> str:
        if not time.path:
            return times.kafka_time_sql()
        sql = times.time_sql(times.field_sql(PARSED, time.path), times.leaf_type(time, schema), time.unit)
        return sql if self.tombstones == "reject" else f"CASE WHEN {_NONE} THEN {times.kafka_time_sql()} ELSE {sql} END"

    def _reason_sql(self, time: EventTime, parsed: Parsed) -> str:
        reasons = {_NONE: literal("no value") if self.tombstones == "reject" else "NULL", **parsed.reasons}
        if time.path:
            raw = times.field_sql(PARSED, time.path)
            reasons.setdefault(f"{raw} IS NULL", literal(f"{time.name} is missing"))
            reasons[f"{_TIME} IS NULL"] = literal(f"{time.name} is not readable")
        else:
            reasons[f"{_TIME} IS NULL"] = literal(f"{time.name} is missing")
        for missing, path in self._required():
            reasons.setdefault(missing, literal(f"{path} is missing"))
        return f"CASE {' '.join(f'WHEN {when} THEN {reason}' for when, reason in reasons.items())} END"

    def _required(self) -> Iterator[tuple[str, str]]:
        """Yield the conditions under which a required field is missing, and its path."""
        yield from ()

    def _fields(self, time: EventTime, schema: "StructType") -> "dict[str, Column]":
        """Return the fields of an event; the event time is a TIMESTAMP wherever it is."""
        from pyspark.sql import functions as F

        columns = {name: F.expr(times.field_sql(PARSED, (name,))) for name in schema.names}
        if time.path:
            head, *inner = time.path
            path = ".".join(map(quote, inner))
            columns[head] = columns[head].withField(path, F.col(_TIME)) if inner else F.col(_TIME)
        columns[time.column] = F.col(_TIME)
        if self.include:
            parts = (_NONE if part == "tombstone" else quote(part) for part in self.include)
            names = (f"{part} AS {quote(name)}" for part, name in zip(parts, self.include, strict=True))
            columns[RECORD] = F.expr(f"struct({', '.join(names)})")
        return columns

    def _check(self, schema: "StructType", types: Any) -> list[str]:
        names = [name.lower() for name in schema.names]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise PipelineError(
                f"The decoder's schema has the field '{twice}' twice; Spark ignores the case of field names. "
                "Leave one of them out."
            )
        time = self.parse_time(schema)
        if time.path:
            times.require_readable(time, times.leaf_type(time, schema), types)
        added = [*((EVENT_TIME,) if len(time.path) != 1 else ()), *((RECORD,) if self.include else ())]
        for name in added:
            if name in names:
                raise PipelineError(
                    f"The decoder's schema has the field '{name}', and its events get a column of that name from "
                    f"{'include' if name == RECORD else f'the event time, {time.name}'}. Leave one of them out."
                )
        return [*schema.names, *added]

    def _check_options(self) -> None:
        if not isinstance(self.event_time, str) or not self.event_time:
            raise PipelineError(
                f"The decoder's event_time is {self.event_time!r}. Expected the name of a field, or KAFKA_TIMESTAMP."
            )
        if self.tombstones not in get_args(Tombstones):
            raise PipelineError(
                f"The decoder's tombstones is {self.tombstones!r}."
                f"{did_you_mean(str(self.tombstones), list(get_args(Tombstones)))} Expected keep, reject or drop."
            )
        parts = get_args(RecordPart)
        if isinstance(self.include, str) or not all(part in parts for part in self.include):
            raise PipelineError(
                f"The decoder's include is {self.include!r}; expected a tuple of parts of a record, of "
                f"{', '.join(parts)}."
            )


def declared_schema(text: str, types: Any) -> "StructType":
    """Return the schema that DDL declares, without a JVM; raise PipelineError if it is not readable."""
    try:
        return parse_ddl(text, types)
    except DdlError as error:
        raise PipelineError(
            f"The decoder's schema '{text}' is not readable: {error} Write fields as NAME TYPE, separated by "
            "commas, such as: visit_id STRING NOT NULL, event_time TIMESTAMP."
        ) from error


def require_timestamp(time: EventTime, schema: "StructType") -> None:
    """Raise PipelineError when the event time of a declared schema is not declared as TIMESTAMP."""
    if time.path and times.leaf_type(time, schema).simpleString() != "timestamp":
        raise PipelineError(f"The decoder's event time '{time.name}' must be declared as TIMESTAMP.")


def required_fields(kind: "DataType", value: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield an SQL condition that is true when a required part of a value is missing, and the path of that part.

    For Spark's parsers every part may be missing. The parts of a value that is itself missing are not required. In
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
            yield from required_fields(field.dataType, inner, name, depth)
    elif isinstance(kind, ArrayType):
        yield from _required_inside(kind.elementType, kind.containsNull, value, path, depth)
    elif isinstance(kind, MapType):
        yield from _required_inside(kind.valueType, kind.valueContainsNull, f"map_values({value})", path, depth)


def _required_inside(kind: "DataType", nullable: bool, array: str, path: str, depth: int) -> Iterator[tuple[str, str]]:
    element, path = f"respool_{depth}", f"{path}[]"
    if not nullable:
        yield f"exists({array}, {element} -> {element} IS NULL)", path
    for missing, name in required_fields(kind, element, path, depth + 1):
        yield f"exists({array}, {element} -> {missing})", name
