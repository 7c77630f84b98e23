"""Check all that a restart relies on, and all that a rewind to a kept batch relies on. Nothing is changed."""

from collections.abc import Callable, Iterable

from respool.checkpoint.read import Checkpoint
from respool.checkpoint.verifying import check_folder, check_logs, check_sources, check_state, damage, state_facts
from respool.checkpoint.verifying.findings import Check, Finding, check
from respool.checkpoint.verifying.log_facts import Logs, read_logs
from respool.checkpoint.verifying.soundness import Known, Soundness
from respool.checkpoint.verifying.source_log import SourceLogs
from respool.checkpoint.verifying.state_facts import StateFacts, read_state

_NEWEST = 2  # of so many files of each log the hidden checksums are compared

__all__ = ["Check", "Finding", "verify"]


def verify(
    checkpoint: Checkpoint, deep: bool = True, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Check, ...]:
    """Return what was checked, each thing ok or what is amiss and what to do.

    When a change is half done, a folder cannot be listed, or the folder is no checkpoint, only that is told: the rest
    could not be judged.

    Args:
        checkpoint: The checkpoint.
        deep: Read the bytes of all state files, too.
        on_progress: Called with how many files were read, of how many.
    """
    first = [
        check("unfinished changes", check_folder.unfinished(checkpoint)),
        check("permissions of folders", check_folder.listed(checkpoint)),
        check("a checkpoint's folder", check_folder.is_checkpoint(checkpoint)),
    ]
    if any(one.status == "broken" for one in first):
        return tuple(first)
    known = _read(checkpoint, deep, on_progress)
    sound = Soundness(known)
    rest: dict[str, Iterable[Finding]] = {
        "files and folders": check_folder.misplaced(checkpoint),
        "metadata": check_logs.metadata(checkpoint, sound),
        "offsets": check_logs.offsets(known, sound),
        "commits": check_logs.commits(known, sound),
        "version of Spark": check_logs.writer(known),
        "order of batches": check_logs.order(known, sound),
        "sources": check_sources.sources(known, sound),
        "operators": check_state.operators(known, sound),
        "state store": check_state.provider(known),
        **({} if checkpoint.unknown_provider is not None else _state(known, sound)),
        "leftovers": check_folder.leftovers(
            checkpoint,
            [*_changed(checkpoint), *known.state.stale],
            known.state.orphans,
            [*known.logs.vanished, *known.state.vanished],
        ),
    }
    return (*first, *(check(name, found) for name, found in rest.items()))


def _state(known: Known, sound: Soundness) -> dict[str, Iterable[Finding]]:
    return {
        f"state for batch {known.checkpoint.next_batch}": check_state.next_state(known, sound),
        "older state": check_state.older_state(known),
        "state beyond the newest batch": check_state.stale_state(known, sound),
        "foreign files": check_state.strange_files(known),
    }


def _read(checkpoint: Checkpoint, deep: bool, on_progress: Callable[[int, int], None]) -> Known:
    total = len(checkpoint.offsets) + len(checkpoint.commits) + (state_facts.count(checkpoint) if deep else 0)
    done = 0

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    logs: Logs = read_logs(checkpoint, on_read)
    readable = deep and checkpoint.unknown_provider is None
    state = read_state(checkpoint, logs.codec, on_read) if readable else StateFacts()
    return Known(checkpoint, logs, state, SourceLogs(checkpoint))


def _changed(checkpoint: Checkpoint) -> list[str]:
    """Return the files a start reads first that are not as Spark wrote them, by their hidden checksums."""
    paths = ["metadata", *(f"offsets/{one}" for one in checkpoint.offsets[-_NEWEST:])]
    paths += [f"commits/{one}" for one in checkpoint.commits[-_NEWEST:]]
    beside = {path: "/".join([*path.split("/")[:-1], f".{path.rpartition('/')[2]}.crc"]) for path in paths}
    there = {
        path: crc
        for path, crc in beside.items()
        if crc.rpartition("/")[2] in checkpoint.folders.get(path.rpartition("/")[0], ())
    }
    read = checkpoint.files.read_many([*there, *there.values()])
    found = []
    for path, crc in there.items():
        data, hidden = read[path], read[crc]
        if isinstance(data, bytes) and isinstance(hidden, bytes) and damage.checksum(data, hidden):
            found.append(path)
    return found
