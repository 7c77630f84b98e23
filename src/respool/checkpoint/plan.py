"""Plan a rewind. Planning reads, and changes nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from respool.checkpoint import file_log, history, logs, provenance, sources, target
from respool.checkpoint.availability import availability
from respool.checkpoint.moves import kind, moves
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.refusals import notes, refusals
from respool.checkpoint.request import Request, World
from respool.checkpoint.sink import MoveSinkFiles, Replay, RestoreTable
from respool.checkpoint.sources import Reading
from respool.checkpoint.steps import Journal, Left, Move, Prune, Replace, Restore, Step
from respool.errors import CheckpointError, Refusal, UnreadableFileError

_MOST_AGAIN = 10_000_000  # batches that run again; at one each second, four months of them


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
    if newest - batch > _MOST_AGAIN:
        raise CheckpointError(
            f"offsets/{newest} is {newest - batch:,} batches after batch {batch}; at most {_MOST_AGAIN:,} were "
            "expected. Is that file of another query? Move it away if it is. Nothing was changed."
        )
    if request.same_range and batch > newest:
        raise CheckpointError(f"Batch {batch} has no range yet: it was not planned. Leave --same-range out.")
    _require_reachable(checkpoint, batch, request.same_range)
    _, damaged = target.loads(checkpoint, batch)
    before = checkpoint.planned(batch - 1) if batch > 0 else None
    starts = {
        one.source: before.end(one.source) if before else target.beginning(checkpoint, one.source)
        for one in checkpoint.newest_planned().sources
    }
    readings, inputs = read_again(checkpoint, starts)
    available = availability(readings, inputs, world.kept)
    trims = {
        source: file_log.trim(checkpoint, source, _log_end(checkpoint, batch, source, request.same_range))
        for source in inputs
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
        asked=request.identity(),
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
        refusals=tuple(refusals(checkpoint, request, world, available, aside)),
        notes=(*_untested(checkpoint, batch), *notes(request, world, available, damaged, trims)),
        journal=journal,
    )


def _untested(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Return what to know of a Spark that respool is not tested with, and that wrote what the query starts from."""
    before = [checkpoint.planned(batch - 1)] if batch > 0 else []
    writers = (provenance.writer_of(one) for one in (*before, checkpoint.newest_planned()))
    return [warning for one in writers if (warning := one.warning) is not None][:1]


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
    """Raise CheckpointError when something in the checkpoint cannot be read: what is not seen cannot be planned for."""
    for path, why in checkpoint.listing.unreadable.items():
        raise UnreadableFileError(path or checkpoint.root, f"cannot be read: {why}", "Nothing was changed.")


def _require_reachable(checkpoint: Checkpoint, batch: int, same_range: bool) -> None:
    why = target.obstacle(checkpoint, batch, same_range)
    if why is None:
        return
    batches = target.reachable_text(checkpoint, same_range)
    if batches:
        step = f"Batches that can: {batches}."
    elif same_range:
        step = "No kept batch can be run on the records that it had; leave --same-range out to have it planned anew."
    else:
        step = "No kept batch can; --to-batch 0 starts over."
    if checkpoint.unknown_provider is not None:
        step = "Which batches can is not known."
    raise CheckpointError(f"Batch {batch} cannot be rewound to: {why}. {step} Nothing was changed.")


def read_again(
    checkpoint: Checkpoint, starts: Mapping[str, Any]
) -> tuple[tuple[Reading, ...], Mapping[str, file_log.Inputs]]:
    """Return what lies between positions and where a checkpoint is, by source, and the input files among it.

    Args:
        checkpoint: The checkpoint that has read it.
        starts: The position of each source from which it will be read; None for its beginning.
    """
    newest = checkpoint.newest_planned()
    readings, inputs = [], {}
    for source, start in starts.items():
        end = newest.end(source)
        kind = target.source_kind(checkpoint, source, end if end is not None else start)
        reading = sources.reading(source, start, end, kind)
        if kind == "files":
            inputs[source] = file_log.inputs(checkpoint, source, _log_number(start), _log_number(end))
            reading = replace(reading, files=len(inputs[source].paths))
        readings.append(reading)
    return tuple(readings), inputs


def _log_end(checkpoint: Checkpoint, batch: int, source: str, same_range: bool) -> int:
    last = batch if same_range else batch - 1
    return _log_number(checkpoint.planned(last).end(source) if last >= 0 else None)


def _log_number(position: Any) -> int:
    """Return the newest log entry that a source of files has read; -1 for none."""
    return int(position["logOffset"]) if sources.kind_of(position) == "files" else -1


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
