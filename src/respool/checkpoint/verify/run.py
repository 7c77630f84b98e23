"""Check everything that a restart, or a rewind to a kept batch, relies on. Nothing is changed."""

from collections.abc import Callable, Iterable

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify import folder, state_scan
from respool.checkpoint.verify import logs as verify_logs
from respool.checkpoint.verify import state as verify_state
from respool.checkpoint.verify.log_scan import LogScan, SourceLogs, read_logs
from respool.checkpoint.verify.soundness import CheckpointScan, Soundness
from respool.checkpoint.verify.state_scan import StateScan, read_state
from respool.findings import CheckResult, Finding, check
from respool.format import layout, state_files

_NEWEST = 2  # files of each log whose hidden checksums are compared

__all__ = ["CheckResult", "Finding", "verify"]


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
        check("unfinished changes", folder.unfinished(checkpoint)),
        check("permissions of folders", folder.listed(checkpoint)),
        check("a checkpoint's folder", folder.is_checkpoint(checkpoint)),
    ]
    if any(result.status == "broken" for result in first):
        return tuple(first)
    known = _read(checkpoint, deep, on_progress)
    sound = Soundness(known)
    rest: dict[str, Iterable[Finding]] = {
        "files and folders": folder.misplaced(checkpoint),
        "metadata": verify_logs.metadata(checkpoint, sound),
        "offsets": verify_logs.offsets(known, sound),
        "commits": verify_logs.commits(known, sound),
        "version of Spark": verify_logs.writer(known),
        "order of batches": verify_logs.order(known, sound),
        "sources": verify_logs.sources(known, sound),
        "operators": verify_state.operators(known, sound),
        "state store": verify_state.provider(known),
        **({} if checkpoint.unknown_provider is not None else _state(known, sound)),
        "leftovers": folder.leftovers(
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
