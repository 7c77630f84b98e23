"""Read all of `offsets` and `commits` once and keep only what checks need: there can be very many files.

The logs of file sources are read on first use: Spark reads them at every start.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, UnknownFormatVersionError
from respool.format import logs, positions
from respool.format.model import OffsetLogEntry
from respool.storage.folder import is_denied, reason

_AT_A_TIME = 1000
_PARTITIONS = "spark.sql.shuffle.partitions"
_SINCE_4_2 = "spark.sql.streaming.stateStore.rowChecksum.enabled"  # a setting that older versions do not record
_CODEC = "spark.sql.streaming.stateStore.compression.codec"

_LOG = ("log", "")
_Marks = dict[str, dict[tuple[str, str], int]]


class OffsetLogFacts(NamedTuple):
    """The facts about a file of `offsets` that checks need.

    Attributes:
        version: The version of its format.
        sources: The sources' names.
        partitions: How many partitions the state has; None when the file does not record it.
        log_ends: For each source of files, the newest entry of its log.
        back: What is behind the previous batch; None if nothing is.
    """

    version: int
    sources: tuple[str, ...]
    partitions: int | None
    log_ends: tuple[tuple[str, int], ...]
    back: str | None


class UnusableLogFile(NamedTuple):
    """Why a file of a log cannot be used; `denied` if only a permission is missing."""

    why: str
    denied: bool
    unknown: bool


@dataclass(frozen=True)
class LogScan:
    """The content of `offsets` and `commits`.

    Attributes:
        planned: By batch, the readable files of `offsets`.
        committed: The batches whose file in `commits` is readable.
        has_ids: Whether the newest commit names unique ids of the state: state format 2.
        codec: The compression codec of state files.
        repairs: Whether Spark 4.2 or later wrote the newest batch: it falls back to an older snapshot on its own.
        bad: By path, the files that cannot be used.
        vanished: Files that were listed but no longer existed when they were read.
    """

    planned: Mapping[int, OffsetLogFacts]
    committed: frozenset[int]
    has_ids: bool
    codec: str
    repairs: bool
    bad: Mapping[str, UnusableLogFile]
    vanished: tuple[str, ...]


def read_logs(checkpoint: CheckpointSnapshot, on_read: Callable[[int], None]) -> LogScan:
    """Read all of both logs; `on_read` is called with the number of files read since its last call."""
    planned: dict[int, OffsetLogFacts] = {}
    bad: dict[str, UnusableLogFile] = {}
    vanished: list[str] = []
    known: dict[Any, Any] = {}  # values that most files share are stored once
    newest: OffsetLogEntry | None = None
    marks: _Marks = {}
    for batch, entry in _parsed(checkpoint, "offsets", logs.parse_offset_log, bad, vanished, on_read):
        now = _marks(entry)
        planned[batch] = _facts(entry, newest, marks, now, known)
        newest, marks = entry, now
    committed: set[int] = set()
    has_ids = False
    for batch, finished in _parsed(checkpoint, "commits", logs.parse_commit_log, bad, vanished, on_read):
        committed.add(batch)
        has_ids = bool(finished.state_ids)
    conf = newest.conf if newest else {}
    codec = conf.get(_CODEC, "lz4")
    return LogScan(planned, frozenset(committed), has_ids, codec, _SINCE_4_2 in conf, bad, tuple(vanished))


def _parsed(
    checkpoint: CheckpointSnapshot,
    folder: str,
    parse: Callable[[str, str], Any],
    bad: dict[str, UnusableLogFile],
    vanished: list[str],
    on_read: Callable[[int], None],
) -> Iterator[tuple[int, Any]]:
    batches = checkpoint.offsets if folder == "offsets" else checkpoint.commits
    for start in range(0, len(batches), _AT_A_TIME):
        some = batches[start : start + _AT_A_TIME]
        read = checkpoint.files.read_many([f"{folder}/{batch}" for batch in some])
        on_read(len(some))
        for batch in some:
            path = f"{folder}/{batch}"
            data = read[path]
            if isinstance(data, FileNotFoundError):
                vanished.append(path)
                continue
            try:
                if isinstance(data, Exception):
                    raise data
                yield batch, parse(path, logs.decode(path, data))
            except (CheckpointError, OSError) as error:
                bad[path] = UnusableLogFile(
                    reason(error), is_denied(error), isinstance(error, UnknownFormatVersionError)
                )


def _facts(
    entry: OffsetLogEntry, before: "OffsetLogEntry | None", was: _Marks, now: _Marks, known: dict[Any, Any]
) -> OffsetLogFacts:
    names = tuple(source.source for source in entry.sources)
    stated = entry.conf.get(_PARTITIONS, "")
    back = None
    if before is not None and entry.watermark_ms < before.watermark_ms:
        back = f"the watermark, from {before.watermark_ms} to {entry.watermark_ms} ms"
    return OffsetLogFacts(
        version=entry.version,
        sources=known.setdefault(names, names),
        partitions=int(stated) if stated else None,
        log_ends=tuple((source, marks[_LOG]) for source, marks in now.items() if _LOG in marks),
        back=back or _back(was, now),
    )


def _marks(entry: OffsetLogEntry) -> _Marks:
    """Return how far each source was read, as numbers that never decrease."""
    marks: _Marks = {}
    for source in entry.sources:
        match positions.kind_of(source.end):
            case "Kafka":
                marks[source.source] = {
                    (topic, number): offset for topic, parts in source.end.items() for number, offset in parts.items()
                }
            case "files":
                marks[source.source] = {_LOG: source.end["logOffset"]}
    return marks


def _back(was: _Marks, now: _Marks) -> str | None:
    """Return which mark decreased from one batch to the next; None if none did."""
    for source, marks in now.items():
        old = was.get(source, marks)
        for part, mark in marks.items():
            if mark < old.get(part, mark):
                what = f"the log of source {source}" if part == _LOG else "-".join(part)
                return f"{what}, from {old[part]} to {mark}"
    return None


class SourceLogs:
    """The logs of the file sources; each log file is read on first use, once."""

    def __init__(self, checkpoint: CheckpointSnapshot) -> None:
        """Keep the checkpoint; nothing is read yet."""
        self._checkpoint = checkpoint
        self._known: dict[str, str | None] = {}
        self.denied: set[str] = set()

    def newest(self, source: str) -> int:
        """Return the newest entry of a source's log; -1 when the log is empty."""
        return max(self._entries(source).values(), default=-1)

    def wrong(self, source: str, last: int) -> tuple[str, str] | None:
        """Return a log file that Spark could not read if `last` was the newest entry, and why; None if it could."""
        folder = f"sources/{source}"
        names = {name for name, number in self._entries(source).items() if number <= last}
        for name in logs.expected_files(names, last):
            path = f"{folder}/{name}"
            if name not in names:
                return path, "is missing" if name.endswith(".compact") else f"is missing, and so is {name}.compact"
            why = self._read(path)
            if why is not None:
                return path, why
        return None

    def _entries(self, source: str) -> dict[str, int]:
        return logs.numbers_by_name(self._checkpoint.folders.get(f"sources/{source}", ()))

    def _read(self, path: str) -> str | None:
        if path not in self._known:
            try:
                logs.log_entries(path, logs.decode(path, self._checkpoint.files.read(path)))
                self._known[path] = None
            except (CheckpointError, OSError) as error:
                self._known[path] = f"cannot be read: {reason(error)}" if is_denied(error) else reason(error)
                if is_denied(error):
                    self.denied.add(path)
        return self._known[path]
