"""Checks of the files that sources keep in a checkpoint."""

from collections.abc import Iterator

from respool.checkpoint.verify.damage import unreadable
from respool.checkpoint.verify.soundness import CheckpointScan, Soundness
from respool.errors import CheckpointError
from respool.findings import Finding, note
from respool.format import logs
from respool.format.positions import kind_of
from respool.storage.folder import is_denied, reason


def sources(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find out whether the sources' logs reach up to the newest batch, and can be read."""
    newest = max(known.logs.planned, default=None)
    if newest is None:
        return
    for source, end in known.logs.planned[newest].log_ends:
        last = known.sources.newest(source)
        wrong = known.sources.wrong(source, last)
        if last < end:
            what = f"The log of input files in sources/{source} ends with entry {last}; offsets/{newest} names {end}."
            yield Finding(what, sound.remedy())
        elif wrong is not None and wrong[0] in known.sources.denied:
            yield unreadable(wrong[0], "permission denied")
        elif wrong is not None:
            yield Finding(
                f"{wrong[0]} {wrong[1]}: Spark cannot determine which input files it has read.", sound.remedy()
            )
    yield from _kafka(known, newest)


def _kafka(known: CheckpointScan, newest: int) -> Iterator[Finding]:
    """Find out whether the initial position of a Kafka source is kept."""
    try:
        planned = known.checkpoint.planned(newest)
    except CheckpointError:
        return
    for source in planned.sources:
        if kind_of(source.end) != "Kafka":
            continue
        path = f"sources/{source.source}/0"
        what = None
        if "0" not in known.checkpoint.folders.get(f"sources/{source.source}", ()):
            what = f"{path}, which holds the source's initial position, is missing."
        else:
            try:
                logs.initial_offsets(path, known.checkpoint.files.read(path))
            except (CheckpointError, OSError) as error:
                if is_denied(error):
                    yield unreadable(path, "permission denied")
                    continue
                what = f"{path} {reason(error)}."
        if what is not None and known.checkpoint.next_batch == 0:
            yield Finding(f"{what} Batch 0 starts there.", "Restore it from a copy.")
        elif what is not None:
            yield note(what, "Nothing. A rewind to batch 0 would start at startingOffsets.")
