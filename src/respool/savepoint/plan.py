"""Plan a restore, a fork, a promotion. Planning reads, and changes nothing."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from respool.checkpoint import claim, history, refusals, sources
from respool.checkpoint.claim import Fork, Run
from respool.checkpoint.model import SourceOffsets
from respool.checkpoint.plan import journal_id, query_ids, require_listed, sink_steps
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.refusals import Refusal
from respool.checkpoint.request import Kept, Request, World
from respool.checkpoint.sink import Replay
from respool.checkpoint.sources import Reading
from respool.checkpoint.steps import Journal, Left, Move, Operation, Replace, Step
from respool.errors import CheckpointError
from respool.fingerprint import in_short
from respool.savepoint import bring
from respool.savepoint.bring import Cargo
from respool.savepoint.manifest import Manifest
from respool.savepoint.store import Savepoint

_NOTHING = Left(-1, -1)


@dataclass(frozen=True)
class BringPlan:
    """A checkpoint that comes from elsewhere, before anything is copied.

    Attributes:
        batch: The batch that will run next.
        newest: The newest batch that was there; -1 for none.
        readings: What is read from there to where the query was, by source.
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
    readings: tuple[Reading, ...]
    watermark_ms: int
    cargo: Cargo
    aside: int
    aside_size: int
    replay: Replay | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    journal: Journal


def plan_restore(
    savepoint: Savepoint,
    checkpoint: Checkpoint | None,
    where: str,
    request: Request,
    world: World,
    other_query: bool = False,
) -> BringPlan:
    """Plan to put a checkpoint back to a savepoint.

    Args:
        savepoint: The savepoint.
        checkpoint: What is there now; None for a folder that is empty or not there.
        where: The checkpoint's folder or URL.
        request: What the user wants.
        world: What is known beside.
        other_query: Whether the checkpoint may be that of another query.
    """
    manifest = savepoint.manifest
    brought = cargo_of(savepoint, where, None)
    name = journal_id(world.now, manifest.next_batch)
    readings = _readings(manifest.sources, checkpoint, world.kept)
    steps = bring.steps(checkpoint, brought, name, sink_steps(request, world, name))
    if checkpoint is None or claim.last_run(checkpoint.files) is None:
        steps += _run_step(checkpoint, manifest.run)
    found = _refused(checkpoint, request, world, readings, steps)
    if checkpoint is not None and checkpoint.offsets and not other_query:
        found += _of_another(checkpoint, manifest)
    journal = _journal("restore", name, request, world.now, checkpoint, manifest.query_id, Left(*[manifest.batch] * 2))
    return _plan(manifest.watermark_ms, brought, world, readings, found, [], replace(journal, steps=tuple(steps)))


def plan_fork(savepoint: Savepoint, where: str, request: Request, world: World) -> BringPlan:
    """Plan a second query from a savepoint, in a folder that is empty or not there."""
    manifest = savepoint.manifest
    query_id = str(uuid4())
    brought = cargo_of(savepoint, where, query_id)
    name = journal_id(world.now, manifest.next_batch)
    steps = bring.steps(None, brought, name)
    steps += _run_step(None, manifest.run)
    mark = Fork(
        savepoint=manifest.name,
        location=savepoint.location,
        batch=manifest.batch,
        checkpoint=manifest.checkpoint,
        query_id=manifest.query_id,
        sink=manifest.run.sink if manifest.run else "",
        created=manifest.created.isoformat(),
    )
    steps.append(Replace(claim.FORK, None, _json(asdict(mark))))
    readings = _readings(manifest.sources, None, world.kept)
    journal = _journal("fork", name, request, world.now, None, query_id, Left(*[manifest.batch] * 2))
    found = refusals.losses(request, world, readings)
    return _plan(manifest.watermark_ms, brought, world, readings, found, [], replace(journal, steps=tuple(steps)))


def plan_promote(
    fork: Checkpoint, checkpoint: Checkpoint | None, where: str, request: Request, world: World, fork_runs: str | None
) -> BringPlan:
    """Plan to make a fork the checkpoint of the pipeline that it was forked from.

    Args:
        fork: The fork's checkpoint.
        checkpoint: What is there now; None for a folder that is empty or not there.
        where: The folder or URL of the pipeline's checkpoint.
        request: What the user wants.
        world: What is known beside.
        fork_runs: Who runs on the fork now, for people; None when nobody is known to.
    """
    require_listed(fork)
    mark = claim.fork_of(fork.files)
    if not fork.commits:
        raise CheckpointError(f"{fork.root} has no committed batch: there is nothing to promote. Run it first.")
    paths = [path for path in bring.in_order(fork) if not path.rpartition("/")[2].startswith(".") or _is_sum(path)]
    brought = bring.cargo(fork.files, None, paths, where, None)
    name = journal_id(world.now, fork.next_batch)
    steps = bring.steps(checkpoint, brought, name, sink_steps(request, world, name))
    steps += _run_step(checkpoint, _promoted_run(fork, checkpoint))
    ends = fork.newest_planned().sources
    readings = _readings(ends, None, world.kept)
    found = _refused(checkpoint, request, world, readings, steps)
    its_world = World(world.now, runs=fork_runs, ours=claim.last_run(fork.files) is not None)
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
    left = Left(fork.offsets[-1], fork.commits[-1])
    journal = _journal("promote", name, request, world.now, checkpoint, fork.query_id, left)
    watermark = max(fork.newest_planned().watermark_ms, fork.committed(fork.commits[-1]).next_watermark_ms)
    notes = _promotion_notes(fork, checkpoint, ends)
    return _plan(watermark, brought, world, readings, found, notes, replace(journal, steps=tuple(steps)))


def require_new(where: str, names: Sequence[str]) -> None:
    """Raise CheckpointError when a fork is to go where something is."""
    if names:
        shown = ", ".join(sorted(names)[:4]) + (" …" if names[4:] else "")
        raise CheckpointError(
            f"{where} is not empty: it holds {shown}. A fork needs a folder of its own; name a new one. "
            "Nothing was changed."
        )


def cargo_of(savepoint: Savepoint, where: str, query_id: str | None) -> Cargo:
    """Return what a savepoint brings into a folder, for a query with this id; None for that of its own."""
    files = savepoint.manifest.files
    return bring.cargo(savepoint.files(), files, [one.path for one in files], where, query_id)


def _readings(ends: Sequence[SourceOffsets], checkpoint: Checkpoint | None, kept: Kept | None) -> tuple[Reading, ...]:
    """Return what lies between positions and where a checkpoint is; without one, and all that Kafka has since."""
    now = checkpoint.newest_planned() if checkpoint is not None and checkpoint.offsets else None
    upto = {one.source: now.end(one.source) if now else _newest(one.end, kept) for one in ends}
    return tuple(sources.reading(one.source, one.end, upto[one.source]) for one in ends)


def _newest(position: Any, kept: Kept | None) -> Any:
    parts = sources.kafka_parts(position)
    if not parts or kept is None:
        return position
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in parts.items():
        found.setdefault(topic, {})[str(number)] = kept.next.get((topic, number), offset)
    return found


def _refused(
    checkpoint: Checkpoint | None, request: Request, world: World, readings: Sequence[Reading], steps: Sequence[Step]
) -> list[Refusal]:
    moves = [step for step in steps if isinstance(step, Move) and step.target.startswith(history.ASIDE)]
    running = refusals.running(checkpoint, request, world, moves) if checkpoint is not None else []
    return [*running, *refusals.losses(request, world, readings), *refusals.at_sink(request, world)]


def _of_another(checkpoint: Checkpoint, manifest: Manifest) -> list[Refusal]:
    ids = query_ids(checkpoint)
    if not ids or manifest.query_id in ids:
        return []
    return [
        Refusal(
            f"The savepoint is of the query {manifest.query_id}, the checkpoint of {ids[-1]}.",
            "For a second query use `respool savepoint fork`, or say that this is meant with --other-query.",
        )
    ]


def _run_step(checkpoint: Checkpoint | None, run: Run | None) -> list[Step]:
    """Return what makes a checkpoint remember a pipeline."""
    if run is None:
        return []
    old = None
    if checkpoint is not None and checkpoint.files.facts([claim.RUN]):
        old = checkpoint.files.read(claim.RUN).decode()
    return [Replace(claim.RUN, old, _json(asdict(run)))]


def _promoted_run(fork: Checkpoint, checkpoint: Checkpoint | None) -> Run | None:
    """Return the fork's pipeline with the output of the one whose checkpoint it becomes."""
    mine = claim.last_run(fork.files)
    before = claim.last_run(checkpoint.files) if checkpoint is not None else None
    if mine is None or before is None:
        return mine or before
    return replace(mine, sink=before.sink, on_replay=before.on_replay, output=before.output)


def _promotion_notes(fork: Checkpoint, checkpoint: Checkpoint | None, ends: Sequence[SourceOffsets]) -> list[str]:
    mine = claim.last_run(fork.files)
    before = claim.last_run(checkpoint.files) if checkpoint is not None else None
    notes = []
    ahead = _ahead(ends, checkpoint)
    if ahead > 0:
        notes.append(f"The fork has read {ahead:,} records more than the pipeline: their results are the fork's alone.")
    if ahead < 0:
        notes.append(f"The pipeline has read {-ahead:,} records more than the fork: they are read again.")
    changes = claim.changed(before.fingerprint, mine.fingerprint) if mine is not None and before is not None else []
    if changes:
        notes.append(f"The fork ran a changed pipeline: {in_short(changes)}. Run it like that from now on.")
    if mine is not None and before is not None and mine.sink != before.sink:
        notes.append(
            f"What the fork wrote stays in {mine.sink}; from now on the pipeline writes to {before.sink} again, unless "
            "it is run with the fork's --sink-suffix. To bring earlier results there, use `respool reprocess`."
        )
    return notes


def _ahead(ends: Sequence[SourceOffsets], checkpoint: Checkpoint | None) -> int:
    """Return how many records of Kafka lie between a checkpoint and positions beyond it; negative for before it."""
    if checkpoint is None or not checkpoint.offsets:
        return 0
    now = checkpoint.newest_planned()
    mine = {part: offset for one in ends for part, offset in sources.kafka_parts(one.end).items()}
    theirs = {part: offset for one in now.sources for part, offset in sources.kafka_parts(one.end).items()}
    return sum(offset - theirs.get(part, 0) for part, offset in mine.items())


def _journal(
    operation: Operation,
    name: str,
    request: Request,
    now: datetime,
    checkpoint: Checkpoint | None,
    query_id: str,
    left: Left,
) -> Journal:
    before = query_ids(checkpoint) if checkpoint is not None else ()
    newest = _NOTHING
    if checkpoint is not None:
        require_listed(checkpoint)
        newest = Left(max(checkpoint.offsets, default=-1), max(checkpoint.commits, default=-1))
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
    )


def _plan(
    watermark_ms: int,
    brought: Cargo,
    world: World,
    readings: tuple[Reading, ...],
    found: Sequence[Refusal],
    notes: Sequence[str],
    journal: Journal,
) -> BringPlan:
    aside = [move for move in journal.moves if move.target.startswith(f"{history.ASIDE}/")]
    unasked = world.kept is None and any(one.kind == "Kafka" for one in readings)
    asking = "No Kafka broker was asked whether it still has these records. Name it with --bootstrap-servers."
    return BringPlan(
        batch=journal.batch,
        newest=journal.newest.offsets,
        readings=readings,
        watermark_ms=watermark_ms,
        cargo=brought,
        aside=len(aside),
        aside_size=sum(move.size for move in aside),
        replay=world.replay,
        refusals=tuple(found),
        notes=(*notes, *([asking] if unasked else [])),
        journal=journal,
    )


def _is_sum(path: str) -> bool:
    return path.endswith(".crc") and ".tmp" not in path


def _json(facts: Any) -> str:
    return json.dumps(facts, indent=1) + "\n"
