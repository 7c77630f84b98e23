"""What a source's position means, and what lies between two of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SourceKind = Literal["Kafka", "files", "Delta", "rate", "other"]
UNKNOWN = object()  # a position that is no longer kept


@dataclass(frozen=True)
class Part:
    """What was read of one partition: from `start` to `end`, exclusive."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """What was read of one source between two positions.

    Attributes:
        source: Its number in the query, or its name.
        kind: What it is.
        start: The position before, as text.
        end: The position after, as text.
        parts: What was read of each partition; for a source of files, of its log.
        records: How many records, where the positions tell; for a source of files, None.
    """

    source: str
    kind: SourceKind
    start: str
    end: str
    parts: tuple[Part, ...]
    records: int | None


def kind_of(position: Any) -> SourceKind:
    """Return what kind of source wrote a position."""
    match position:
        case {"logOffset": int()}:
            return "files"
        case {"reservoirVersion": _}:
            return "Delta"
        case {"offset": int(), "timestamp": _}:
            return "rate"
        case dict() if position and all(_is_topic(one) for one in position.values()):
            return "Kafka"
        case int():
            return "rate"
        case _:
            return "other"


def kafka_parts(position: Any) -> dict[tuple[str, int], int]:
    """Return a Kafka position as offsets by topic and partition; empty for other sources."""
    if kind_of(position) != "Kafka":
        return {}
    return {(topic, int(number)): offset for topic, parts in position.items() for number, offset in parts.items()}


def reading(source: str, start: Any, end: Any) -> Reading:
    """Return what lies between two positions of a source; None stands for its beginning."""
    kind = kind_of(end if end is not None else start)
    parts: tuple[Part, ...] = ()
    records = None
    if start is UNKNOWN:
        return Reading(source, kind, "?", text_of(end), (), None)
    if kind == "Kafka":
        begin, stop = kafka_parts(start), kafka_parts(end)
        # A partition that is not named yet is read from its first record that is kept: mostly offset 0.
        parts = tuple(Part(f"{t}-{n}", begin.get((t, n), 0), upto) for (t, n), upto in sorted(stop.items()))
        records = sum(part.end - part.start for part in parts)
    elif kind == "files":
        parts = (Part("log", _number(start, "logOffset", -1) + 1, _number(end, "logOffset", -1) + 1),)
    elif kind == "rate" and isinstance(end, dict):
        parts = (Part("rows", _number(start, "offset", 0), _number(end, "offset", 0)),)
        records = parts[0].end - parts[0].start
    return Reading(source, kind, text_of(start), text_of(end), parts, records)


def text_of(position: Any) -> str:
    """Return a position as people read it."""
    if position is None:
        return "–"
    match kind_of(position), position:
        case "Kafka", dict():
            return " ".join(f"{t}[{','.join(f'{n}:{o}' for n, o in sorted(p.items()))}]" for t, p in position.items())
        case "files", {"logOffset": number}:
            return f"log {number}"
        case "Delta", {"reservoirVersion": version, **rest}:
            return f"version {version}, index {rest.get('index', -1)}"
        case "rate", {"offset": number}:
            return str(number)
        case _:
            return json.dumps(position)


def _is_topic(value: Any) -> bool:
    return isinstance(value, dict) and all(k.isdecimal() and isinstance(v, int) for k, v in value.items())


def _number(position: Any, name: str, default: int) -> int:
    return int(position.get(name, default)) if isinstance(position, Mapping) else default
