"""The text of `metadata`, `offsets`, `commits` and source logs: one function for each format version.

A version that is not known here is refused by its name: guessing at a checkpoint's meaning loses data.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from respool.checkpoint.model import Committed, OperatorMetadata, Planned, SourceOffsets
from respool.errors import CheckpointError

T = TypeVar("T")


def query_id(text: str) -> str:
    """Return the query's id from the text of `metadata`."""
    found = _json("metadata", text)
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise _broken("metadata", "no query id in it")
    return str(found["id"])


def metadata(query: str) -> str:
    """Return the text of `metadata` for a query's id, as Spark writes it."""
    return json.dumps({"id": query}, separators=(",", ":"))


def planned(path: str, text: str) -> Planned:
    """Return what a file of `offsets` says; `path` is for messages."""
    return _by_version(path, text, {"v1": _planned_v1, "v2": _planned_v2})


def committed(path: str, text: str) -> Committed:
    """Return what a file of `commits` says; `path` is for messages."""
    return _by_version(path, text, dict.fromkeys(("v1", "v2", "v3"), _committed))


def log_entries(path: str, text: str) -> list[dict[str, Any]]:
    """Return the entries of one file of a file source's log, or of a file sink's."""
    return _by_version(path, text, {"v1": lambda where, _, lines: [_object(where, line) for line in lines if line]})


def initial_offsets(path: str, data: bytes) -> Any:
    """Return the position at which a Kafka source began, from `sources/<source>/0`."""
    text = _text(path, data.removeprefix(b"\0"))
    return _by_version(path, text, {"v1": lambda where, _, lines: _object(where, "".join(lines))})


def operator_stores(path: str, text: str) -> tuple[str, ...]:
    """Return the names of an operator's stores, in the order of its unique ids, from its metadata."""
    known: dict[str, Callable[[str, int, list[str]], tuple[str, ...]]] = dict.fromkeys(("v1", "v2"), _stores)
    return _by_version(path, text, known)


def operator_metadata(path: str, text: str) -> OperatorMetadata:
    """Return what the metadata of a stateful operator says of it."""

    def read(where: str, version: int, lines: list[str]) -> OperatorMetadata:
        facts = _object(where, "".join(lines))
        name = facts.get("operatorInfo", {}).get("operatorName", "")
        properties = facts.get("operatorPropertiesJson") or "{}"
        return OperatorMetadata(str(name), _stores(where, version, lines), _object(where, str(properties)))

    return _by_version(path, text, dict.fromkeys(("v1", "v2"), read))


def schema_paths(path: str, text: str) -> tuple[str, ...]:
    """Return where an operator's metadata of version 2 says that its state schemas are."""

    def read(where: str, _: int, lines: list[str]) -> tuple[str, ...]:
        infos = _object(where, "".join(lines)).get("stateStoreInfo", [])
        return tuple(one for info in infos for one in info.get("stateSchemaFilePaths", []))

    return _by_version(path, text, {"v2": read})


def decode(path: str, data: bytes) -> str:
    """Return the text of a log file; raise CheckpointError for what cannot be text."""
    return _text(path, data)


def _by_version(path: str, text: str, known: dict[str, Callable[[str, int, list[str]], T]]) -> T:
    if not text.strip():
        raise _broken(path, "it is empty")
    version, *lines = text.split("\n")
    if version not in known:
        if version.startswith("v") and version[1:].isdigit():
            raise CheckpointError(
                f"{path} is of version {version}; this respool knows {', '.join(known)}. "
                "A newer Spark wrote it: use a respool made for that Spark. Nothing was changed."
            )
        raise _broken(path, f"it begins with {version[:40]!r}, expected {' or '.join(known)}")
    return known[version](path, int(version[1:]), lines)


def _planned_v1(path: str, version: int, lines: list[str]) -> Planned:
    if not lines:
        raise _broken(path, "it ends after its first line")
    sources = [SourceOffsets(str(number), _end(path, line)) for number, line in enumerate(filter(None, lines[1:]))]
    return _planned(path, version, lines[0], sources)


def _planned_v2(path: str, version: int, lines: list[str]) -> Planned:
    if not lines:
        raise _broken(path, "it ends after its first line")
    sources = []
    for line in lines[1:]:
        name, colon, end = line.partition(":")
        if line and not colon:
            raise _broken(path, f"{line[:40]!r} names no source")
        if line:
            sources.append(SourceOffsets(name, _end(path, end)))
    return _planned(path, version, lines[0], sources)


def _planned(path: str, version: int, head: str, sources: Iterable[SourceOffsets]) -> Planned:
    facts = _object(path, head) if head.strip() else {}
    found = tuple(sources)
    if not found:
        raise _broken(path, "it names no source")
    try:
        conf = {str(key): str(value) for key, value in facts.get("conf", {}).items()}
        return Planned(
            version, int(facts.get("batchWatermarkMs", 0)), int(facts.get("batchTimestampMs", 0)), conf, found
        )
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _broken(path, f"its second line cannot be understood ({error})") from error


def _end(path: str, line: str) -> Any:
    return None if line == "-" else _json(path, line)


def _committed(path: str, version: int, lines: list[str]) -> Committed:
    facts = _object(path, "".join(lines) or "{}")
    ids = facts.get("stateUniqueIds") or {}
    try:
        by_operator = {
            int(operator): tuple(tuple(str(store) for store in partition) for partition in partitions)
            for operator, partitions in ids.items()
        }
        return Committed(version, int(facts.get("nextBatchWatermarkMs", 0)), by_operator)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _broken(path, f"it cannot be understood ({error})") from error


def _stores(path: str, version: int, lines: list[str]) -> tuple[str, ...]:
    try:
        return tuple(str(one["storeName"]) for one in _object(path, "".join(lines))["stateStoreInfo"])
    except (KeyError, TypeError) as error:
        raise _broken(path, "it names no state store") from error


def _object(path: str, text: str) -> dict[str, Any]:
    found = _json(path, text)
    if not isinstance(found, dict):
        raise _broken(path, f"{text[:40]!r} is not a JSON object")
    return found


def _json(path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _broken(path, f"{text[:40]!r} is not JSON") from error


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _broken(path, "it is not text") from error


def _broken(path: str, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}. See what can be done with: respool checkpoint verify.")
