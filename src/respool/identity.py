"""Identities: data that two places compare, as a kind, fields and a version in one canonical form.

A sink, the way results relate to event time, a decoder, or a request is recorded by its identity and compared by it
later. Values that can be spelled in several ways have one canonical form: durations, times, and the order of keys.
Sentences are only made for messages; no code compares or parses them.

`canonical_text` is the canonical form of plain data of any type, such as the settings of a pipeline: the same in every
process, whatever the order of a set and the address of an object.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from respool.errors import SettingsError
from respool.locations import canonical_location, store_of
from respool.times import duration_text, parse_duration
from respool.untrusted import Fields, Malformed, parse_json

VERSION = 1
FROM_TEXT = 0  # the version of an identity that was derived from a sentence of an earlier respool

_WINDOWS_TEXT = re.compile(r"windows of (?P<width>.+?)(?: every (?P<slide>.+))?")
_SESSIONS_TEXT = re.compile(r"sessions with a gap of (?P<gap>.+)")


_AS_REPR = (bool, int, float, complex, str, bytes, Decimal, UUID, datetime, date, time, range, slice, PurePath)


@dataclass(frozen=True)
class Identity:
    """The identity of something that is recorded.

    Attributes:
        kind: Its kind, such as `kafka` or `windows`.
        fields: The JSON values, in canonical form, that distinguish it from others of its kind.
        version: The version of its fields. With `FROM_TEXT` it has only the fields that the sentence named.
    """

    kind: str
    fields: Mapping[str, Any]
    version: int = VERSION

    def __post_init__(self) -> None:
        """Put the fields into canonical form."""
        object.__setattr__(self, "fields", json.loads(canonical_json(self.fields)))

    def __hash__(self) -> int:
        """Return a hash of the canonical form."""
        return hash(self.text())

    def text(self) -> str:
        """Return the canonical form as text."""
        return canonical_json({"kind": self.kind, "fields": self.fields, "version": self.version})

    def is_same(self, current: "Identity") -> bool:
        """Return whether `current` has this recorded identity.

        An identity that was derived from a sentence is compared only by the fields that it has. Earlier versions of
        respool recorded a URL by the name that the user gave to its store, such as s3a.
        """
        fields = {name: _canonical_url(value) for name, value in self.fields.items()}
        if self.version != FROM_TEXT:
            return Identity(self.kind, fields, self.version) == current
        return self.kind == current.kind and all(
            name in current.fields and current.fields[name] == value for name, value in fields.items()
        )

    def differences(self, current: "Identity") -> str:
        """Return how `current` differs from this recorded identity, for messages."""
        if self.kind != current.kind:
            return f"kind {self.kind}, not {current.kind}"
        names = [name for name in sorted(self.fields) if current.fields.get(name) != self.fields[name]]
        return ", ".join(f"{name} {self.fields[name]}, not {current.fields.get(name)}" for name in names)


def read_identity(facts: Fields) -> Identity:
    """Return an identity from a JSON object.

    Raises:
        Malformed: A field is missing or of another type, or a newer version of respool wrote it.
    """
    facts.require_known(("kind", "fields", "version"))
    values = facts.nested("fields")
    version = facts.whole("version")
    if version > VERSION:
        raise Malformed(
            f"it has an identity of version {version}; this respool supports {VERSION}: use a newer respool"
        )
    return Identity(facts.line("kind"), {name: values.any(name) for name in values.names()}, version)


def parse_identity(text: str) -> Identity:
    """Return an identity from its canonical text; raise Malformed for anything else."""
    return read_identity(Fields(parse_json(text), "the identity"))


def results_from_text(text: str) -> Identity | None:
    """Return the identity of results that earlier versions of respool kept as a sentence; None for an empty sentence.

    The sentences are those of `describe` of results; they lack the offset of windows and the key of sessions.
    """
    try:
        if (windows := _WINDOWS_TEXT.fullmatch(text)) is not None:
            width = parse_duration(windows["width"])
            slide = parse_duration(windows["slide"]) if windows["slide"] else width
            return Identity("windows", {"width": width, "slide": slide}, FROM_TEXT)
        if (sessions := _SESSIONS_TEXT.fullmatch(text)) is not None:
            return Identity("sessions", {"gap": parse_duration(sessions["gap"])}, FROM_TEXT)
    except SettingsError:
        pass  # not a sentence that respool wrote
    if not text:
        return None
    kind = "arrival" if text == "results that depend on arrival" else "unknown"
    return Identity(kind, {} if kind == "arrival" else {"text": text}, FROM_TEXT)


def _canonical_url(value: Any) -> Any:
    return canonical_location(value) if isinstance(value, str) and store_of(value) is not None else value


def canonical_json(value: object) -> str:
    """Return a value as JSON in canonical form: sorted keys, no spaces, times in UTC, one spelling of a duration."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: object) -> Any:
    match value:
        case timedelta():
            return duration_text(value)
        case datetime():
            return value.astimezone(timezone.utc).isoformat()
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


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
