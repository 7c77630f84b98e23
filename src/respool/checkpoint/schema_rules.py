"""When Spark takes one schema of state for another: its own rules, on schemas as its JSON says them."""

from typing import Any

_NAMES = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}
# What Avro calls a type, and which others it reads as that.
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


def fits(new: Any, old: Any) -> bool:
    """Return whether Spark takes state of one type for another: alike but for names, no null where there was none."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            return len(mine) == len(theirs) and all(
                (there["nullable"] or not here["nullable"]) and fits(here["type"], there["type"])
                for here, there in zip(mine, theirs, strict=True)
            )
        case {"type": "array"}, {"type": "array"}:
            return (old["containsNull"] or not new["containsNull"]) and fits(new["elementType"], old["elementType"])
        case {"type": "map"}, {"type": "map"}:
            nulls = old["valueContainsNull"] or not new["valueContainsNull"]
            return nulls and fits(new["keyType"], old["keyType"]) and fits(new["valueType"], old["valueType"])
        case _:
            return bool(new == old)


def reads(new: Any, old: Any) -> bool:
    """Return whether values of an older type can be read as a newer one from Avro: fields may come, go and widen."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            before = {one["name"]: one["type"] for one in theirs}
            return all(one["name"] not in before or reads(one["type"], before[one["name"]]) for one in mine)
        case {"type": "array"}, {"type": "array"}:
            return reads(new["elementType"], old["elementType"])
        case {"type": "map"}, {"type": "map"}:
            texts = new["keyType"] == old["keyType"] == "string"
            return texts and reads(new["valueType"], old["valueType"])
        case str(), str():
            mine, theirs = _avro(new), _avro(old)
            return mine is not None and theirs is not None and (mine == theirs or theirs in _READS.get(mine, ()))
        case _:
            return False


def renamed(new: Any, old: Any, inside: str = "") -> list[tuple[str, str]]:
    """Return the fields of two types that fit which have other names, the old one first."""
    match new, old:
        case {"type": "struct", "fields": mine}, {"type": "struct", "fields": theirs}:
            found = []
            for here, there in zip(mine, theirs, strict=True):
                if here["name"] != there["name"]:
                    found.append((inside + there["name"], inside + here["name"]))
                found += renamed(here["type"], there["type"], f"{inside}{there['name']}.")
            return found
        case _:
            return []


def ddl(schema: Any) -> str:
    """Return a schema of state as people write it."""
    return ", ".join(
        f"{one['name']} {_type(one['type'])}" + ("" if one["nullable"] else " NOT NULL") for one in schema["fields"]
    )


def _type(one: Any) -> str:
    match one:
        case {"type": "struct", "fields": fields}:
            inner = [f"{field['name']}: {_type(field['type'])}" for field in fields]
            return f"STRUCT<{', '.join(inner)}>"
        case {"type": "array", "elementType": element}:
            return f"ARRAY<{_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"MAP<{_type(key)}, {_type(value)}>"
        case str():
            return _NAMES.get(one, one.upper())
        case _:
            return str(one.get("type", one))


def _avro(one: str) -> str | None:
    """Return Avro's type of a plain type; None when it has none."""
    if one.startswith("decimal("):
        precision = int(one.removeprefix("decimal(").partition(",")[0])
        return f"fixed {_bytes_for(precision)}"
    return _AVRO.get(one)


def _bytes_for(precision: int) -> int:
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size
