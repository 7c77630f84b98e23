"""Plan to make a fork the checkpoint of the pipeline that it was forked from."""

from collections.abc import Sequence
from dataclasses import replace

from respool.checkpoint import ownership
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import LogEnds, journal_id
from respool.checkpoint.ownership import RunRecord
from respool.checkpoint.planning import refusals
from respool.checkpoint.planning.refusals import sink_steps
from respool.checkpoint.planning.request import RewindContext, RewindRequest
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed
from respool.errors import CheckpointError, Refusal
from respool.format import positions
from respool.pipeline import fingerprint
from respool.pipeline.fingerprint import summarize_changes
from respool.savepoint import install
from respool.savepoint.placement import require_place
from respool.savepoint.planning import (
    PlannedInstall,
    install_journal,
    install_plan,
    install_refusals,
    pending_reads,
    read_since,
    run_record_steps,
)
from respool.storage.local_lock import Process
from respool.text import plural


def plan_promote(
    fork: CheckpointSnapshot,
    checkpoint: CheckpointSnapshot | None,
    location: str,
    request: RewindRequest,
    context: RewindContext,
    fork_runs: str | None,
    fork_processes: Sequence[Process] = (),
) -> PlannedInstall:
    """Plan to make a fork the checkpoint of the pipeline that it was forked from.

    Args:
        fork: The fork's checkpoint.
        checkpoint: The pipeline's checkpoint as it is now; None when the folder is empty or missing.
        location: The folder or URL of the pipeline's checkpoint.
        request: What the user wants.
        context: What else the plan is made from.
        fork_runs: Who runs the fork now, human-readable; None when nobody is known to.
        fork_processes: Other processes of this machine that have files of the fork open.
    """
    require_place(location)
    require_listed(fork)
    if not fork.commits:
        raise CheckpointError(f"{fork.root} has no committed batch, so there is nothing to promote. Run it first.")
    paths = [path for path in install.safe_move_order(fork) if not _is_hidden(path) or _is_checksum(path)]
    install_set = install.install_set(fork.files, None, paths, location, None)
    name = journal_id(context.now, fork.next_batch)
    steps = install.steps(checkpoint, install_set, name, sink_steps(request, context, name))
    steps += run_record_steps(checkpoint, _promoted_run(fork, checkpoint))
    # A batch that is not committed runs again: its reads start where the batch before it ended.
    ends = fork.planned(max(batch for batch in fork.offsets if batch < fork.next_batch)).sources
    reads = pending_reads(ends, fork, read_since(ends, fork), context.kept, to_end=True)
    refused = [
        *install_refusals(checkpoint, request, context, reads, steps),
        *_fork_running(fork, request, context, fork_runs, fork_processes),
        *_not_a_fork(fork, checkpoint, location),
    ]
    left = LogEnds(fork.offsets[-1], fork.commits[-1])
    now, query_id = context.now, fork.query_id
    journal = install_journal("promote", name, request, now, checkpoint, query_id, left, fork.root, steps)
    watermark = max(fork.newest_planned().watermark_ms, fork.committed(fork.commits[-1]).next_watermark_ms)
    notes = [*_notes(fork, checkpoint), *refusals.open_files(request, context)]
    return install_plan(watermark, install_set, context, reads, refused, notes, journal)


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".")


def _is_checksum(path: str) -> bool:
    return path.endswith(".crc") and ".tmp" not in path


def _fork_running(
    fork: CheckpointSnapshot,
    request: RewindRequest,
    context: RewindContext,
    runs: str | None,
    processes: Sequence[Process],
) -> list[Refusal]:
    ours = ownership.read_run_record(fork.files) is not None
    of_fork = RewindContext(context.now, runs=runs, ours=ours, processes=tuple(processes))
    running = refusals.running(fork, request, of_fork, [])
    return [Refusal(f"The fork: {refusal.why}", refusal.way_out) for refusal in running]


def _not_a_fork(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None, location: str) -> list[Refusal]:
    record = ownership.fork_of(fork.files)
    if record is not None and (checkpoint is None or record.query_id in query_ids(checkpoint)):
        return []
    why = f"of the query that owns {location}; it was forked from {record.query_id}" if record else "created by respool"
    return [
        Refusal(
            f"{fork.root} is not a fork {why}.",
            "Name a fork of this checkpoint, created by `respool savepoint fork`.",
        )
    ]


def _promoted_run(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> RunRecord | None:
    """Return the fork's pipeline with the output of the pipeline whose checkpoint it replaces."""
    mine = ownership.read_run_record(fork.files)
    before = ownership.read_run_record(checkpoint.files) if checkpoint is not None else None
    if mine is None or before is None:
        return mine or before
    return replace(
        mine, sink=before.sink, sink_identity=before.sink_identity, on_replay=before.on_replay, output=before.output
    )


def _notes(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> list[str]:
    mine = ownership.read_run_record(fork.files)
    before = ownership.read_run_record(checkpoint.files) if checkpoint is not None else None
    notes = []
    ahead, behind = _records_apart(fork, checkpoint)
    if ahead:
        notes.append(
            f"The fork has read {plural(ahead, 'record')} more than the pipeline: only the fork has results of them."
        )
    if behind:
        notes.append(f"The pipeline has read {plural(behind, 'record')} more than the fork: they are read again.")
    if mine is None or before is None:
        return notes
    changes = fingerprint.changed(before.fingerprint, mine.fingerprint)
    if changes:
        notes.append(f"The fork ran a changed pipeline: {summarize_changes(changes)}. Run that pipeline from now on.")
    if mine.sink_identity != before.sink_identity:
        notes.append(
            f"What the fork wrote stays in {mine.sink}; from now on the pipeline writes to {before.sink} again, unless "
            "it is run with the fork's --sink-suffix. To publish earlier results there, use `respool reprocess`."
        )
    return notes


def _records_apart(fork: CheckpointSnapshot, checkpoint: CheckpointSnapshot | None) -> tuple[int, int]:
    """Return how many Kafka records the fork has read that the checkpoint has not, and the other way around."""
    if checkpoint is None or not checkpoint.offsets:
        return 0, 0
    theirs = checkpoint.newest_planned()
    sources = fork.newest_planned().sources
    readings = [positions.reading(source.source, source.end, theirs.end(source.source)) for source in sources]
    kafka = [reading for reading in readings if reading.kind == "Kafka"]
    ahead = sum(part.end - part.start for reading in kafka for part in reading.skipped)
    return ahead, sum(reading.records or 0 for reading in kafka)
