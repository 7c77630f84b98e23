"""Plan a rewind. Planning reads, and changes nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from respool.checkpoint import file_log, history, logs, sources, target
from respool.checkpoint.moves import kind, moves
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.refusals import Refusal, notes, refusals
from respool.checkpoint.request import Request, World
from respool.checkpoint.sink import MoveSinkFiles, Replay, RestoreTable
from respool.checkpoint.sources import Reading
from respool.checkpoint.steps import Journal, Left, Move, Prune, Replace, Restore, Step
from respool.errors import CheckpointError


@dataclass(frozen=True)
class RewindPlan:
    """A rewind, before anything moves.

    Attributes:
        batch: The batch that will run next.
        again: The newest batch there was: all from `batch` to it will run again.
        readings: What they will read again, by source.
        watermark_ms: The watermark at which they start.
        state_version: The version of the state from which they start; None for a query without state.
        kinds: How many files of each kind move.
        size: How many bytes move.
        replay: What the sink will do; None when it is not known.
        refusals: Why it must not be done as it is.
        notes: What else to know.
        journal: What will be done.
    """

    batch: int
    again: int
    readings: tuple[Reading, ...]
    watermark_ms: int
    state_version: int | None
    kinds: Mapping[str, int]
    size: int
    replay: Replay | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    journal: Journal


def plan_rewind(checkpoint: Checkpoint, request: Request, world: World) -> RewindPlan:
    """Plan a rewind; raise CheckpointError when the target cannot be reached at all."""
    require_listed(checkpoint)
    batch = target.resolve(checkpoint, request.target)
    newest = checkpoint.offsets[-1]
    if request.same_range and batch > newest:
        raise CheckpointError(f"Batch {batch} has no range yet: it was not planned. Leave --same-range out.")
    _require_reachable(checkpoint, batch, request.same_range)
    _, damaged = target.loads(checkpoint, batch)
    readings = _readings(checkpoint, batch)
    trims = {
        one.source: file_log.trim(checkpoint, one.source, _log_end(checkpoint, batch, one.source, request.same_range))
        for one in readings
        if one.kind == "files"
    }
    name = journal_id(world.now, batch)
    aside = moves(checkpoint, batch, request.same_range, damaged, trims, name)
    steps: list[Step] = [*aside, *sink_steps(request, world, name), *_id_step(checkpoint, request, world.replay)]
    if batch == 0:
        steps.append(Prune("state"))
    if not steps:
        raise CheckpointError(f"Batch {batch} is the next to run already: there is nothing to rewind.")
    kept_offsets = batch if request.same_range else batch - 1
    commits = checkpoint.commits
    journal = Journal(
        id=name,
        operation="rewind",
        of=None,
        request=request.words,
        reason=request.reason,
        started=world.now,
        batch=batch,
        same_range=request.same_range,
        newest=Left(newest, commits[-1] if commits else -1),
        left=Left(min(kept_offsets, newest), max((one for one in commits if one < batch), default=-1)),
        steps=tuple(steps),
        query_ids=query_ids(checkpoint),
    )
    return RewindPlan(
        batch=batch,
        again=newest,
        readings=readings,
        watermark_ms=_watermark(checkpoint, batch, request.same_range),
        state_version=batch if checkpoint.stores else None,
        kinds=Counter(kind(move.source) for move in aside),
        size=sum(move.size for move in aside),
        replay=world.replay,
        refusals=tuple(refusals(checkpoint, request, world, readings, trims, aside)),
        notes=tuple(notes(request, world, readings, damaged, trims)),
        journal=journal,
    )


def query_ids(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return all ids that the query had, the newest last: a rewind can give it a new one."""
    found: dict[str, None] = {}
    for one in history.past(checkpoint.files):
        found |= dict.fromkeys(one.query_ids)
    try:
        now = checkpoint.query_id
    except CheckpointError:
        return tuple(found)
    found.pop(now, None)
    return (*found, now)


def topics(checkpoint: Checkpoint) -> set[str]:
    """Return the Kafka topics that the query read in its newest batch."""
    if not checkpoint.offsets:
        return set()
    newest = checkpoint.newest_planned()
    return {topic for source in newest.sources for topic, _ in sources.kafka_parts(source.end)}


def require_listed(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError when a folder could not be listed: what is not seen cannot be planned for."""
    for folder, why in checkpoint.listing.unreadable.items():
        raise CheckpointError(f"The folder {folder or checkpoint.root} cannot be listed: {why}. Nothing was changed.")


def _require_reachable(checkpoint: Checkpoint, batch: int, same_range: bool) -> None:
    why = target.obstacle(checkpoint, batch, same_range)
    if why is None:
        return
    spans = ", ".join(
        str(s.first) if s.first == s.last else f"{s.first} to {s.last}"
        for s in target.reachable(checkpoint, same_range)
    )
    step = f"Batches that can: {spans}." if spans else "No kept batch can; --to-batch 0 starts over."
    raise CheckpointError(f"Batch {batch} cannot be rewound to: {why}. {step} Nothing was changed.")


def _readings(checkpoint: Checkpoint, batch: int) -> tuple[Reading, ...]:
    newest = checkpoint.newest_planned()
    before = checkpoint.planned(batch - 1) if batch > 0 else None
    found = []
    for one in newest.sources:
        start = before.end(one.source) if before else target.beginning(checkpoint, one.source)
        found.append(sources.reading(one.source, start, one.end))
    return tuple(found)


def _log_end(checkpoint: Checkpoint, batch: int, source: str, same_range: bool) -> int:
    last = batch if same_range else batch - 1
    end: Any = checkpoint.planned(last).end(source) if last >= 0 else None
    return int(end["logOffset"]) if sources.kind_of(end) == "files" else -1


def _watermark(checkpoint: Checkpoint, batch: int, same_range: bool) -> int:
    if same_range:
        return checkpoint.planned(batch).watermark_ms
    if batch == 0:
        return 0
    return max(checkpoint.planned(batch - 1).watermark_ms, checkpoint.committed(batch - 1).next_watermark_ms)


def sink_steps(request: Request, world: World, name: str) -> list[Step]:
    """Return the steps by which the sink follows, when that is wanted."""
    if not request.restore_sink:
        return []
    restore = world.replay.restore if world.replay else None
    match restore:
        case RestoreTable():
            return [Restore(restore)]
        case MoveSinkFiles(folder, files):
            return [Move(path, f"{history.ASIDE}/{name}/{path}", 0, folder) for path in files]
        case _:
            return []


def _id_step(checkpoint: Checkpoint, request: Request, replay: Replay | None) -> list[Step]:
    wanted = request.new_query_id or (request.restore_sink and replay is not None and replay.new_query_id)
    if not wanted:
        return []
    old = None
    if "metadata" in checkpoint.folders[""]:
        old = checkpoint.files.read("metadata").decode(errors="replace")
    return [Replace("metadata", old, logs.metadata(str(uuid4())))]


def journal_id(now: datetime, batch: int) -> str:
    """Return a name for a change: by its time, and the batch that it goes to."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S.%fZ}-{batch}"
