"""The positions of sources, and the range between two positions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from respool.untrusted import LONG, Malformed, is_decimal, whole_number

SourceKind = Literal["Kafka", "files", "Delta", "rate", "rate-micro-batch", "number", "other"]
UNKNOWN = object()  # a position that is no longer recorded


@dataclass(frozen=True)
class PartitionRange:
    """The offsets read from one partition: from `start` to `end`, exclusive."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class SourceRange:
    """The range of a source between two positions.

    Attributes:
        source: Its number in the query, or its name.
        kind: Its kind; "number" for a bare number, as memory, socket and some custom sources write it.
        start: The start position, as text.
        end: The end position, as text.
        parts: The range of each partition, never negative; for a file source, the range of its log.
        records: The number of records, if it follows from the positions; None otherwise.
        skipped: Ranges where `end` is before `start`: a query that continues at `start` does not read them.
        files: The number of input files; None for other sources, and if it was not determined.
    """

    source: str
    kind: SourceKind
    start: str
    end: str
    parts: tuple[PartitionRange, ...]
    records: int | None
    skipped: tuple[PartitionRange, ...] = ()
    files: int | None = None

    @property
    def reads(self) -> bool:
        """Whether the range is known to be non-empty."""
        if self.kind in ("Delta", "other"):  # a table's version has several positions
            return self.start != self.end and not self.skipped
        return any(part.end > part.start for part in self.parts)


def check_position(position: Any) -> None:
    """Raise Malformed for a position that has the form of a supported source's, but values that it cannot write.

    Positions of other sources can be any JSON.
    """
    if not isinstance(position, dict):
        return
    if set(position) == {"logOffset"}:
        whole_number(position["logOffset"], "'logOffset'", least=-1)
    elif position and all(
        isinstance(parts, dict) and parts and all(map(is_decimal, parts)) for parts in position.values()
    ):
        for topic, parts in position.items():
            for number, offset in parts.items():
                if len(number) > 9:
                    raise Malformed(f"the partition {number} of {topic[:60]!a} is not one of Kafka's")
                whole_number(offset, f"the offset of {topic[:60]!a}-{number}", least=-LONG)


def kind_of(position: Any) -> SourceKind:
    """Return the kind of source that wrote a position, judged by the position alone."""
    match position:
        case {"logOffset": int()}:
            return "files"
        case {"reservoirVersion": _}:
            return "Delta"
        case {"offset": int(), "timestamp": _}:
            return "rate-micro-batch"
        case dict() if position and all(_is_topic(value) for value in position.values()):
            return "Kafka"
        case bool():
            return "other"
        case int():
            return "number"
        case _:
            return "other"


def kafka_parts(position: Any) -> dict[tuple[str, int], int]:
    """Return a Kafka position as offsets by topic and partition; empty for other sources."""
    if kind_of(position) != "Kafka":
        return {}
    return {(topic, int(number)): offset for topic, parts in position.items() for number, offset in parts.items()}


def reading(source: str, start: Any, end: Any, kind: SourceKind | None = None) -> SourceRange:
    """Return the range between two positions of a source.

    Args:
        source: Its number in the query, or its name.
        start: The position from which it is read; None for its beginning.
        end: The position up to which it is read; None for its beginning.
        kind: Its kind, if more than the positions is known.
    """
    kind = kind or kind_of(end if end is not None else start)
    if start is UNKNOWN:
        return SourceRange(source, kind, "?", text_of(end), (), None)
    begin, stop = _marks(kind, start), _marks(kind, end)
    # A partition without a start position is read from its first available record: usually offset 0.
    names = [*sorted(stop), *sorted(name for name in begin if name not in stop and _is_ahead(name, stop))]
    pairs = [(_name(name), begin.get(name, 0), stop.get(name, 0)) for name in names]
    parts = tuple(PartitionRange(name, first, max(first, last)) for name, first, last in pairs)
    counts = kind in ("Kafka", "rate-micro-batch")
    return SourceRange(
        source=source,
        kind=kind,
        start=text_of(start),
        end=text_of(end),
        parts=parts,
        records=sum(part.end - part.start for part in parts) if counts else None,
        skipped=tuple(PartitionRange(name, last, first) for name, first, last in pairs if last < first),
    )


def text_of(position: Any) -> str:
    """Return a position as text for display."""
    if position is None:
        return "–"
    match kind_of(position), position:
        case "Kafka", dict():
            return " ".join(f"{t}[{','.join(f'{n}:{o}' for n, o in sorted(p.items()))}]" for t, p in position.items())
        case "files", {"logOffset": number}:
            return f"log {number}"
        case "Delta", {"reservoirVersion": version, **rest}:
            return f"version {version}, index {rest.get('index', -1)}"
        case "rate-micro-batch", {"offset": number}:
            return str(number)
        case _:
            return json.dumps(position)


_Mark = tuple[str, int]  # a topic and a partition; other sources have a single mark, under partition -1


def _marks(kind: SourceKind, position: Any) -> dict[_Mark, int]:
    """Return a position as numbers that grow while a query reads; empty for a source without numbers."""
    match kind, position:
        case "Kafka", _:
            return dict(kafka_parts(position))
        case "files", _:
            return {("log", -1): _number(position, "logOffset", -1) + 1}
        case "rate-micro-batch", _:
            return {("rows", -1): _number(position, "offset", 0)}
        case "Delta", {"reservoirVersion": int(version)}:
            return {("versions", -1): version}
        case "rate", int() | None:
            return {("seconds", -1): position or 0}
        case "number", int() | None:
            return {("positions", -1): -1 if position is None else position}
        case _:
            return {}


def _is_ahead(mark: _Mark, stop: Mapping[_Mark, int]) -> bool:
    """Return whether a partition that only the start position names is new in its topic, or the end is empty."""
    return not stop or any(topic == mark[0] for topic, _ in stop)


def _name(mark: _Mark) -> str:
    topic, number = mark
    return topic if number < 0 else f"{topic}-{number}"


def _is_topic(value: Any) -> bool:
    return isinstance(value, dict) and all(is_decimal(k) and _is_whole(v) for k, v in value.items())


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(position: Any, name: str, default: int) -> int:
    value = position.get(name, default) if isinstance(position, Mapping) else default
    return value if _is_whole(value) else default
