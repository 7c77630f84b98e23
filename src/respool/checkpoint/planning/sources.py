"""What a change of a query means for its sources: whether they still have the records that it will read.

Rewind, restore, fork and promotion use this with the ranges that follow the position at which the query will continue.

A file source has a log of the input files that each batch read: `sources/<source>/K` holds the files of log entry K,
`K.compact` those of all entries up to K. A batch names the newest entry that it has read. A rewind trims this log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import exists
from urllib.parse import unquote, urlsplit

from respool.checkpoint.planning.request import KafkaRetention
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, Refusal
from respool.format import logs
from respool.format.positions import PartitionRange, SourceRange
from respool.storage.folder import read_error
from respool.storage.open import open_reader
from respool.untrusted import Malformed, whole_number

_WITHOUT = "Continue without them with --allow-data-loss."


_LISTED = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az", "memory"})  # stores of input files
_MOST_FOLDERS = 1_000  # of input files on an object store that are checked: each takes a request


@dataclass(frozen=True)
class SourceLogTrim:
    """The change of a file source's log when its query is rewound.

    Attributes:
        moves: The log files that are moved aside, the newest first; empty when the log must be kept whole.
        kept_whole: Whether the log must be kept whole, so that all input files to be read again are read in one batch.
    """

    moves: tuple[str, ...]
    kept_whole: bool


@dataclass(frozen=True)
class Inputs:
    """The input files that a query has read after a position, and will read again from there.

    Attributes:
        paths: Their addresses.
        unknown: Whether the log is damaged or no longer names all these files.
    """

    paths: tuple[str, ...] = ()
    unknown: bool = False


@dataclass(frozen=True)
class Missing:
    """Which input files are missing.

    Attributes:
        gone: The missing files.
        unchecked: Files on a filesystem that could not be checked.
    """

    gone: tuple[str, ...]
    unchecked: tuple[str, ...]


def trim(checkpoint: CheckpointSnapshot, source: str, last: int) -> SourceLogTrim:
    """Return the change that makes `last` the newest entry of a source's log; -1 empties it."""
    numbers = _numbers(checkpoint, source)
    later = sorted((name for name, number in numbers.items() if number > last), key=lambda n: numbers[n], reverse=True)
    whole = last >= 0 and logs.files_up_to(numbers.keys() - set(later), last) is None
    return SourceLogTrim(() if whole else tuple(f"sources/{source}/{name}" for name in later), whole and bool(later))


def inputs(checkpoint: CheckpointSnapshot, source: str, after: int, upto: int) -> Inputs:
    """Return the input files of a source's log entries after `after`; all entries up to `upto` must be among them.

    Args:
        checkpoint: The checkpoint that holds the log.
        source: The source's number in the query, or its name.
        after: The number of the entry before them; -1 for all.
        upto: The newest entry that the query has read: the log must name the files of all entries up to it.
    """
    numbers = _numbers(checkpoint, source)
    names = sorted((name for name, number in numbers.items() if number > after), key=lambda name: numbers[name])
    paths = [f"sources/{source}/{name}" for name in names]
    files: dict[str, None] = {}
    seen: set[int] = set()
    for path, data in checkpoint.files.read_many(paths).items():
        if isinstance(data, FileNotFoundError):
            continue  # Spark has compacted the log meanwhile
        if isinstance(data, Exception):
            raise read_error(path, data) from data
        try:
            for entry in logs.log_entries(path, logs.decode(path, data)):
                number = whole_number(entry.get("batchId"), "batchId")
                if number > after and isinstance(entry.get("path"), str):
                    files[entry["path"]] = None
                    seen.add(number)
        except (CheckpointError, Malformed):
            continue  # its numbers are then missing from `seen`, unless another file has them
    return Inputs(tuple(files), not all(number in seen for number in range(after + 1, upto + 1)))


def find_missing(paths: Iterable[str]) -> Missing:
    """Return which input files are missing; on an object store each folder is listed once."""
    gone, unchecked = [], []
    folders: dict[str, list[str]] = {}
    for path in paths:
        scheme = urlsplit(path).scheme
        if scheme in ("", "file"):
            if not exists(unquote(urlsplit(path).path)):
                gone.append(path)
        elif scheme in _LISTED:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
        else:
            unchecked.append(path)
    for number, (folder, files) in enumerate(folders.items()):
        try:
            names = set(open_reader(unquote(folder)).names("")) if number < _MOST_FOLDERS else None
        except CheckpointError:
            names = None
        if names is None:
            unchecked += files
        else:
            gone += [path for path in files if unquote(path.rpartition("/")[2]) not in names]
    return Missing(tuple(gone), tuple(unchecked))


def _numbers(checkpoint: CheckpointSnapshot, source: str) -> dict[str, int]:
    """Return the files of a source's log, and the number of the newest entry in each."""
    return logs.numbers_by_name(checkpoint.folders.get(f"sources/{source}", ()))


@dataclass(frozen=True)
class Availability:
    """Which of the records that will be read the sources still have.

    Attributes:
        refusals: Records that they no longer have.
        notes: Records that could not be checked, and sources that generate their rows again.
    """

    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]


def availability(
    readings: Sequence[SourceRange], inputs: Mapping[str, Inputs], kept: KafkaRetention | None
) -> Availability:
    """Return which of the records that will be read the sources still have.

    Args:
        readings: The range that will be read, by source: from the position at which the query continues on.
        inputs: The input files among it, by source, for sources of files.
        kept: The offsets that Kafka has; None when no broker could be asked.
    """
    refusals: list[Refusal] = []
    notes: list[str] = []
    for reading in readings:
        if reading.kind == "Kafka" and kept is not None:
            lost = (_lost_records(part, kept) for part in reading.parts)
            refusals += [Refusal(text, _WITHOUT) for text in lost if text]
        elif reading.kind == "files":
            _add_files(reading, inputs.get(reading.source), refusals, notes)
        elif reading.kind == "number" and reading.reads:
            refusals.append(_cannot_be_replayed(reading))
        else:
            notes += _remarks(reading)
    if kept is None and any(reading.kind == "Kafka" for reading in readings):
        notes.append("Whether Kafka still has these records was not checked. Name a broker with --bootstrap-servers.")
    return Availability(tuple(refusals), tuple(notes))


def _lost_records(part: PartitionRange, kept: KafkaRetention) -> str | None:
    topic, _, number = part.name.rpartition("-")
    key = (topic, int(number))
    if key not in kept.first:
        return f"Kafka has no partition {part.name}: was the topic deleted?"
    if kept.next[key] < part.end:
        return (
            f"{part.name} ends at offset {kept.next[key]}, though the query has read up to {part.end}: "
            "was the topic deleted and created again?"
        )
    gone = kept.first[key] - part.start
    if gone > 0:
        return (
            f"Kafka no longer has {gone:,} of the records of {part.name}: batches would read from offset "
            f"{part.start}, its first is {kept.first[key]}."
        )
    return None


def _add_files(reading: SourceRange, inputs: Inputs | None, refusals: list[Refusal], notes: list[str]) -> None:
    if inputs is None:
        notes.append(
            f"Source {reading.source} reads files. The files that it has read since are not recorded, so it was not "
            "checked whether they still exist: Spark skips missing files without an error."
        )
        return
    missing = find_missing(inputs.paths)
    if missing.gone:
        count = len(missing.gone)
        files = f"{count:,} of {len(inputs.paths):,}: {missing.gone[0]}" + (" …" if count > 1 else "")
        refusals.append(Refusal(f"Input files are gone: {files}. Spark would skip them without an error.", _WITHOUT))
    if inputs.paths:
        count = len(inputs.paths)
        notes.append(f"{count:,} input file{'s are' if count != 1 else ' is'} read again.")
    if missing.unchecked:
        notes.append(
            f"{len(missing.unchecked):,} of the input files could not be checked, such as {missing.unchecked[0]}. "
            "Make sure that they exist: Spark skips missing files without an error."
        )
    if inputs.unknown and reading.reads:
        notes.append(
            f"Source {reading.source}: the log of input files does not name all files that are read again. Make sure "
            "that they exist: Spark skips missing files without an error."
        )


def _cannot_be_replayed(reading: SourceRange) -> Refusal:
    return Refusal(
        f"Source {reading.source} keeps its position as a bare number ({reading.start} → {reading.end}), as Spark's "
        "memory and socket sources do, and some custom sources. Memory and socket sources cannot be replayed: what "
        "was read no longer exists. The checkpoint does not record which source it is.",
        "Continue with --allow-data-loss if the records may be missing, or if the source can read them again.",
    )


def _remarks(reading: SourceRange) -> Iterator[str]:
    name = f"Source {reading.source}"
    if reading.kind == "number":
        yield (
            f"{name} keeps its position as a bare number, as Spark's memory and socket sources do: whether it can "
            f"continue at {reading.start} cannot be checked."
        )
    elif not reading.reads:
        return
    elif reading.kind == "rate":
        yield (
            f"{name} is Spark's rate source: its rows are generated again from the start time in "
            f"sources/{reading.source}/0, the same rows as long as rowsPerSecond and rampUpTime are the same."
        )
    elif reading.kind == "rate-micro-batch":
        yield (
            f"{name} is Spark's rate-micro-batch source: its rows are generated again, the same rows as long as its "
            "options are the same."
        )
    elif reading.kind == "Delta":
        yield (
            f"{name} is a Delta table, whose location the checkpoint does not hold: make sure with DESCRIBE HISTORY "
            f"that it still has what is read from {reading.start} on."
        )
    elif reading.kind == "other":
        yield f"{name} is of an unknown kind: whether it still has these records was not checked."
