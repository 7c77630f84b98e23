"""Checks of `metadata`, `offsets` and `commits`, and of the logs that sources keep in a checkpoint."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.log_scan import UnusableLogFile
from respool.checkpoint.verify.soundness import CheckpointScan, Soundness, rewind_command
from respool.errors import CheckpointError
from respool.findings import Finding, note, unreadable
from respool.format import logs, model
from respool.format.model import spans
from respool.format.positions import kind_of
from respool.storage.folder import is_denied, reason
from respool.text import number_range, plural

_UUID = re.compile(r"[0-9a-fA-F]{1,8}(-[0-9a-fA-F]{1,4}){3}-[0-9a-fA-F]{1,12}")
_EVENTUALLY = "Nothing. Spark deletes it eventually."


def metadata(checkpoint: CheckpointSnapshot, sound: Soundness) -> Iterator[Finding]:
    """Find out whether `metadata` holds the query's id."""
    command = rewind_command(checkpoint.root, sound.newest() or 0, "--new-query-id")
    sinks = "A Delta table or a file sink identifies the query by its id: for such a sink, restore the old id."
    remedy = f"Restore it from a copy, or give the query a new id with: {command}. {sinks}"
    if sound.unknown is not None:
        remedy = sound.remedy()
    if not checkpoint.offsets:
        remedy = "Delete it; Spark writes a new one."
    if "metadata" not in checkpoint.folders[""]:
        if checkpoint.offsets or checkpoint.commits:
            yield Finding("The file metadata, which holds the query's id, is missing: Spark does not start.", remedy)
        return
    try:
        query_id = logs.query_id(logs.decode("metadata", checkpoint.files.read("metadata")))
    except (CheckpointError, OSError) as error:
        why = reason(error)
        yield unreadable("metadata", why) if is_denied(error) else Finding(f"metadata {why}.", remedy)
        return
    if not _UUID.fullmatch(query_id):
        yield Finding(f"metadata holds the id {query_id!r}, which is not a UUID: Spark does not start.", remedy)


def offsets(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find damaged and missing files of `offsets`."""
    batches = known.checkpoint.offsets
    newest = batches[-1] if batches else -1
    for batch, bad in _bad(known, "offsets"):
        lost = number_range(batch + 1, min(batch + 2, newest + 1))
        yield _damaged(known, sound, f"offsets/{batch}", bad, batch >= newest - 1, f"batches {lost}")
    if is_async(known):
        what = "offsets and commits have gaps, as async progress tracking leaves them; "
        what += f"offsets/{newest - 1} does not exist."
        how = "Start the query with asyncProgressTrackingEnabled, as it ran: without it Spark needs that file."
        yield note(what, how)
        return
    for first, last in _gaps(batches):
        what = f"offsets/{number_range(first, last)} {'is' if first == last else 'are'} missing"
        if last == newest - 1:
            yield Finding(f"{what}: a start needs what batch {last} was to read.", sound.remedy())
        else:
            lost = number_range(first, min(last + 2, newest + 1))
            yield note(f"{what}: batches {lost} cannot be rewound to.", "Nothing: a start does not need it.")


def commits(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find damaged and missing files of `commits`."""
    batches = known.checkpoint.commits
    for batch, bad in _bad(known, "commits"):
        needed = batch == batches[-1]
        yield _damaged(known, sound, f"commits/{batch}", bad, needed, f"batch {batch + 1}")
    for first, last in () if is_async(known) else _gaps(batches):
        what = f"commits/{number_range(first, last)} {'is' if first == last else 'are'} missing"
        how = "Nothing: a start does not need it."
        if sound.newest(first) is not None:
            how += f" To close the gap, {_lower(sound.remedy(first))}"
        yield note(f"{what}: batches {number_range(first + 1, last + 1)} cannot be rewound to.", how)


def writer(known: CheckpointScan) -> Iterator[Finding]:
    """Find out whether a Spark version wrote the checkpoint that respool is not tested with."""
    with suppress(CheckpointError):
        warning = model.writer_of(known.checkpoint.newest_planned()).warning
        if warning is not None:
            how = "Keep a copy of the checkpoint before you change it, or let a tested Spark run a batch first."
            yield note(warning, how)


def order(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find out whether the logs are consistent with each other."""
    checkpoint, logs_ = known.checkpoint, known.logs
    newest = checkpoint.offsets[-1] if checkpoint.offsets else -1
    last = checkpoint.commits[-1] if checkpoint.commits else -1
    if not checkpoint.offsets:
        if checkpoint.commits or checkpoint.stores:
            there = f"commits/{last}" if checkpoint.commits else checkpoint.stores[0].folder
            yield Finding(f"offsets is empty, though {there} is there: Spark does not start.", sound.remedy())
        return
    if last > newest and last > known.newest_now:
        what = f"commits/{last} is beyond the newest batch in offsets, {newest}: Spark runs that again, then fails."
        yield Finding(what, sound.remedy())
    elif last < newest - 1 and not is_async(known):
        missing = number_range(last + 1, newest - 1)
        does = "cannot load the state" if known.has_ids else f"runs batch {newest} again, but none before it"
        what = f"commits/{missing} and commits/{newest} are missing at the end: Spark {does}."
        way = sound.remedy(last + 1)
        yield Finding(what, way if known.has_ids else f"If they were all finished, start the query. If not: {way}")
    elif last == newest - 1 and newest in logs_.planned:
        yield from _uncommitted(known, sound, newest)
    for batch, entry in logs_.planned.items():
        status = Finding if batch == newest else note
        remedy = sound.remedy(batch) if batch == newest else "Nothing: a start does not need it."
        if entry.back is not None:
            what = f"offsets/{batch} is behind the previous batch: {entry.back}. Were files of two runs mixed?"
            yield status(what, remedy)
        before = logs_.planned.get(batch - 1)
        if before and entry.version == before.version == 1 and len(entry.sources) != len(before.sources):
            now = plural(len(entry.sources), "source")
            what = f"offsets/{batch} has {now}, offsets/{batch - 1} has {len(before.sources)}."
            yield status(what, remedy)
    yield from _no_partitions(known, newest)


def is_async(known: CheckpointScan) -> bool:
    """Return whether the gaps in the logs are those of async progress tracking: more gaps than batches."""
    batches, committed = known.checkpoint.offsets, set(known.checkpoint.commits)
    steps = len(batches) - 1
    runs = len(spans(batches))
    alike = committed <= set(batches) and set(batches[:-1]) <= committed
    return not known.checkpoint.stores and alike and runs > 1 and 2 * (runs - 1) >= steps


def _uncommitted(known: CheckpointScan, sound: Soundness, newest: int) -> Iterator[Finding]:
    planned = known.logs.planned
    now, before = planned.get(newest), planned.get(newest - 1)
    if now and before and newest > 0:
        if now.partitions is not None and before.partitions is not None and now.partitions != before.partitions:
            counts = f"from {before.partitions} to {now.partitions}"
            what = f"offsets/{newest} starts a repartition {counts} that was not finished"
            yield Finding(f"{what}: Spark does not start.", sound.remedy(newest))
            return
        if now.partitions is None or before.partitions is None:
            what = f"Batch {newest} was not finished, and offsets/{newest} does not say how many partitions there are"
            yield Finding(f"{what}: Spark 4.2 fails with None.get.", sound.remedy(newest))
            return
    what = f"Batch {newest} is planned but not finished: it runs again, on the same records."
    delta = f" If its sink is a Delta table that has it already, Spark fails: {_lower(sound.remedy(newest))}"
    yield note(what, "Nothing." + (delta if known.has_ids else ""))


def _no_partitions(known: CheckpointScan, newest: int) -> Iterator[Finding]:
    planned = known.logs.planned.get(newest)
    if planned is not None and planned.partitions is None and known.checkpoint.stores:
        count = len({store.partition for store in known.checkpoint.stores})
        what = f"offsets/{newest} does not say how many partitions the state has; there are {count}."
        how = f"Start with spark.sql.shuffle.partitions={count}: with fewer, Spark loses state silently."
        yield note(what, how)


def _bad(known: CheckpointScan, folder: str) -> list[tuple[int, UnusableLogFile]]:
    paths = (path.split("/") for path in known.logs.bad)
    return sorted((int(name), known.logs.bad[f"{folder}/{name}"]) for where, name in paths if where == folder)


def _damaged(
    known: CheckpointScan, sound: Soundness, path: str, bad: UnusableLogFile, needed: bool, lost: str
) -> Finding:
    if bad.denied:
        return unreadable(path, bad.why)
    if not needed:
        return Finding(f"{path} {bad.why}. A start does not need it; {lost} cannot be rewound to.", _EVENTUALLY)
    if bad.unknown:
        use = "A newer Spark wrote it: start the query with that Spark, and use a respool that supports it."
        return Finding(f"{path} {bad.why}.", use)
    return Finding(f"{path} {bad.why}.", sound.remedy())


def _gaps(batches: tuple[int, ...]) -> list[tuple[int, int]]:
    runs = spans(batches)
    return [(run.last + 1, other.first - 1) for run, other in pairwise(runs)]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


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
