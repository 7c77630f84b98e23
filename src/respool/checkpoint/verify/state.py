"""Checks of the state: whether the next batch can load it, damage in older versions, and foreign files."""

from collections.abc import Iterator
from itertools import pairwise

from respool.checkpoint import operator_files, reachability, state_versions
from respool.checkpoint.operator_files import OperatorFlaw
from respool.checkpoint.state_versions import StateLoad
from respool.checkpoint.verify.soundness import CheckpointScan, Soundness, by_path, clip, rewind_command, users
from respool.errors import CheckpointError
from respool.findings import Finding, note, unchecked, unreadable
from respool.format import model, state_stream
from respool.format.model import SNAPSHOTS, StateFile, StateStore, spans, spans_text
from respool.text import few, number_range, plural

_BREAKS = {"zip": "Spark cannot load the state", "snapshot": "Spark cannot load the state"}
_ASK = "Nothing was changed. Let Spark load the state to check it."
_STOPS = "Spark's maintenance stops at it, and neither writes snapshots nor deletes old state"


def operators(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find out whether Spark can read the metadata and schemas that it needs of each operator."""
    checkpoint, batch = known.checkpoint, known.checkpoint.next_batch
    yield from _lost(known)
    for operator in known.operators:
        if not operator_files.has_runs(checkpoint, operator):
            yield from _once_written(known, operator)
            continue
        flaw = operator_files.flaw_of_run(checkpoint, operator, batch)
        if flaw is not None:
            yield _flawed(flaw, checkpoint.root, sound)
        newest = checkpoint.offsets[-1] if checkpoint.offsets else -1
        beyond = [run for run in operator_files.runs(checkpoint, operator) if run > newest]
        if beyond:
            what = f"state/{operator}/_metadata/v2/{beyond[-1]} is of a batch after the newest, {newest}"
            yield Finding(f"{what}: Spark will use it, and with it perhaps the wrong schema.", sound.remedy())


def provider(known: CheckpointScan) -> Iterator[Finding]:
    """Find out whether respool can read the state at all."""
    name, codec = known.checkpoint.unknown_provider, known.logs.codec
    if name is not None:
        yield unchecked(f"{model.unreadable_provider(name)}. The state was not checked.", _ASK)
    elif known.checkpoint.stores and not state_stream.is_known(codec):
        what = (
            f"State files are compressed with {codec}, which respool cannot decompress: their content was not checked."
        )
        yield unchecked(what, _ASK)


def next_state(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find out whether the state that the next batch starts from can be loaded."""
    version = known.checkpoint.next_batch
    for store in known.expected(known.partitions(version)) if version else ():
        try:
            load = state_versions.load_of(known.checkpoint, store, version)
        except CheckpointError as error:
            yield Finding(f"{store.folder}: {error}", sound.remedy())
            continue
        wrong = [file for file in files_of(load) if known.damage(store, file) is not None]
        if load.snapshot in wrong and len(wrong) == 1 and _falls_back(known, store, version):
            yield _done_without(known, store, wrong[0])
            continue
        yield from (_damaged(known, sound, store, file) for file in wrong)


def older_state(known: CheckpointScan) -> Iterator[Finding]:
    """Find damage that only affects a rewind, and missing versions."""
    version = known.checkpoint.next_batch
    needed, lacking = set(), set()
    for store in known.expected(known.partitions(version)) if version else ():
        try:
            needed |= {
                f"{store.folder}/{file.name}"
                for file in files_of(state_versions.load_of(known.checkpoint, store, version))
            }
        except CheckpointError:
            lacking.add(store.folder)
    reachable = reachability.reachable(known.checkpoint) if known.checkpoint.offsets else []
    files = by_path(known)
    for path, why in sorted(known.state.damaged.items()):
        if path in needed or path not in files or files[path][1].version > version:
            continue
        store, file = files[path]
        if path in known.state.denied:
            yield unreadable(path, "permission denied")
            continue
        snapshots = sorted({other.version for other in store.files if other.kind in SNAPSHOTS})
        lost = clip(users(snapshots, file), reachable)
        if file.kind in SNAPSHOTS and known.logs.repairs and all(_falls_back(known, store, s.last) for s in lost):
            lost = []
        what = f"{path} is damaged: {why}. A start does not need it"
        if lost:
            batches = spans_text(lost)
            yield Finding(
                f"{what}; the batches {batches} cannot be rewound to.", "Nothing. Spark deletes it eventually."
            )
        else:
            yield note(f"{what}, nor does a rewind.", "Nothing. Spark deletes it eventually.")
    for store in known.stores.values():
        if store.folder not in lacking:
            yield from _missing(known, store)


def stale_state(known: CheckpointScan, sound: Soundness) -> Iterator[Finding]:
    """Find state that does not belong to any existing batch."""
    checkpoint = known.checkpoint
    newest = checkpoint.offsets[-1] if checkpoint.offsets else -1
    if newest < 0:
        return
    later = sorted(path for path, (_, file) in by_path(known).items() if file.version > newest + 1)
    if later and known.newest_now > newest:
        what = f"Batch {known.newest_now} was planned while the checkpoint was checked: the query runs."
        yield note(what, "Stop it, and verify again.")
    elif later:
        what = (
            f"{few(later)} {'is' if len(later) == 1 else 'are'} of batches after the newest, {newest}: when the query"
        )
        yield Finding(f"{what} reaches those batches, Spark may load them instead of its own state.", sound.remedy())
    partitions, version = known.partitions(checkpoint.next_batch), checkpoint.next_batch
    for (_, partition, _), store in sorted(known.stores.items()):
        if partitions is not None and partition >= partitions and any(file.version == version for file in store.files):
            count = plural(partitions, "partition")
            what = f"{store.folder} is as new as the others, though offsets/{version - 1} has {count}"
            how = "Was that number changed by hand? Restore it."
            yield Finding(f"{what}: its state would be lost.", how)


def strange_files(known: CheckpointScan) -> Iterator[Finding]:
    """Find files that Spark treats as its own although it did not write them."""
    checkpoint = known.checkpoint
    aside = rewind_command(checkpoint.root, checkpoint.next_batch)
    for store in checkpoint.stores:
        other = [file.name for file in store.files if (file.uid is not None) != known.has_ids]
        for name in sorted([*store.strange, *other]):
            kind = name.rpartition(".")[2]
            path = f"{store.folder}/{name}"
            move = f"Move it to another folder; {aside} does that, too." if name in store.strange else "Move it away."
            if kind in _BREAKS and not known.has_ids:
                yield Finding(f"{path} is not one of Spark's files: {_BREAKS[kind]}.", move)
            elif known.has_ids and name in other:
                yield note(f"{path} has no unique id, unlike the others: Spark does not use it.", "Nothing.")
            else:
                yield note(f"{path} is not one of Spark's files: {_STOPS}.", move)


def files_of(load: StateLoad) -> list[StateFile]:
    """Return the files of a load."""
    return [*([load.snapshot] if load.snapshot else []), *load.increments]


def _lost(known: CheckpointScan) -> Iterator[Finding]:
    """Find operators without any file although the newest commit names their state; only format 2 does."""
    last = max(known.logs.committed, default=None)
    named = known.checkpoint.committed(last).state_ids if last is not None and known.has_ids else {}
    over = rewind_command(known.checkpoint.root, 0)
    for operator in sorted(set(named) - set(known.operators)):
        how = f"Restore it from a copy, or start over with: {over}"
        yield Finding(f"state/{operator} is missing, though commits/{last} names its state.", how)


def _once_written(known: CheckpointScan, operator: int) -> Iterator[Finding]:
    """Find problems with the metadata of version 1 and the schemas of an operator."""
    checkpoint, folder = known.checkpoint, f"state/{operator}/_metadata"
    path = f"{folder}/metadata"
    why = operator_files.flaw_of_metadata(checkpoint, path) if known.logs.committed else None
    if "metadata" not in checkpoint.folders.get(folder, ()):
        if known.logs.committed:
            yield note(f"{path} is missing.", "Nothing: Spark writes it again at the next start.")
    elif why is not None and why.denied:
        yield unreadable(path, "permission denied")
    elif why is not None and why.unknown:
        yield unchecked(f"{path} {why.what}.")
    elif why is not None:
        what = f"{path} {why.what}. Spark starts without it, but its state reader does not."
        yield note(what, f"Delete it, and {folder}/.metadata.crc: Spark writes it again at the next start.")
    for schema, there in operator_files.schemas(checkpoint, operator):
        flaw = operator_files.flaw_of_schema(checkpoint, schema) if there else None
        if flaw is not None and flaw.denied:
            yield unreadable(schema, "permission denied")
        elif flaw is not None and flaw.unknown:
            yield unchecked(f"{schema} {flaw.what}.")
        elif flaw is not None:
            checksum = f"{schema.rpartition('/')[0]}/.schema.crc"
            yield Finding(
                f"{schema} {flaw.what}: Spark does not start.", f"Delete it, and {checksum}: Spark writes it again."
            )
        elif not there and known.logs.committed:
            how = "Nothing: Spark writes it again at the next start, without comparing it with the query."
            yield note(f"{schema} is missing.", how)


def _flawed(flaw: OperatorFlaw, root: str, sound: Soundness) -> Finding:
    if flaw.denied:
        return unreadable(flaw.path, "permission denied")
    if flaw.unknown:
        return unchecked(f"{flaw.path} {flaw.what}.")
    if flaw.elsewhere:
        copied = f"This checkpoint was copied or moved: replace the old folder by {root} in {flaw.path}, and delete"
        how = f"{copied} its .crc file. If it is only mounted at another path here, nothing needs to be done."
        return Finding(f"{flaw.path} {flaw.what}.", how)
    return Finding(f"{flaw.path} {flaw.what}: Spark does not start.", sound.remedy())


def _falls_back(known: CheckpointScan, store: StateStore, version: int) -> bool:
    """Return whether a version can be loaded without the damaged files."""
    try:
        state_versions.load_of(known.checkpoint, known.undamaged(store), version)
    except CheckpointError:
        return False
    return True


def _done_without(known: CheckpointScan, store: StateStore, file: StateFile) -> Finding:
    path = f"{store.folder}/{file.name}"
    what = f"{path} is damaged: {known.damage(store, file)}. An older snapshot and all later increments exist"
    checkpoint = known.checkpoint
    if path in known.state.denied:
        return unreadable(path, "permission denied")
    how = (
        f"Move it away, with its .crc file{_also(checkpoint.root, checkpoint.next_batch, path in known.state.movable)}."
    )
    if known.logs.repairs:
        return note(f"{what}, which Spark 4.2 uses instead.", how)
    return Finding(f"{what}, but only Spark 4.2 and later use them instead.", how)


def _also(root: str, batch: int, movable: bool) -> str:
    return f"; {rewind_command(root, batch)} does that, too" if movable else ""


def _damaged(known: CheckpointScan, sound: Soundness, store: StateStore, file: StateFile) -> Finding:
    path = f"{store.folder}/{file.name}"
    if path in known.state.denied:
        return unreadable(path, "permission denied")
    return Finding(f"{path} is damaged: {known.damage(store, file)}. Spark cannot load the state.", sound.remedy())


def _missing(known: CheckpointScan, store: StateStore) -> Iterator[Finding]:
    """Find missing versions between existing versions, which no clean-up of Spark's deletes."""
    checkpoint = known.checkpoint
    first = checkpoint.commits[0] + 1 if known.has_ids and checkpoint.commits else 0
    own = {file.version for file in state_versions.committed_files(checkpoint, store)}
    there = [version for version in own if first <= version <= checkpoint.next_batch]
    for before, other in pairwise(spans(sorted(there))):
        lost = number_range(before.last + 1, other.first - 1)
        what = (
            f"{store.folder} has no file of version {lost}: batches from {before.last + 1} on until the next snapshot"
        )
        yield note(f"{what} cannot be rewound to.", "Nothing: a start does not need it.")
