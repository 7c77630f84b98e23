"""What a file sink will do with replayed batches, and which files must be moved so that it writes them.

`_spark_metadata/N` names the files of batch N, `N.compact` those of all batches up to N. Readers in Spark see only
files that are named there; other readers see all files of the folder.
"""

import os
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from respool.errors import CheckpointError
from respool.format import layout, logs
from respool.locations import local_path
from respool.sinks.address import MoveSinkFiles, ReplayOutcome
from respool.storage.folder import FolderReader, read_error
from respool.storage.open import new_writer, open_reader

_LOG = "_spark_metadata"
_EMPTY = b"v1"


def replay(folder: str, first_batch: int) -> ReplayOutcome:
    """Return what a file sink will do when the batches from `first_batch` on are replayed."""
    sink, files = f"files in {folder}", _open(folder)
    entries = logs.numbers_by_name(files.names(_LOG))
    if not entries:
        raise CheckpointError(
            f"{folder} has no {_LOG}: no file sink of Spark writes there. Name the folder that the query writes to, or "
            "give --sink foreachBatch when your own function writes the files."
        )
    newest = max(entries.values())
    if newest < first_batch:
        return ReplayOutcome(sink, f"It has no batch from {first_batch} on: they are written as new.")
    why = (
        f"The folder {folder} has the batches up to {newest}: its sink would skip batches {first_batch} to "
        f"{newest} silently, whatever the query's id, and a stateful query would break."
    )
    before, now = logs.files_up_to(entries, first_batch - 1), logs.files_up_to(entries, newest)
    if before is None or now is None:
        return ReplayOutcome(sink, "It cannot be restored by respool.", why, _way_out(entries, first_batch))
    kept = _named(files, before)
    later = [path for path in _named(files, now) if path not in set(kept)]
    inside, outside = _relative(files, folder, later)
    log = sorted((name for name, number in entries.items() if number >= first_batch), key=entries.__getitem__)
    moving = _with_companions(files, folder, [*(f"{_LOG}/{name}" for name in reversed(log)), *inside])
    text = f"Restored, it loses {len(inside)} files of the batches from {first_batch} on, and takes these as new."
    if outside:
        text += f" {outside} files named in its log are not in the folder, and stay as they are."
    remedy = "Let respool move its files of these batches aside with --restore-sink."
    return ReplayOutcome(sink, text, why, remedy, MoveSinkFiles(folder, tuple(moving)))


def newest_batch(folder: str) -> int:
    """Return the newest batch in the log of a file sink; -1 without a log."""
    path = local_path(folder)
    if path is not None and not path.is_dir():
        return -1
    return max(logs.numbers_by_name(open_reader(folder).names(_LOG)).values(), default=-1)


def fill_log(folder: str, next_batch: int, interval: int) -> None:
    """Give a log the entries that it lacks before its next batch: of batches that wrote nothing to this folder.

    Spark compacts its log every so many batches, and expects an entry of each batch since the last time. A new folder
    of an older query, such as that of a fork, has none. Existing entries stay as they are.

    Args:
        folder: The folder or URL.
        next_batch: The batch that will be written.
        interval: The number of batches from compaction to compaction.
    """
    since = next_batch - next_batch % interval
    names = {batch: str(batch) for batch in range(since, next_batch)}
    if since:
        names[since - 1] = f"{since - 1}.compact"
    files = new_writer(folder)
    existing = set(logs.numbers_by_name(files.names(_LOG)).values())
    for batch in sorted(names.keys() - existing):
        files.replace(f"{_LOG}/{names[batch]}", _EMPTY)
    files.sync()


def _open(folder: str) -> FolderReader:
    path = local_path(folder)
    if path is not None and not path.is_dir():
        raise CheckpointError(
            f"There is no folder {path}. Name the folder that the query writes to: --sink files:FOLDER."
        )
    return open_reader(folder)


def _way_out(entries: Mapping[str, int], first_batch: int) -> str:
    after = sorted({number + 1 for number in entries.values()})
    possible = [
        batch for batch in after[:-1] if batch >= first_batch and logs.files_up_to(entries, batch - 1) is not None
    ]
    other = f"Rewind to batch {possible[0]} or a later one, or let" if possible else "Let"
    return (
        f"Its log no longer shows which files existed before batch {first_batch}: Spark has deleted entries of it. "
        f"{other} the query write to a new folder."
    )


def _named(files: FolderReader, names: Sequence[str]) -> list[str]:
    """Return the files that log entries name, as they name them."""
    paths: dict[str, None] = {}
    for path, data in files.read_many([f"{_LOG}/{name}" for name in names]).items():
        if isinstance(data, Exception):
            raise read_error(f"{files.root}/{path}", data) from data
        paths |= {str(entry["path"]): None for entry in logs.log_entries(path, logs.decode(path, data))}
    return list(paths)


def _relative(files: FolderReader, folder: str, paths: Sequence[str]) -> tuple[list[str], int]:
    """Return the named files that are in the folder, relative to it, and how many are not."""
    roots = [_plain(folder)] if local_path(folder) is None else [os.path.abspath(str(local_path(folder)))]
    roots += [os.path.realpath(root) for root in roots if root.startswith("/")]
    guesses = {path: _below(_plain(path), roots) for path in paths}
    existing = files.facts([guess for guess in guesses.values() if guess])
    inside = [guess for guess in guesses.values() if guess in existing]
    lost = [path for path, guess in guesses.items() if guess not in existing]
    if lost:  # the folder was moved, or is named differently
        here = {f"{where}/{name}" if where else name for where, names in files.walk().folders.items() for name in names}
        inside += [guess for path in lost if (guess := _ending(_plain(path), here))]
    return inside, len(paths) - len(inside)


def _plain(url: str) -> str:
    """Return a path without its scheme: /folder/name, or bucket/folder/name."""
    parts = urlsplit(url)
    return unquote(parts.path if parts.scheme in ("", "file") else parts.netloc + parts.path).rstrip("/")


def _below(path: str, roots: Sequence[str]) -> str:
    return next((path.removeprefix(f"{root}/") for root in roots if path.startswith(f"{root}/")), "")


def _ending(path: str, here: set[str]) -> str:
    """Return the longest ending of a path that is a file of the folder: partitions can have files of one name."""
    parts = path.strip("/").split("/")
    return next((end for first in range(len(parts)) if (end := "/".join(parts[first:])) in here), "")


def _with_companions(files: FolderReader, folder: str, paths: Sequence[str]) -> list[str]:
    """Return the paths, each followed by its checksum file, which Hadoop writes on a local disk."""
    if local_path(folder) is None:
        return list(paths)
    companions = {path: layout.hidden_checksum(path) for path in paths}
    existing = files.facts(companions.values())
    return [file for path in paths for file in (path, companions[path]) if file == path or file in existing]
