"""Whether Spark can start a query from a checkpoint that another query wrote: Spark's checks, made before the start."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from respool.checkpoint.operator_files import OperatorShape, QueryShape, StateTableSchema
from respool.format.state_files import DEFAULT
from respool.text import plural

_MODES = {"timeMode": "time mode", "outputMode": "output mode"}
_SORTS = {"ValueState": "a value", "ListState": "a list", "MapState": "a map", "TimerState": "timers"}


@dataclass(frozen=True)
class Compatibility:
    """The result of comparing two queries.

    Attributes:
        blocking: Why Spark would not start, a sentence for each reason; empty when it would.
        notes: Other differences, for the user.
    """

    blocking: tuple[str, ...]
    notes: tuple[str, ...]


def compare(old: QueryShape, new: QueryShape) -> Compatibility:
    """Compare the query that wrote a checkpoint with the query that will start from it."""
    blocking, notes = [*_sources(old, new), *_operators(old, new)], list(_unknown(old))
    before = {operator.number: operator for operator in old.operators}
    for operator in new.operators:
        was = before.get(operator.number)
        if was is not None and was.name in (None, operator.name):
            blocking += [*_modes(was, operator), *_tables(was, operator, old.is_avro)]
            notes += [*_variables(was, operator), *_names(was, operator, old.is_avro)]
    return Compatibility(tuple(blocking), tuple(notes))


def _sources(old: QueryShape, new: QueryShape) -> Iterator[str]:
    if old.sources != new.sources:
        yield (
            f"the query had {plural(old.sources, 'source')} and has {new.sources} now: "
            "Spark cannot match their positions to the sources of the query."
        )


def _operators(old: QueryShape, new: QueryShape) -> Iterator[str]:
    if any(operator.name is None for operator in old.operators):
        return  # Spark does not compare names then either
    before, after = (
        {operator.number: operator for operator in old.operators},
        {operator.number: operator for operator in new.operators},
    )
    for number in sorted({*before, *after}):
        was, now = before.get(number), after.get(number)
        if was is None and now is not None:
            yield f"{now.place} is new: the checkpoint has no state of it."
        elif was is not None and now is None:
            yield f"{was.place} was removed: Spark does not drop its state."
        elif was is not None and now is not None and was.name != now.name:
            kinds = (was.kind, now.kind) if was.kind != now.kind else (was.name, now.name)
            yield f"operator {number} was {kinds[0]} and is {kinds[1]} now: neither can read the state of the other."


def _unknown(old: QueryShape) -> Iterator[str]:
    for operator in old.operators:
        if operator.name is None:
            yield f"operator {operator.number} has lost its metadata: Spark starts without comparing what it does."
        elif not operator.tables:
            yield f"{operator.place} has lost its schemas: Spark starts without comparing them."


def _modes(was: OperatorShape, now: OperatorShape) -> Iterator[str]:
    for mode, called in _MODES.items():
        if mode in was.modes and mode in now.modes and was.modes[mode] != now.modes[mode]:
            yield f"{now.place}: its {called} was {was.modes[mode]} and is {now.modes[mode]} now."
    for name, sort in sorted(was.variables.items()):
        other = now.variables.get(name)
        if other is not None and other != sort:
            yield (
                f"{now.place}: the variable {name} was {_SORTS.get(sort, sort)} and is {_SORTS.get(other, other)} now."
            )


def _tables(was: OperatorShape, now: OperatorShape, avro: bool) -> Iterator[str]:
    for table in now.tables:
        before = was.table(table.store, table.name)
        if before is None or (was.variables.get(table.name) != now.variables.get(table.name)):
            continue
        place = f"{now.place}{_part(table)}"
        if not is_compatible(table.key, before.key):
            yield f"{place}: its key was ({ddl(before.key)}) and is ({ddl(table.key)}) now."
        elif not _value_fits(now, table, before, avro):
            yield f"{place}: its value was ({ddl(before.value)}) and is ({ddl(table.value)}) now."


def _value_fits(now: OperatorShape, table: StateTableSchema, before: StateTableSchema, avro: bool) -> bool:
    if table.key == before.key and table.value == before.value:
        return True
    if avro and now.modes:  # only transformWithState supports schema evolution of its values
        return all(is_avro_readable(table.value, schema) for schema in (*before.older, before.value))
    return is_compatible(table.value, before.value)


def _variables(was: OperatorShape, now: OperatorShape) -> Iterator[str]:
    for name in sorted({*was.variables, *now.variables}):
        if name.startswith("$"):
            continue
        if name not in was.variables:
            yield f"{now.place}: the variable {name} is new, and starts empty."
        elif name not in now.variables:
            yield f"{now.place}: the variable {name} was removed; its values are no longer read."


def _names(was: OperatorShape, now: OperatorShape, avro: bool) -> Iterator[str]:
    """Yield the fields that are compatible by type but have another name."""
    for table in now.tables:
        before = was.table(table.store, table.name)
        if before is None or not is_compatible(table.key, before.key):
            continue
        pairs = renamed_fields(table.key, before.key)
        if not (avro and now.modes) and is_compatible(table.value, before.value):
            pairs += renamed_fields(table.value, before.value)
        for old, new in pairs:
            yield (
                f"{now.place}{_part(table)}: {old} was renamed to {new}. Spark compares types, not names: "
                "it continues with the old values."
            )


def _part(table: StateTableSchema) -> str:
    if table.name != DEFAULT:
        return f", {table.name}"
    return "" if table.store == DEFAULT else f", store {table.store}"


_NAMES = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}
# Avro's name for each type, and which other types it can read as that type.
_AVRO = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "date": "int",
    "long": "long",
    "timestamp": "long",
    "timestamp_ntz": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "void": "null",
}
_READS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def is_compatible(new: Any, old: Any) -> bool:
    """Return whether Spark can use state of one type as another: equal but for names, nullability not stricter."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            return len(mine) == len(theirs) and all(
                (there["nullable"] or not here["nullable"]) and is_compatible(here["type"], there["type"])
                for here, there in zip(mine, theirs, strict=True)
            )
        case {"type": "array"}, {"type": "array"}:
            return (old["containsNull"] or not new["containsNull"]) and is_compatible(
                new["elementType"], old["elementType"]
            )
        case {"type": "map"}, {"type": "map"}:
            nulls = old["valueContainsNull"] or not new["valueContainsNull"]
            return (
                nulls
                and is_compatible(new["keyType"], old["keyType"])
                and is_compatible(new["valueType"], old["valueType"])
            )
        case _:
            return bool(new == old)


def is_avro_readable(new: Any, old: Any) -> bool:
    """Return whether Avro reads values of an older type as a newer type: fields can be added, removed and widened."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            before = {field["name"]: field["type"] for field in theirs}
            return all(
                field["name"] not in before or is_avro_readable(field["type"], before[field["name"]]) for field in mine
            )
        case {"type": "array"}, {"type": "array"}:
            return is_avro_readable(new["elementType"], old["elementType"])
        case {"type": "map"}, {"type": "map"}:
            texts = new["keyType"] == old["keyType"] == "string"
            return texts and is_avro_readable(new["valueType"], old["valueType"])
        case str(), str():
            mine, theirs = _avro(new), _avro(old)
            return mine is not None and theirs is not None and (mine == theirs or theirs in _READS.get(mine, ()))
        case _:
            return False


def renamed_fields(new: Any, old: Any, inside: str = "") -> list[tuple[str, str]]:
    """Return the fields of two compatible types whose names differ, as pairs of the old and the new name."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            pairs = []
            for here, there in zip(mine, theirs, strict=True):
                if here["name"] != there["name"]:
                    pairs.append((inside + there["name"], inside + here["name"]))
                pairs += renamed_fields(here["type"], there["type"], f"{inside}{there['name']}.")
            return pairs
        case _:
            return []


def ddl(schema: Any) -> str:
    """Return a state schema as DDL text."""
    return ", ".join(
        f"{field['name']} {_type(field['type'])}" + ("" if field["nullable"] else " NOT NULL")
        for field in schema["fields"]
    )


def _type(kind: Any) -> str:
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = [f"{field['name']}: {_type(field['type'])}" for field in fields]
            return f"STRUCT<{', '.join(inner)}>"
        case {"type": "array", "elementType": element}:
            return f"ARRAY<{_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"MAP<{_type(key)}, {_type(value)}>"
        case str():
            return _NAMES.get(kind, kind.upper())
        case _:
            return str(kind.get("type", kind))


def _avro(name: str) -> str | None:
    """Return the Avro type of a primitive type; None when Avro has no such type."""
    if name.startswith("decimal("):
        precision = int(name.removeprefix("decimal(").partition(",")[0])
        return f"fixed {_bytes_for(precision)}"
    return _AVRO.get(name)


def _bytes_for(precision: int) -> int:
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size
