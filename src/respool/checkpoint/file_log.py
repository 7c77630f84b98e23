"""The log of a source of files: which input file was read in which batch.

`sources/<source>/K` holds the files of log entry K, `K.compact` those of all entries up to K. A batch names the newest
entry that it has read.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from respool.checkpoint import logs
from respool.checkpoint.read import Checkpoint
from respool.errors import CheckpointError


@dataclass(frozen=True)
class Trim:
    """What happens to a source's log when its query is rewound.

    Attributes:
        moves: The log files that move aside, the newest first; none when the log must stay whole.
        inputs: The input files that will be read again.
        kept_whole: Whether the log has to stay, so that all these files come in one batch.
    """

    moves: tuple[str, ...]
    inputs: tuple[str, ...]
    kept_whole: bool


def trim(checkpoint: Checkpoint, source: str, last: int) -> Trim:
    """Return what to do so that `last` is the newest entry of a source's log; -1 empties it."""
    folder = f"sources/{source}"
    numbers = {name: number for name in checkpoint.folders.get(folder, ()) if (number := _number(name)) is not None}
    later = sorted((name for name, number in numbers.items() if number > last), key=lambda n: numbers[n], reverse=True)
    inputs = _inputs(checkpoint, [f"{folder}/{name}" for name in later], last)
    whole = last >= 0 and not _readable({name for name in numbers if name not in later}, last)
    return Trim(() if whole else tuple(f"{folder}/{name}" for name in later), inputs, whole and bool(later))


def missing(inputs: tuple[str, ...]) -> list[str]:
    """Return the input files that are no longer there, as far as this machine can tell."""
    local = {one: urlsplit(one) for one in inputs}
    from os.path import exists

    return [one for one, url in local.items() if url.scheme in ("", "file") and not exists(unquote(url.path))]


def _readable(names: set[str], last: int) -> bool:
    """Return whether Spark can read a log with these files up to its entry `last`: from a compact one, or from 0."""
    for number in range(last, -1, -1):
        if f"{number}.compact" in names:
            return True
        if str(number) not in names:
            return False
    return True


def _inputs(checkpoint: Checkpoint, paths: list[str], last: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path, data in checkpoint.files.read_many(paths).items():
        if isinstance(data, Exception):
            raise CheckpointError(f"{path} cannot be read: {data}") from data
        with suppress(
            CheckpointError, ValueError, TypeError
        ):  # a damaged entry goes, too; its files come again though they are not named
            entries = logs.log_entries(path, logs.decode(path, data))
            found |= {str(entry.get("path")): None for entry in entries if _entry_number(entry) > last}
    return tuple(found)


def _entry_number(entry: dict[str, Any]) -> int:
    return int(entry.get("batchId", -1))


def _number(name: str) -> int | None:
    text = name.removesuffix(".compact")
    return int(text) if text.isdecimal() else None
