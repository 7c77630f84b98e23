"""The log of a file source, which records the input files that each batch read.

`sources/<source>/K` holds the files of log entry K, `K.compact` those of all entries up to K. A batch names the newest
entry that it has read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from os.path import exists
from urllib.parse import unquote, urlsplit

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format import logs
from respool.storage.folder import read_error
from respool.storage.open import open_reader
from respool.untrusted import Malformed, whole_number

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


def missing(paths: Iterable[str]) -> Missing:
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
