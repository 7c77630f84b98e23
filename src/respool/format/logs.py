"""The text of `metadata`, `offsets`, `commits` and source logs: one function for each format version.

A version that is not supported is refused: a wrong guess at a checkpoint's meaning loses data. All fields are checked
by type: see `respool.untrusted`.

File sources and file sinks compact their logs: `sources/<source>/N` and `_spark_metadata/N` hold the entries of batch
N, `N.compact` the entries of all batches up to N. Spark reads the newest compact file and the files after it; a log
without a compact file starts at 0.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from respool.errors import DamagedFileError, UnknownFormatVersionError
from respool.format import layout
from respool.format.model import MOST_PARTITIONS, CommitLogEntry, OffsetLogEntry, OperatorMetadata, SourceOffsets
from respool.format.positions import check_position
from respool.untrusted import Fields, Malformed, decimal, is_decimal, parse_json

T = TypeVar("T")

_PARTITIONS = "spark.sql.shuffle.partitions"


_COMPACT = ".compact"


def query_id(text: str) -> str:
    """Return the query's id from the text of `metadata`."""
    try:
        return Fields(parse_json(text)).text("id")
    except Malformed as error:
        raise _broken("metadata", f"it has no query id ({error})") from error


def metadata(query: str) -> str:
    """Return the text of `metadata` for a query's id, as Spark writes it."""
    return json.dumps({"id": query}, separators=(",", ":"))


def parse_offset_log(path: str, text: str) -> OffsetLogEntry:
    """Return the content of a file of `offsets`; `path` is for messages."""
    return _by_version(path, text, {"v1": _planned_v1, "v2": _planned_v2})


def parse_commit_log(path: str, text: str) -> CommitLogEntry:
    """Return the content of a file of `commits`; `path` is for messages."""
    return _by_version(path, text, dict.fromkeys(("v1", "v2", "v3"), _committed))


def log_entries(path: str, text: str) -> list[dict[str, Any]]:
    """Return the entries of one file of a file source's log, or of a file sink's.

    Each has a string `path`, and an integer `batchId` if it has that field.
    """
    return _by_version(path, text, {"v1": lambda _, lines: [_entry(line) for line in lines if line]})


def initial_offsets(path: str, data: bytes) -> Any:
    """Return the position at which a Kafka source began, from `sources/<source>/0`."""

    def read(_: int, lines: list[str]) -> Any:
        position = parse_json("".join(lines))
        Fields(position)
        check_position(position)
        return position

    return _by_version(path, _text(path, data.removeprefix(b"\0")), {"v1": read})


def operator_stores(path: str, text: str) -> tuple[str, ...]:
    """Return the names of an operator's stores, in the order of its unique ids, from its metadata."""
    return operator_metadata(path, text).stores


def operator_metadata(path: str, text: str) -> OperatorMetadata:
    """Return the metadata of a stateful operator."""

    def read(_: int, lines: list[str]) -> OperatorMetadata:
        facts = Fields(parse_json("".join(lines)))
        if "stateStoreInfo" not in facts:
            raise Malformed("it names no state store")
        info = facts.nested("operatorInfo") if "operatorInfo" in facts else Fields({})
        properties = parse_json(facts.optional_text("operatorPropertiesJson") or "{}")
        Fields(properties, "'operatorPropertiesJson'")
        stores = facts.objects("stateStoreInfo", lambda store: store.file_name("storeName"))
        return OperatorMetadata(info.optional_text("operatorName") or "", stores, properties)

    return _by_version(path, text, dict.fromkeys(("v1", "v2"), read))


def schema_paths(path: str, text: str) -> tuple[str, ...]:
    """Return the addresses of the state schemas in an operator's metadata of version 2."""

    def schemas(store: Fields) -> tuple[str, ...]:
        return store.lines("stateSchemaFilePaths") if "stateSchemaFilePaths" in store else ()

    def read(_: int, lines: list[str]) -> tuple[str, ...]:
        facts = Fields(parse_json("".join(lines)))
        stores = facts.objects("stateStoreInfo", schemas) if "stateStoreInfo" in facts else ()
        return tuple(address for addresses in stores for address in addresses)

    return _by_version(path, text, {"v2": read})


def decode(path: str, data: bytes) -> str:
    """Return the text of a log file; raise CheckpointError for bytes that are not text."""
    return _text(path, data)


def _by_version(path: str, text: str, known: dict[str, Callable[[int, list[str]], T]]) -> T:
    if not text.strip():
        raise _broken(path, "it is empty")
    version, *lines = text.split("\n")
    if version not in known:
        if version.startswith("v") and is_decimal(version[1:]):
            remedy = "A newer Spark wrote it: use a respool made for that Spark. Nothing was changed."
            raise UnknownFormatVersionError(path, version, known, remedy)
        raise _broken(path, f"it begins with {version[:40]!a}, expected {' or '.join(known)}")
    try:
        return known[version](int(version[1:]), lines)
    except Malformed as error:
        raise _broken(path, str(error)) from error


def _planned_v1(version: int, lines: list[str]) -> OffsetLogEntry:
    ends = enumerate(filter(None, lines[1:]))
    return _planned(version, lines, [SourceOffsets(str(number), _end(line)) for number, line in ends])


def _planned_v2(version: int, lines: list[str]) -> OffsetLogEntry:
    sources = []
    for line in filter(None, lines[1:]):
        name, colon, end = line.partition(":")
        if not colon:
            raise Malformed(f"{line[:40]!a} names no source")
        sources.append(SourceOffsets(name, _end(end)))
    return _planned(version, lines, sources)


def _planned(version: int, lines: list[str], sources: list[SourceOffsets]) -> OffsetLogEntry:
    if not lines:
        raise Malformed("it ends after its first line")
    if not sources:
        raise Malformed("it names no source")
    facts = Fields(parse_json(lines[0]) if lines[0].strip() else {}, "its second line")
    conf = facts.text_by_name("conf") if "conf" in facts else {}
    if _PARTITIONS in conf:
        decimal(conf[_PARTITIONS], _PARTITIONS, MOST_PARTITIONS)
    watermark, timestamp = (facts.optional_whole(name) or 0 for name in ("batchWatermarkMs", "batchTimestampMs"))
    return OffsetLogEntry(version, watermark, timestamp, conf, tuple(sources))


def _end(line: str) -> Any:
    position = None if line == "-" else parse_json(line)
    check_position(position)
    return position


def _committed(version: int, lines: list[str]) -> CommitLogEntry:
    facts = Fields(parse_json("".join(lines) or "{}"))
    ids = facts.nested("stateUniqueIds") if "stateUniqueIds" in facts else Fields({})
    by_operator = {decimal(name, "an operator in 'stateUniqueIds'"): ids.items(name, _ids) for name in ids.names()}
    return CommitLogEntry(version, facts.optional_whole("nextBatchWatermarkMs") or 0, by_operator)


def _ids(partition: Any) -> tuple[str, ...]:
    return Fields({"a partition": partition}, "'stateUniqueIds'").texts("a partition")


def _entry(line: str) -> dict[str, Any]:
    entry: dict[str, Any] = parse_json(line)
    facts = Fields(entry, "an entry")
    address = facts.line("path")
    try:
        urlsplit(address)
    except ValueError as error:
        raise Malformed(f"{address[:60]!a} is not an address ({error})") from None
    facts.optional_whole("batchId")
    return entry


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _broken(path, "it is not text") from error


def _broken(path: str, what: str) -> DamagedFileError:
    return DamagedFileError(path, what, "Find out what to do with: respool checkpoint verify.")


TRANSFORM_WITH_STATE = "transformWithState"
_KINDS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "session windows",
    "symmetricHashJoin": "join",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication",
    "globalLimit": "limit",
    "transformWithStateExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPandasExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPySparkExec": TRANSFORM_WITH_STATE,
}


def kind_of(name: str) -> str:
    """Return the kind of an operator from Spark's name for it."""
    return _KINDS.get(name, name)


def number_of(name: str) -> int | None:
    """Return the number of a log file from its name, `N` or `N.compact`; None for any other name."""
    return layout.batch(name.removesuffix(_COMPACT))


def numbers_by_name(names: Iterable[str]) -> dict[str, int]:
    """Return the log files among the names of a folder, each with its number."""
    return {name: number for name in names if (number := number_of(name)) is not None}


def files_up_to(names: Collection[str], last: int) -> list[str] | None:
    """Return the log files that hold all entries up to `last`, the oldest first; None when one of them is missing."""
    files: list[str] = []
    for number in range(last, -1, -1):
        if f"{number}{_COMPACT}" in names:
            return [f"{number}{_COMPACT}", *reversed(files)]
        if str(number) not in names:
            return None
        files.append(str(number))
    return files[::-1]


def expected_files(names: Collection[str], last: int) -> Iterator[str]:
    """Yield the log files that Spark reads when `last` is the newest; few need to exist, whatever number `last` is.

    Spark derives which files are compact from the distance between the last two compact files.
    """
    compact = sorted(int(name.removesuffix(_COMPACT)) for name in names if name.endswith(_COMPACT))
    if len(compact) > 1:
        every = compact[-1] - compact[-2]
        first = max(0, (last + 1) // every * every - 1)
        for number in range(first, last + 1):
            yield f"{number}{_COMPACT}" if (number + 1) % every == 0 else str(number)
    elif compact:
        yield f"{compact[0]}{_COMPACT}"
        yield from (str(number) for number in range(compact[0] + 1, last + 1))
    else:
        yield from (str(number) for number in range(last + 1))
