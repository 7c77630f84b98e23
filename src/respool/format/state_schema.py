"""The bytes of the files in which Spark keeps the schemas of a state store.

A file starts with its version. Versions 1 and 2 hold the schemas of the key and the value; version 3 holds those of
each column family. A `text` is JSON in one piece, `texts` are JSON in several pieces.
"""

import re
import struct
from dataclasses import dataclass
from typing import Any

from respool.untrusted import parse_json

_UTF = struct.Struct(">H")
_INT = struct.Struct(">i")
_PARTS = {
    "v1": ("text", "text"),
    "v2": ("texts", "texts"),
    "v3": ("name", "id and texts", "id and texts", "texts", "texts"),
}
DEFAULT = "default"


class UnknownSchemaError(ValueError):
    """A schema file has a version that this respool does not support: it is not damaged."""


@dataclass(frozen=True)
class ColumnFamily:
    """A column family of a state store: a table of keys and values.

    Attributes:
        name: Its name; `default` in a store with a single column family.
        key: The schema of its keys, as in Spark's JSON.
        value: The schema of its values.
    """

    name: str
    key: Any
    value: Any


def families(data: bytes) -> tuple[ColumnFamily, ...]:
    """Return the column families of a schema file; raise ValueError with the problem."""
    try:
        version, at = _text(data, 0)
        if version in _PARTS:
            return _families(data, at, version)
    except (struct.error, ValueError) as error:
        raise ValueError("it ends too early or is not a schema") from error
    if re.fullmatch("v[0-9]{1,3}", version):
        raise UnknownSchemaError(f"has format version {version}; this respool supports {', '.join(_PARTS)}")
    raise ValueError(f"it begins with {version[:20]!a}, expected {', '.join(_PARTS)}")


def _families(data: bytes, at: int, version: str) -> tuple[ColumnFamily, ...]:
    count, at = _number(data, at) if version == "v3" else (1, at)
    families = []
    for _ in range(count):
        name, schemas = DEFAULT, []
        for part in _PARTS[version]:
            text, at = _part(data, at, part)
            if part == "name":
                name = text
            else:
                schemas.append(parse_json(text))
        families.append(ColumnFamily(name, schemas[0], schemas[1]))
    return tuple(families)


def _part(data: bytes, at: int, part: str) -> tuple[str, int]:
    if part in ("name", "text"):
        return _text(data, at)
    at += _UTF.size if part == "id and texts" else 0
    chunks, at = _number(data, at)
    texts = []
    for _ in range(chunks):
        text, at = _text(data, at)
        texts.append(text)
    return "".join(texts), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    (number,) = _INT.unpack_from(data, at)
    if not 0 <= number <= len(data):
        raise ValueError(number)
    return number, at + _INT.size


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _UTF.unpack_from(data, at)
    end = at + _UTF.size + size
    if end > len(data):
        raise ValueError(end)
    return data[at + _UTF.size : end].decode(errors="replace"), end
