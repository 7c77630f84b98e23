"""Reasons that refuse a rewind, and notes for the user."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from respool.checkpoint.journal import history
from respool.checkpoint.journal.steps import Move, Restore, Step
from respool.checkpoint.planning.request import RewindContext, RewindRequest
from respool.checkpoint.planning.sources import Availability, SourceLogTrim
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.delta.restore import RestoreTable
from respool.errors import Refusal
from respool.sinks.address import MoveSinkFiles, ReplayOutcome


def sink_steps(request: RewindRequest, context: RewindContext, name: str) -> list[Step]:
    """Return the steps that restore the sinks, if the request includes it."""
    if not request.restore_sink:
        return []
    steps: list[Step] = []
    for replay in context.replay.every if context.replay else ():
        match replay.restore:
            case RestoreTable():
                steps.append(Restore(replay.restore))
            case MoveSinkFiles(folder, files):
                steps += [Move(path, f"{history.ASIDE}/{name}/{path}", 0, folder) for path in files]
            case None:
                pass
    return steps


_QUIET_SECONDS = 60  # without a write after which a query counts as stopped: Spark's maintenance interval


def refusals(
    checkpoint: CheckpointSnapshot,
    request: RewindRequest,
    context: RewindContext,
    available: Availability,
    moves: Sequence[Move],
) -> list[Refusal]:
    """Return why a rewind is refused; flags of the request waive some reasons."""
    reasons = [*running(checkpoint, request, context, moves), *losses(request, available), *at_sink(request, context)]
    if "metadata" not in checkpoint.folders[""] and not request.new_query_id:
        reasons.append(
            Refusal(
                "The file metadata, which holds the query's id, is lost: Spark will not start without it.",
                "Restore it from a copy, or give the query a new id with --new-query-id.",
            )
        )
    return reasons


def running(
    checkpoint: CheckpointSnapshot, request: RewindRequest, context: RewindContext, moves: Sequence[Move]
) -> list[Refusal]:
    """Return why a checkpoint must not be changed because its query runs, or may run.

    Where respool runs the query, its lock is authoritative. Elsewhere `--stopped` overrides every sign of a running
    query, except a process that has a file of the checkpoint open for writing.
    """
    if context.runs:
        return [Refusal(f"The query runs: {context.runs}.", "Stop it first.")]
    if context.ours:
        return []
    writers = [
        Refusal(f"The query may be running: {process.text()}.", "Stop that process first.")
        for process in context.processes
        if process.writes
    ]
    return writers if request.stopped else [*writers, *_may_run(checkpoint, context, moves)]


def _may_run(checkpoint: CheckpointSnapshot, context: RewindContext, moves: Sequence[Move]) -> list[Refusal]:
    """Return the signs that a query runs that respool did not start."""
    hints = [
        Refusal(
            f"The query may be running: {process.text()}.",
            "Stop that process if it is the query's; if the query has ended, confirm that with --stopped.",
        )
        for process in context.processes
        if not process.writes
    ]
    newest, committed = max(checkpoint.offsets, default=-1), max(checkpoint.commits, default=-1)
    if newest > committed:
        hints.append(
            Refusal(
                f"Batch {newest} is planned but not committed: the query may be running it, or has ended within it, "
                "as after a crash.",
                "Stop the query's application; if it has ended, confirm that with --stopped.",
            )
        )
        return hints
    age = _last_write(checkpoint, moves, context.now)
    if age is not None and age < _QUIET_SECONDS:
        hints.append(
            Refusal(
                f"The checkpoint was written to {max(age, 0):.0f} seconds ago: its query may run.",
                f"Stop the query's application and wait for {_QUIET_SECONDS} seconds, or confirm with --stopped that "
                "it has ended.",
            )
        )
    return hints


def losses(request: RewindRequest, available: Availability) -> Sequence[Refusal]:
    """Return which records that will be read the sources no longer have."""
    return () if request.allow_data_loss else available.refusals


def at_sink(request: RewindRequest, context: RewindContext) -> list[Refusal]:
    """Return why a sink would reject or skip the replayed batches."""
    return [
        Refusal(replay.blocked, replay.remedy or "Write to another location.")
        for replay in (context.replay.every if context.replay else ())
        if replay.blocked and not _is_solved_by_restore(request, replay)
    ]


def _is_solved_by_restore(request: RewindRequest, replay: ReplayOutcome) -> bool:
    return request.restore_sink and replay.restore is not None


def _last_write(checkpoint: CheckpointSnapshot, moves: Sequence[Move], now: datetime) -> float | None:
    """Return the seconds since the newest batch's files, and those that would move, were written."""
    newest = [f"offsets/{batch}" for batch in checkpoint.offsets[-1:]] + [
        f"commits/{batch}" for batch in checkpoint.commits[-1:]
    ]
    facts = checkpoint.files.facts([*newest, *(move.source for move in moves)])
    times = [info.modified for info in facts.values() if info.modified is not None]
    return now.timestamp() - max(times) if times else None


def simultaneous(context: RewindContext) -> list[str]:
    """Return a note about a store on which two changes could start at the same time."""
    if context.exclusive:
        return []
    why = (
        "the store of this checkpoint does not support conditional writes (such as If-None-Match on S3)"
        if context.exclusive is False
        else "whether the store of this checkpoint supports conditional writes could not be determined"
    )
    return [
        f"Two simultaneous changes cannot be excluded: {why}. Make sure that no other command changes it meanwhile."
    ]


def notes(
    request: RewindRequest,
    context: RewindContext,
    available: Availability,
    damaged: Mapping[str, str],
    trims: Mapping[str, SourceLogTrim],
) -> list[str]:
    """Return the notes of a rewind."""
    result = [f"{why}. It is moved to _respool/aside; older files replace it." for _, why in sorted(damaged.items())]
    if any(trim.kept_whole for trim in trims.values()):
        result.append("The log of input files was compacted since: all files to be read again are read in one batch.")
    if request.same_range:
        result.append("Later batches are planned again.")
    return [*result, *available.notes, *open_files(request, context), *simultaneous(context)]


def open_files(request: RewindRequest, context: RewindContext) -> list[str]:
    """Return which processes read files of the checkpoint though the user has confirmed that the query has ended."""
    if context.ours or not request.stopped:
        return []
    return [f"Though the query has ended, {process.text()}." for process in context.processes if not process.writes]
