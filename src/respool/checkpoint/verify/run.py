"""Check everything that a restart, or a rewind to a kept batch, relies on. Nothing is changed.

The folder itself comes first: that it is a checkpoint, is readable, and has no unfinished change.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator

from respool.checkpoint.journal import history
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify import logs as verify_logs
from respool.checkpoint.verify import state as verify_state
from respool.checkpoint.verify import state_scan
from respool.checkpoint.verify.log_scan import LogScan, SourceLogs, read_logs
from respool.checkpoint.verify.soundness import CheckpointScan, Soundness
from respool.checkpoint.verify.state_scan import StateScan, read_state
from respool.errors import CheckpointError, FileError, UnknownFormatVersionError
from respool.findings import CheckResult, Finding, check, note, unreadable
from respool.format import layout, logs, state_files
from respool.locations import OWN, local_path
from respool.storage.folder import is_denied
from respool.text import few, plural

_NEWEST = 2  # files of each log whose hidden checksums are compared

__all__ = ["CheckResult", "Finding", "verify"]


_FOLDERS = ("offsets", "commits", "state", "sources")
_DENIED = "permission denied"
_REGULAR = "Put a folder or a regular file in its place, or move it out of the checkpoint."
_COPY = "Move it away, and restore the folder from a copy."


def verify(
    checkpoint: CheckpointSnapshot,
    deep: bool = True,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[CheckResult, ...]:
    """Return the result of each check, with findings and their remedies.

    When a change is unfinished, a folder cannot be listed, or the folder is not a checkpoint, only that is reported:
    the rest could not be judged.

    Args:
        checkpoint: The checkpoint.
        deep: Also read the bytes of all state files.
        on_progress: Called with the number of files read and their total number.
    """
    first = [
        check("unfinished changes", unfinished(checkpoint)),
        check("permissions of folders", listed(checkpoint)),
        check("a checkpoint's folder", is_checkpoint(checkpoint)),
    ]
    if any(result.status == "broken" for result in first):
        return tuple(first)
    known = _read(checkpoint, deep, on_progress)
    sound = Soundness(known)
    rest: dict[str, Iterable[Finding]] = {
        "files and folders": misplaced(checkpoint),
        "metadata": verify_logs.metadata(checkpoint, sound),
        "offsets": verify_logs.offsets(known, sound),
        "commits": verify_logs.commits(known, sound),
        "version of Spark": verify_logs.writer(known),
        "order of batches": verify_logs.order(known, sound),
        "sources": verify_logs.sources(known, sound),
        "operators": verify_state.operators(known, sound),
        "state store": verify_state.provider(known),
        **({} if checkpoint.unknown_provider is not None else _state(known, sound)),
        "leftovers": leftovers(
            checkpoint,
            [*_changed(checkpoint), *known.state.stale],
            known.state.orphans,
            [*known.logs.vanished, *known.state.vanished],
        ),
    }
    return (*first, *(check(name, findings) for name, findings in rest.items()))


def _state(known: CheckpointScan, sound: Soundness) -> dict[str, Iterable[Finding]]:
    return {
        f"state for batch {known.checkpoint.next_batch}": verify_state.next_state(known, sound),
        "older state": verify_state.older_state(known),
        "state beyond the newest batch": verify_state.stale_state(known, sound),
        "foreign files": verify_state.strange_files(known),
    }


def _read(checkpoint: CheckpointSnapshot, deep: bool, on_progress: Callable[[int, int], None]) -> CheckpointScan:
    total = len(checkpoint.offsets) + len(checkpoint.commits) + (state_scan.count(checkpoint) if deep else 0)
    done = 0

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    logs: LogScan = read_logs(checkpoint, on_read)
    readable = deep and checkpoint.unknown_provider is None
    state = read_state(checkpoint, logs.codec, on_read) if readable else StateScan()
    return CheckpointScan(checkpoint, logs, state, SourceLogs(checkpoint))


def _changed(checkpoint: CheckpointSnapshot) -> list[str]:
    """Return the files that a start reads first whose hidden checksums do not match."""
    paths = ["metadata", *(f"offsets/{batch}" for batch in checkpoint.offsets[-_NEWEST:])]
    paths += [f"commits/{batch}" for batch in checkpoint.commits[-_NEWEST:]]
    checksums = {path: layout.hidden_checksum(path) for path in paths}
    there = {
        path: crc
        for path, crc in checksums.items()
        if crc.rpartition("/")[2] in checkpoint.folders.get(path.rpartition("/")[0], ())
    }
    read = checkpoint.files.read_many([*there, *there.values()])
    changed = []
    for path, crc in there.items():
        data, hidden = read[path], read[crc]
        if isinstance(data, bytes) and isinstance(hidden, bytes) and state_files.checksum(data, hidden):
            changed.append(path)
    return changed


def unfinished(checkpoint: CheckpointSnapshot) -> Iterator[Finding]:
    """Find an interrupted change, and files of respool's own that cannot be read."""
    root = shlex.quote(checkpoint.root)
    if "" in checkpoint.listing.unreadable:
        return  # reported by `listed`
    try:
        interrupted = history.pending(checkpoint.files)
    except CheckpointError as error:
        help_first = "Ask for help before you change or start anything here."
        if isinstance(error, UnknownFormatVersionError):
            help_first = error.remedy
        yield unreadable(history.PENDING, _DENIED) if is_denied(error) else Finding(_sentence(error), help_first)
        return
    if interrupted is not None:
        what = f"The {interrupted.operation} {interrupted.id} was interrupted: the query cannot start."
        what += f" See {history.PENDING}."
        yield Finding(what, interrupted.way_out(root))
    try:
        history.past(checkpoint.files)
    except (CheckpointError, OSError) as error:
        if is_denied(error):
            yield unreadable(f"{OWN}/history", _DENIED)
            return
        yield note(_sentence(error), "Move that file out of the folder; what it moved aside can no longer be undone.")


def listed(checkpoint: CheckpointSnapshot) -> Iterator[Finding]:
    """Find folders that cannot be listed, and entries that are neither folders nor regular files."""
    for path, why in sorted(checkpoint.listing.unreadable.items()):
        if path in checkpoint.folders:
            yield unreadable(path or checkpoint.root, why)
        else:
            yield Finding(f"{path} cannot be read: {why}.", _REGULAR)


def is_checkpoint(checkpoint: CheckpointSnapshot) -> Iterator[Finding]:
    """Find out whether a folder is not a checkpoint, and what it is instead."""
    inside = sorted({folder.split("/")[0] for folder in checkpoint.folders if folder} | set(checkpoint.folders[""]))
    if {"metadata", *_FOLDERS} & set(inside) or "" in checkpoint.listing.unreadable:
        return
    root = checkpoint.root
    what = f"{root} is not a checkpoint of a streaming query"
    nested = sorted({folder.rpartition("/offsets")[0] for folder in checkpoint.folders if folder.endswith("/offsets")})
    if nested:
        command = f"respool checkpoint verify {shlex.quote(f'{root}/{nested[0]}')}"
        yield Finding(f"{what}, but contains checkpoints: {few(nested)}.", f"Name one of them: {command}")
    elif "_delta_log" in inside or "_spark_metadata" in inside:
        yield Finding(f"{what}, but a table written by a query.", "Name the folder in the query's checkpointLocation.")
    elif inside:
        expected = "expected the file metadata and the folders offsets and commits."
        yield Finding(f"{what}: it holds {few(inside)}; {expected}", "Check the path.")
    else:
        yield Finding(f"{what}: it is empty.", "Check the path. A query that starts here begins with batch 0.")


def misplaced(checkpoint: CheckpointSnapshot) -> Iterator[Finding]:
    """Find files in the place of folders, and folders in the place of files."""
    for name in _FOLDERS:
        if name in checkpoint.folders[""]:
            yield Finding(f"{name} is a file; expected a folder.", _COPY)
    for folder, names in checkpoint.folders.items():
        if folder in ("state", "sources") or (folder.startswith("state/") and folder.count("/") == 1):
            for name in sorted(names):
                if layout.operator(name) is not None:
                    yield Finding(f"{folder}/{name} is a file; expected a folder.", _COPY)
    if "metadata" in checkpoint.folders:
        yield Finding("metadata is a folder; expected a file.", "Move it away, and restore the file from a copy.")


def leftovers(
    checkpoint: CheckpointSnapshot, stale: list[str], orphans: list[str], vanished: list[str]
) -> Iterator[Finding]:
    """Find files that are no longer used; most of them are harmless."""
    unfinished_files, alone = [], []
    local = local_path(checkpoint.root) is not None
    for folder, names in sorted(checkpoint.folders.items()):
        there = set(names)
        for name in names:
            companion = layout.is_companion(name)
            if not companion and not name.startswith("."):
                continue
            path = f"{folder}/{name}" if folder else name
            if layout.is_leftover(name):
                unfinished_files.append(path)
            elif companion and _main_file(name) not in there and name[:-4] not in there:
                if local and name.startswith(".") and _blocks(checkpoint, folder, _main_file(name)):
                    what = f"{path} is the checksum of a missing file: Spark fails when it writes that file"
                    yield Finding(f"{what}, as if another query was running.", f"Delete {path}.")
                else:
                    alone.append(path)
    harmless = "Nothing: Spark ignores it. It may be deleted."
    for what, paths in (
        ("left by a process that was killed, or unfinished", unfinished_files),
        ("the checksum of a missing file", alone),
        ("an SST that no zip needs", orphans),
        ("different from its hidden checksum, though Spark can read it", stale),
    ):
        if paths:
            remedy = "Nothing: Spark does not compare these checksums." if paths is stale else harmless
            count = "1 file" if len(paths) == 1 else f"{len(paths):,} files, each"
            yield note(f"{count} {what}: {few(sorted(paths))}.", remedy)
    if vanished:
        what = f"{plural(len(vanished), 'file')} vanished while they were checked: {few(vanished)}."
        yield note(what, "The query seems to be running. Verify again when it has stopped.")


def _main_file(name: str) -> str:
    return name.removeprefix(".").removesuffix(".crc")


def _blocks(checkpoint: CheckpointSnapshot, folder: str, name: str) -> bool:
    """Return whether Spark will write this file and fail because of the old checksum, which it does not replace."""
    number = logs.number_of(name)
    if number is not None and folder in ("offsets", "commits"):
        return number >= checkpoint.next_batch and not checkpoint.has(folder, number)
    if number is not None and folder.startswith("sources/"):
        there = (logs.number_of(other) for other in checkpoint.folders[folder])
        return number > max((entry for entry in there if entry is not None), default=-1)
    if number is not None and folder.endswith("/_metadata/v2"):
        return number >= checkpoint.next_batch
    return folder.endswith("/_metadata") and name in ("metadata", "schema")


def _sentence(error: Exception) -> str:
    return f"{error.summary}." if isinstance(error, FileError) else str(error)
