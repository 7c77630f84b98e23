"""Plain data as text: the same in every process, whatever the order of a set and the address of an object."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from uuid import UUID

_AS_REPR = (bool, int, float, complex, str, bytes, Decimal, UUID, datetime, date, time, range, slice, PurePath)


def canonical_text(value: object) -> str | None:
    """Return plain data as text; None for anything else, such as a function or an open file."""
    try:
        return _text(value)
    except RecursionError:  # it contains itself
        return None


def _text(value: object) -> str | None:
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if value is None or value is ... or type(value) in _AS_REPR or isinstance(value, PurePath):
        return repr(value)
    if isinstance(value, timedelta | tzinfo):
        return str(value)
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} with flags {value.flags}"
    if isinstance(value, list | tuple | set | frozenset):
        return _many(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _text(value.tolist())
    if any(cls.__module__ == "pyspark.sql.types" and cls.__name__ == "DataType" for cls in type(value).__mro__):
        return str(value.json())  # type: ignore[attr-defined]
    return None


def _many(values: "list[object] | tuple[object, ...] | set[object] | frozenset[object]") -> str | None:
    texts = [_text(value) for value in values]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return None
    if isinstance(values, set | frozenset):
        return "{" + ", ".join(sorted(known)) + "}"
    return f"[{', '.join(known)}]" if isinstance(values, list) else f"({', '.join(known)})"


def _mapping(values: "Mapping[object, object]") -> str | None:
    pairs = [(_text(key), _text(item)) for key, item in values.items()]
    if any(key is None or item is None for key, item in pairs):
        return None
    return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"


def _record(value: object) -> str | None:
    """Return a dataclass by the fields that count in comparisons."""
    texts = {part.name: _text(getattr(value, part.name)) for part in fields(value) if part.compare}  # type: ignore[arg-type]
    if any(text is None for text in texts.values()):
        return None
    return f"{type(value).__qualname__}({', '.join(f'{name}={text}' for name, text in texts.items())})"
