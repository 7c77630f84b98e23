"""Plan a rewind. Planning reads, and changes nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from respool.checkpoint import reachability
from respool.checkpoint.journal import history
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Prune, Replace, Step, journal_id
from respool.checkpoint.planning import request as planning_request
from respool.checkpoint.planning import sources
from respool.checkpoint.planning.refusals import notes, refusals, sink_steps
from respool.checkpoint.planning.request import RewindContext, RewindRequest
from respool.checkpoint.planning.sources import SourceLogTrim, availability
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed, with_companions
from respool.errors import CheckpointError, Refusal
from respool.format import layout, logs, model, positions
from respool.format.model import SNAPSHOTS
from respool.format.positions import SourceRange
from respool.sinks.address import ReplayOutcome
from respool.text import plural

_STATE_KINDS = {"zip": "zips", "changelog": "changelogs", "delta": "deltas", "snapshot": "snapshots", "sst": "SSTs"}


def moves(
    checkpoint: CheckpointSnapshot,
    batch: int,
    same_range: bool,
    damaged: Mapping[str, str],
    trims: Mapping[str, SourceLogTrim],
    name: str,
) -> list[Move]:
    """Return the moves, in the safest order: state before commits before offsets, the newest first."""
    paths = _state_paths(checkpoint, batch, damaged)
    paths += [path for first, path in reversed(layout.run_files(checkpoint.folders)) if first >= batch > 0]
    paths += [f"commits/{number}" for number in reversed(checkpoint.commits) if number >= batch]
    paths += [
        f"offsets/{number}" for number in reversed(checkpoint.offsets) if number >= batch + (1 if same_range else 0)
    ]
    paths += [path for trim in trims.values() for path in trim.moves]
    whole = with_companions(checkpoint, paths)
    facts = checkpoint.files.facts(whole)
    aside = f"{history.ASIDE}/{name}/"
    return [Move(path, aside + path, facts[path].size) for path in whole if path in facts]


def _state_paths(checkpoint: CheckpointSnapshot, batch: int, damaged: Mapping[str, str]) -> list[str]:
    if batch == 0:
        inside = [f for f in checkpoint.folders if f == "state" or f.startswith("state/")]
        return [f"{folder}/{name}" for folder in inside for name in checkpoint.folders[folder]]
    later = [
        (file.kind not in SNAPSHOTS, -file.version, f"{store.folder}/{file.name}")
        for store in checkpoint.stores
        for file in store.files
        if file.version > batch
    ]
    strange = [f"{store.folder}/{name}" for store in checkpoint.stores for name in store.strange]
    return [*strange, *sorted(damaged), *(path for *_, path in sorted(later))]


def file_label(path: str) -> str:
    """Return the kind of a file, for the plan's summary."""
    folder, _, name = path.rpartition("/")
    if layout.is_companion(name):
        return "checksums"
    if folder in ("offsets", "commits"):
        return folder
    if folder.startswith("sources/"):
        return "source log"
    return _STATE_KINDS.get(name.rpartition(".")[2], "state metadata")


_MOST_AGAIN = 10_000_000  # batches that run again; at one batch a second, four months


@dataclass(frozen=True)
class PlannedRewind:
    """A rewind, before anything moves.

    Attributes:
        batch: The batch that will run next.
        again: The newest batch: all batches from `batch` to it will run again.
        readings: What they will read again, by source.
        watermark_ms: The watermark at which they start.
        state_version: The state version from which they start; None for a query without state.
        kinds: How many files of each kind move.
        size: How many bytes move.
        replay: What the sink will do with the replayed batches; None when it is unknown.
        refusals: Why the plan must not be applied.
        notes: Remarks for the user.
        journal: The change.
    """

    batch: int
    again: int
    readings: tuple[SourceRange, ...]
    watermark_ms: int
    state_version: int | None
    kinds: Mapping[str, int]
    size: int
    replay: ReplayOutcome | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    journal: Journal


def plan_rewind(checkpoint: CheckpointSnapshot, request: RewindRequest, context: RewindContext) -> PlannedRewind:
    """Plan a rewind; raise CheckpointError when the target cannot be reached."""
    batch = _next_batch(checkpoint, request)
    newest = checkpoint.offsets[-1]
    _, damaged = reachability.state_loads(checkpoint, batch)
    before = checkpoint.planned(batch - 1) if batch > 0 else None
    starts = {
        source.source: before.end(source.source) if before else reachability.initial_position(checkpoint, source.source)
        for source in checkpoint.newest_planned().sources
    }
    readings, inputs = read_again(checkpoint, starts)
    available = availability(readings, inputs, context.kept)
    trims = {
        source: sources.trim(checkpoint, source, _log_end(checkpoint, batch, source, request.same_range))
        for source in inputs
    }
    name = journal_id(context.now, batch)
    aside = moves(checkpoint, batch, request.same_range, damaged, trims, name)
    steps: list[Step] = [*aside, *sink_steps(request, context, name), *_id_step(checkpoint, request, context.replay)]
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
        started=context.now,
        batch=batch,
        same_range=request.same_range,
        newest=LogEnds(newest, commits[-1] if commits else -1),
        left=LogEnds(min(kept_offsets, newest), max((number for number in commits if number < batch), default=-1)),
        steps=tuple(steps),
        query_ids=query_ids(checkpoint),
        asked=request.identity(),
    )
    return PlannedRewind(
        batch=batch,
        again=newest,
        readings=readings,
        watermark_ms=_watermark(checkpoint, batch, request.same_range),
        state_version=batch if checkpoint.stores else None,
        kinds=Counter(file_label(move.source) for move in aside),
        size=sum(move.size for move in aside),
        replay=context.replay,
        refusals=tuple(refusals(checkpoint, request, context, available, aside)),
        notes=(*_untested(checkpoint, batch), *notes(request, context, available, damaged, trims)),
        journal=journal,
    )


def _next_batch(checkpoint: CheckpointSnapshot, request: RewindRequest) -> int:
    """Return the batch that a request selects; raise CheckpointError when it cannot be reached."""
    require_listed(checkpoint)
    batch = planning_request.resolve(checkpoint, request.target)
    newest = checkpoint.offsets[-1]
    if newest - batch > _MOST_AGAIN:
        raise CheckpointError(
            f"offsets/{newest} is {plural(newest - batch, 'batch', 'batches')} after batch {batch}; at most "
            f"{_MOST_AGAIN:,} were "
            "expected. Is that file of another query? Move it away if it is. Nothing was changed."
        )
    if request.same_range and batch > newest:
        raise CheckpointError(f"Batch {batch} has no range yet: it was not planned. Leave --same-range out.")
    _require_reachable(checkpoint, batch, request.same_range)
    return batch


def _untested(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return a warning when an untested Spark version wrote the batch that the query starts from."""
    before = [checkpoint.planned(batch - 1)] if batch > 0 else []
    writers = (model.writer_of(entry) for entry in (*before, checkpoint.newest_planned()))
    return [warning for writer in writers if (warning := writer.warning) is not None][:1]


def _require_reachable(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> None:
    why = reachability.why_unreachable(checkpoint, batch, same_range)
    if why is None:
        return
    batches = reachability.reachable_text(checkpoint, same_range)
    if batches:
        step = f"Batches that can: {batches}."
    elif same_range:
        step = "No kept batch can be run on the records that it had; leave --same-range out to plan it again."
    else:
        step = "No kept batch can; --to-batch 0 starts over."
    if checkpoint.unknown_provider is not None:
        step = "Which batches can be rewound to is unknown."
    raise CheckpointError(f"Batch {batch} cannot be rewound to: {why}. {step} Nothing was changed.")


def read_again(
    checkpoint: CheckpointSnapshot, starts: Mapping[str, Any]
) -> tuple[tuple[SourceRange, ...], Mapping[str, sources.Inputs]]:
    """Return the ranges between positions and the newest batch of a checkpoint, by source, and their input files.

    Args:
        checkpoint: The checkpoint of the query that has read them.
        starts: The position of each source from which it will be read; None for its initial position.
    """
    newest = checkpoint.newest_planned()
    readings, inputs = [], {}
    for source, start in starts.items():
        end = newest.end(source)
        kind = reachability.source_kind(checkpoint, source, end if end is not None else start)
        reading = positions.reading(source, start, end, kind)
        if kind == "files":
            inputs[source] = sources.inputs(checkpoint, source, _log_number(start), _log_number(end))
            reading = replace(reading, files=len(inputs[source].paths))
        readings.append(reading)
    return tuple(readings), inputs


def _log_end(checkpoint: CheckpointSnapshot, batch: int, source: str, same_range: bool) -> int:
    last = batch if same_range else batch - 1
    return _log_number(checkpoint.planned(last).end(source) if last >= 0 else None)


def _log_number(position: Any) -> int:
    """Return the newest log entry that a source of files has read; -1 if it has read none."""
    return int(position["logOffset"]) if positions.kind_of(position) == "files" else -1


def _watermark(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> int:
    if same_range:
        return checkpoint.planned(batch).watermark_ms
    if batch == 0:
        return 0
    return max(checkpoint.planned(batch - 1).watermark_ms, checkpoint.committed(batch - 1).next_watermark_ms)


def _id_step(checkpoint: CheckpointSnapshot, request: RewindRequest, replay: ReplayOutcome | None) -> list[Step]:
    wanted = request.new_query_id or (request.restore_sink and replay is not None and replay.new_query_id)
    if not wanted:
        return []
    old = None
    if "metadata" in checkpoint.folders[""]:
        old = checkpoint.files.read("metadata").decode(errors="replace")
    return [Replace("metadata", old, logs.metadata(str(uuid4())))]
