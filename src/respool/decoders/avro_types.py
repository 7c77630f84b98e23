"""Spark's types for an Avro schema, as Spark's own `from_avro` chooses them."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NAMED = ("record", "error", "enum", "fixed")
_SHOWN = ("doc",)  # parts of a schema that are for people


def parse_avro(text: str) -> Any:
    """Return an Avro schema as JSON; raise PipelineError if it is not a record."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PipelineError(
            f"The decoder's Avro schema is not JSON: {error}. Give its text, or read a file with AvroDecoder.from_file."
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise PipelineError(
            f"The decoder's Avro schema is not a record: {text[:80]!r}. An event is a record with fields."
        )
    return schema


def canonical_avro(schema: Any) -> Any:
    """Return a schema without the parts that are for people."""
    if isinstance(schema, dict):
        return {name: canonical_avro(value) for name, value in schema.items() if name not in _SHOWN}
    return [canonical_avro(item) for item in schema] if isinstance(schema, list) else schema


def avro_struct(schema: Any, types: Any) -> "StructType":
    """Return the type of the records of a schema; raise PipelineError, naming the field, if there is none."""
    struct: StructType = _Types(types).of(schema, "", "")
    return struct


class _Types:
    """The named types of a schema, each when it is defined."""

    def __init__(self, types: Any) -> None:
        self._types = types
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, path: str, space: str) -> Any:
        T = self._types
        if isinstance(schema, list):
            return self._union(schema, path, space)
        if isinstance(schema, str):
            plain = _plain_types(T)
            return plain[schema]() if schema in plain else self._known(schema, path, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, (dict, list)):
            return self.of(kind, path, space)
        if kind in _NAMED:
            return self._define(schema, kind, path, space)
        if kind == "array":
            return T.ArrayType(self.of(schema.get("items"), f"{path}[]", space))
        if kind == "map":
            return T.MapType(T.StringType(), self.of(schema.get("values"), f"{path}[]", space))
        logical = _logical(schema, path, T) if isinstance(schema, dict) else None
        return logical or self.of(kind, path, space) if isinstance(kind, str) else _refuse(schema, path)

    def _define(self, schema: Mapping[str, Any], kind: str, path: str, space: str) -> Any:
        T = self._types
        name, space = _full_name(schema.get("name"), schema.get("namespace", space), path)
        self._named[name] = None  # until it is complete
        if kind == "enum":
            result: Any = T.StringType()
        elif kind == "fixed":
            result = _logical(schema, path, T) or T.BinaryType()
        else:
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
                return _refuse(schema, path)
            result = T.StructType(
                [
                    T.StructField(str(field.get("name")), self.of(field.get("type"), _join(path, field), space))
                    for field in fields
                ]
            )
        self._named[name] = result
        return result

    def _known(self, name: str, path: str, space: str) -> Any:
        for full in (f"{space}.{name}" if space and "." not in name else name, name):
            if full in self._named:
                result = self._named[full]
                if result is None:
                    raise PipelineError(
                        f"The Avro type '{name}' of the field '{path}' contains itself: Spark has no type for it. "
                        "Leave the field out of the decoder's schema."
                    )
                return result
        return _refuse(name, path)

    def _union(self, schemas: list[Any], path: str, space: str) -> Any:
        T = self._types
        types = [self.of(item, path, space) for item in schemas if item != "null"]
        if not types:
            return _refuse(schemas, path)
        if len(types) == 1:
            return types[0]
        return T.StructType([T.StructField(f"member{number}", kind) for number, kind in enumerate(types)])


def _logical(schema: Mapping[str, Any], path: str, T: Any) -> Any:
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= 38 or scale > precision:
            raise PipelineError(
                f"The decimal '{path}' of the Avro schema has precision {precision} and scale {scale}: Spark has 38 "
                "digits at most. Change the decoder's schema."
            )
        return T.DecimalType(precision, scale)
    if kind == "int" and logical == "date":
        return T.DateType()
    if kind == "long" and logical in ("timestamp-millis", "timestamp-micros", "timestamp-nanos"):
        return T.TimestampType()
    if kind == "long" and logical in ("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"):
        return T.TimestampNTZType()
    return None


def _plain_types(T: Any) -> "Mapping[str, Any]":
    return {
        "null": T.NullType,
        "boolean": T.BooleanType,
        "int": T.IntegerType,
        "long": T.LongType,
        "float": T.FloatType,
        "double": T.DoubleType,
        "bytes": T.BinaryType,
        "string": T.StringType,
    }


def _full_name(name: Any, space: Any, path: str) -> tuple[str, str]:
    if not isinstance(name, str) or not isinstance(space, str):
        _refuse({"name": name, "namespace": space}, path)
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{space}.{name}" if space else name), space


def _join(path: str, field: Mapping[str, Any]) -> str:
    return f"{path}.{field.get('name')}".lstrip(".")


def _refuse(schema: Any, path: str) -> Any:
    where = f"The field '{path}' of the decoder's Avro schema" if path else "The decoder's Avro schema"
    raise PipelineError(f"{where} is not a type of Avro: {json.dumps(schema)[:120]}. Correct the schema.")
