"""Plan a restore, a fork, a promotion. Planning reads, and changes nothing."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from respool.checkpoint import ownership, reachability
from respool.checkpoint.journal import history
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Operation, Replace, Step, journal_id
from respool.checkpoint.ownership import ForkRecord, RunRecord
from respool.checkpoint.planning import refusals
from respool.checkpoint.planning.availability import Availability, availability
from respool.checkpoint.planning.refusals import sink_steps
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, copy_identity
from respool.checkpoint.planning.rewind import read_again
from respool.checkpoint.planning.source_trim import Inputs
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed
from respool.errors import CheckpointError, Refusal
from respool.format import logs, positions
from respool.format.model import SourceOffsets
from respool.format.positions import SourceRange
from respool.pipeline import fingerprint
from respool.pipeline.fingerprint import summarize_changes
from respool.savepoint import install
from respool.savepoint.extras import staying
from respool.savepoint.install import InstallSet
from respool.savepoint.manifest import SavepointManifest
from respool.savepoint.placement import require_place
from respool.savepoint.store import Savepoint
from respool.sinks.address import ReplayOutcome
from respool.storage.local_lock import Process
from respool.storage.open import open_reader

_NOTHING = LogEnds(-1, -1)
_AHEAD = (
    "The savepoint is ahead of the checkpoint: what lies between them is skipped, not read. The state in the savepoint "
    "includes it."
)


@dataclass(frozen=True)
class InstallPlan:
    """A checkpoint that comes from elsewhere, before anything is copied.

    Attributes:
        batch: The batch that will run next.
        newest: The newest batch that was there; -1 for none.
        readings: What is read, or skipped, between there and where the query was, by source.
        watermark_ms: The watermark at which it starts.
        cargo: What is brought in.
        aside: How many files move aside.
        aside_size: How many bytes.
        replay: What the sink will do; None when it is not known.
        refusals: Why it must not be done as it is.
        notes: What else to know.
        journal: What will be done.
    """

    batch: int
    newest: int
    readings: tuple[SourceRange, ...]
    watermark_ms: int
    cargo: InstallSet
    aside: int
    aside_size: int
    replay: ReplayOutcome | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    journal: Journal


def plan_restore(
    savepoint: Savepoint,
    checkpoint: CheckpointSnapshot | None,
    where: str,
    request: RewindRequest,
    world: RewindContext,
    other_query: bool = False,
) -> InstallPlan:
    """Plan to put a checkpoint back to a savepoint.

    Args:
        savepoint: The savepoint.
        checkpoint: What is there now; None for a folder that is empty or not there.
        where: The checkpoint's folder or URL.
        request: What the user wants.
        world: What is known beside.
        other_query: Whether the checkpoint may be that of another query.
    """
    require_place(where)
    manifest = savepoint.manifest
    brought = cargo_of(savepoint, where, None)
    name = journal_id(world.now, manifest.next_batch)
    again = _read_since(manifest.sources, checkpoint) if checkpoint is not None else _read_by_origin(manifest)
    coming = _coming(manifest.sources, savepoint.checkpoint(), again, world.kept, to_end=checkpoint is None)
    steps = install.steps(checkpoint, brought, name, sink_steps(request, world, name))
    if checkpoint is None or ownership.read_run_record(checkpoint.files) is None:
        steps += _run_step(checkpoint, manifest.run)
    found = _refused(checkpoint, request, world, coming, steps)
    if checkpoint is not None and checkpoint.offsets and not other_query:
        found += _of_another(checkpoint, manifest)
    notes = [_AHEAD] if checkpoint is not None and any(one.skipped for one in coming.readings) else []
    notes += [*_left_in_place(checkpoint, brought), *refusals.open_files(request, world)]
    left = LogEnds(*[manifest.batch] * 2)
    origin = savepoint.location
    journal = _journal("restore", name, request, world.now, checkpoint, manifest.query_id, left, origin)
    return _plan(manifest.watermark_ms, brought, world, coming, found, notes, replace(journal, steps=tuple(steps)))


def plan_fork(savepoint: Savepoint, where: str, request: RewindRequest, world: RewindContext) -> InstallPlan:
    """Plan a second query from a savepoint, in a folder that is empty or not there."""
    manifest = savepoint.manifest
    query_id = str(uuid4())
    brought = cargo_of(savepoint, where, query_id)
    name = journal_id(world.now, manifest.next_batch)
    steps = install.steps(None, brought, name)
    steps += _run_step(None, manifest.run)
    mark = ForkRecord(
        savepoint=manifest.name,
        location=savepoint.location,
        batch=manifest.batch,
        checkpoint=manifest.checkpoint,
        query_id=manifest.query_id,
        sink=manifest.run.sink if manifest.run else "",
        created=manifest.created.isoformat(),
        sink_identity=manifest.run.sink_identity if manifest.run else None,
    )
    steps.append(Replace(ownership.FORK, None, _json(asdict(mark))))
    again = _read_by_origin(manifest)
    coming = _coming(manifest.sources, savepoint.checkpoint(), again, world.kept, to_end=True)
    left = LogEnds(*[manifest.batch] * 2)
    journal = _journal("fork", name, request, world.now, None, query_id, left, savepoint.location)
    found = refusals.losses(request, coming.available)
    notes = _left_out(manifest)
    return _plan(manifest.watermark_ms, brought, world, coming, found, notes, replace(journal, steps=tuple(steps)))


def plan_promote(
    fork: CheckpointSnapshot,
    checkpoint: CheckpointSnapshot | None,
    where: str,
    request: RewindRequest,
    world: RewindContext,
    fork_runs: str | None,
    fork_processes: Sequence[Process] = (),
) -> InstallPlan:
    """Plan to make a fork the checkpoint of the pipeline that it was forked from.

    Args:
        fork: The fork's checkpoint.
        checkpoint: What is there now; None for a folder that is empty or not there.
        where: The folder or URL of the pipeline's checkpoint.
        request: What the user wants.
        world: What is known beside.
        fork_runs: Who runs on the fork now, for people; None when nobody is known to.
        fork_processes: Other processes of this machine that have files of the fork open.
    """
    require_place(where)
    require_listed(fork)
    mark = ownership.fork_of(fork.files)
    if not fork.commits:
        raise CheckpointError(f"{fork.root} has no committed batch: there is nothing to promote. Run it first.")
    paths = [
        path for path in install.safe_move_order(fork) if not path.rpartition("/")[2].startswith(".") or _is_sum(path)
    ]
    brought = install.cargo(fork.files, None, paths, where, None)
    name = journal_id(world.now, fork.next_batch)
    steps = install.steps(checkpoint, brought, name, sink_steps(request, world, name))
    steps += _run_step(checkpoint, _promoted_run(fork, checkpoint))
    # A batch that is not committed runs again: what is read begins where the batch before it ended.
    ends = fork.planned(max(one for one in fork.offsets if one < fork.next_batch)).sources
    coming = _coming(ends, fork, _read_since(ends, fork), world.kept, to_end=True)
    found = _refused(checkpoint, request, world, coming, steps)
    ours = ownership.read_run_record(fork.files) is not None
    its_world = RewindContext(world.now, runs=fork_runs, ours=ours, processes=tuple(fork_processes))
    for one in refusals.running(fork, request, its_world, []):
        found.append(Refusal(f"Of the fork: {one.why}", one.way_out))
    if mark is None or (checkpoint is not None and mark.query_id not in query_ids(checkpoint)):
        of = f"of the query {mark.query_id}" if mark else "by respool"
        found.append(
            Refusal(
                f"{fork.root} is no fork {of} that {where} is of.",
                "Name a fork of this checkpoint, as `respool savepoint fork` made it.",
            )
        )
    left = LogEnds(fork.offsets[-1], fork.commits[-1])
    journal = _journal("promote", name, request, world.now, checkpoint, fork.query_id, left, fork.root)
    watermark = max(fork.newest_planned().watermark_ms, fork.committed(fork.commits[-1]).next_watermark_ms)
    notes = [*_promotion_notes(fork, checkpoint), *refusals.open_files(request, world)]
    return _plan(watermark, brought, world, coming, found, notes, replace(journal, steps=tuple(steps)))


def require_new(where: str, names: Sequence[str]) -> None:
    """Raise CheckpointError when a fork is to go where something is, or into another checkpoint."""
    require_place(where)
    if names:
        shown = ", ".join(sorted(names)[:4]) + (" …" if names[4:] else "")
        raise CheckpointError(
            f"{where} is not empty: it holds {shown}. A fork needs a folder of its own; name a new one. "
            "Nothing was changed."
        )


def cargo_of(savepoint: Savepoint, where: str, query_id: str | None) -> InstallSet:
    """Return what a savepoint brings into a folder, for a query with this id; None for that of its own."""
    files = savepoint.manifest.files
    return install.cargo(savepoint.files(), files, [one.path for one in files], where, query_id)


_Again = tuple[tuple[SourceRange, ...], Mapping[str, Inputs]]


@dataclass(frozen=True)
class _Coming:
    """What a query reads once it continues from a position, and whether its sources still have it."""

    readings: tuple[SourceRange, ...]
    available: Availability


def _coming(
    starts: Sequence[SourceOffsets],
    brought: CheckpointSnapshot,
    again: _Again | None,
    kept: KafkaRetention | None,
    to_end: bool,
) -> _Coming:
    """Return what is read from positions on.

    Args:
        starts: The positions.
        brought: The checkpoint that continues there.
        again: What a query has read from there on before; None when that is not known.
        kept: What Kafka has; None when it could not be asked.
        to_end: Whether all that Kafka has counts, not only what was read before.
    """
    known = {reading.source: reading for reading in again[0]} if again else {}
    inputs = dict(again[1]) if again else {}
    readings = []
    for one in starts:
        kind = reachability.source_kind(brought, one.source, one.end)
        reading = known.get(one.source)
        if reading is None or reading.kind != kind or (to_end and kind in ("Kafka", "number")):
            reading = positions.reading(one.source, one.end, _newest(one.end, kept), kind)
        readings.append(reading)
    return _Coming(tuple(readings), availability(readings, inputs, kept))


def _read_since(starts: Sequence[SourceOffsets], checkpoint: CheckpointSnapshot) -> _Again | None:
    """Return what a checkpoint has read from positions on; None when it has read nothing at all."""
    return read_again(checkpoint, {one.source: one.end for one in starts}) if checkpoint.offsets else None


def _read_by_origin(manifest: SavepointManifest) -> _Again | None:
    """Return what the checkpoint that a savepoint was made from has read since; None when it cannot be read."""
    try:
        files = open_reader(manifest.checkpoint)
        if logs.query_id(logs.decode("metadata", files.read("metadata"))) != manifest.query_id:
            return None
        return _read_since(manifest.sources, CheckpointSnapshot(files))
    except (OSError, CheckpointError):
        return None


def _newest(position: Any, kept: KafkaRetention | None) -> Any:
    parts = positions.kafka_parts(position)
    if not parts or kept is None:
        return position
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in parts.items():
        found.setdefault(topic, {})[str(number)] = max(offset, kept.next.get((topic, number), offset))
    return found


def _refused(
    checkpoint: CheckpointSnapshot | None,
    request: RewindRequest,
    world: RewindContext,
    coming: _Coming,
    steps: Sequence[Step],
) -> list[Refusal]:
    moves = [step for step in steps if isinstance(step, Move) and step.target.startswith(history.ASIDE)]
    running = refusals.running(checkpoint, request, world, moves) if checkpoint is not None else []
    return [*running, *refusals.losses(request, coming.available), *refusals.at_sink(request, world)]


def _of_another(checkpoint: CheckpointSnapshot, manifest: SavepointManifest) -> list[Refusal]:
    ids = query_ids(checkpoint)
    if not ids or manifest.query_id in ids:
        return []
    return [
        Refusal(
            f"The savepoint is of the query {manifest.query_id}, the checkpoint of {ids[-1]}.",
            "For a second query use `respool savepoint fork`, or say that this is meant with --other-query.",
        )
    ]


def _left_in_place(checkpoint: CheckpointSnapshot | None, brought: InstallSet) -> list[str]:
    """Return what of a checkpoint neither Spark nor the files that are brought in account for."""
    if checkpoint is None:
        return []
    names = {path.split("/")[0] for path in staying(install.safe_move_order(checkpoint), brought.paths)}
    return [f"Not Spark's, and left as it is: {_names(names)}."] if names else []


def _left_out(manifest: SavepointManifest) -> list[str]:
    names = {one.path for one in manifest.not_included}
    return [f"In the original checkpoint, but not in the savepoint: {_names(names)}."] if names else []


def _names(names: Collection[str]) -> str:
    shown = sorted(name if name.isprintable() else ascii(name)[1:-1] for name in names)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if shown[5:] else "")


def _run_step(checkpoint: CheckpointSnapshot | None, run: RunRecord | None) -> list[Step]:
    """Return what makes a checkpoint remember a pipeline."""
    if run is None:
        return []
    old = None
    if checkpoint is not None and checkpoint.files.facts([ownership.RUN]):
        old = checkpoint.files.read(ownership.RUN).decode()
    return [Replace(ownership.RUN, old, _json(asdict(run)))]


def _promoted_run(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> RunRecord | None:
    """Return the fork's pipeline with the output of the one whose checkpoint it becomes."""
    mine = ownership.read_run_record(fork.files)
    before = ownership.read_run_record(checkpoint.files) if checkpoint is not None else None
    if mine is None or before is None:
        return mine or before
    return replace(
        mine, sink=before.sink, sink_identity=before.sink_identity, on_replay=before.on_replay, output=before.output
    )


def _promotion_notes(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> list[str]:
    mine = ownership.read_run_record(fork.files)
    before = ownership.read_run_record(checkpoint.files) if checkpoint is not None else None
    notes = []
    ahead, behind = _apart(fork, checkpoint)
    if ahead:
        notes.append(f"The fork has read {ahead:,} records more than the pipeline: their results are the fork's alone.")
    if behind:
        notes.append(f"The pipeline has read {behind:,} records more than the fork: they are read again.")
    changes = (
        fingerprint.changed(before.fingerprint, mine.fingerprint) if mine is not None and before is not None else []
    )
    if changes:
        notes.append(f"The fork ran a changed pipeline: {summarize_changes(changes)}. Run it like that from now on.")
    if mine is not None and before is not None and mine.sink_identity != before.sink_identity:
        notes.append(
            f"What the fork wrote stays in {mine.sink}; from now on the pipeline writes to {before.sink} again, unless "
            "it is run with the fork's --sink-suffix. To bring earlier results there, use `respool reprocess`."
        )
    return notes


def _apart(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> tuple[int, int]:
    """Return how many records of Kafka a fork has read that a checkpoint has not, and the other way around."""
    if checkpoint is None or not checkpoint.offsets:
        return 0, 0
    theirs = checkpoint.newest_planned()
    both = [positions.reading(one.source, one.end, theirs.end(one.source)) for one in fork.newest_planned().sources]
    kafka = [one for one in both if one.kind == "Kafka"]
    ahead = sum(part.end - part.start for one in kafka for part in one.skipped)
    return ahead, sum(one.records or 0 for one in kafka)


def _journal(
    operation: Operation,
    name: str,
    request: RewindRequest,
    now: datetime,
    checkpoint: CheckpointSnapshot | None,
    query_id: str,
    left: LogEnds,
    origin: str,
) -> Journal:
    before = query_ids(checkpoint) if checkpoint is not None else ()
    newest = _NOTHING
    if checkpoint is not None:
        require_listed(checkpoint)
        newest = LogEnds(max(checkpoint.offsets, default=-1), max(checkpoint.commits, default=-1))
    return Journal(
        id=name,
        operation=operation,
        of=None,
        request=request.words,
        reason=request.reason,
        started=now,
        batch=left.offsets + 1 if left.commits == left.offsets else left.offsets,
        same_range=False,
        newest=newest,
        left=left,
        steps=(),
        query_ids=(*(one for one in before if one != query_id), query_id),
        asked=copy_identity(operation, origin),
    )


def _plan(
    watermark_ms: int,
    brought: InstallSet,
    world: RewindContext,
    coming: _Coming,
    found: Sequence[Refusal],
    notes: Sequence[str],
    journal: Journal,
) -> InstallPlan:
    aside = [move for move in journal.moves if move.target.startswith(f"{history.ASIDE}/")]
    return InstallPlan(
        batch=journal.batch,
        newest=journal.newest.offsets,
        readings=coming.readings,
        watermark_ms=watermark_ms,
        cargo=brought,
        aside=len(aside),
        aside_size=sum(move.size for move in aside),
        replay=world.replay,
        refusals=tuple(found),
        notes=(*notes, *coming.available.notes, *refusals.simultaneous(world)),
        journal=journal,
    )


def _is_sum(path: str) -> bool:
    return path.endswith(".crc") and ".tmp" not in path


def _json(facts: Any) -> str:
    return json.dumps(facts, indent=1) + "\n"
