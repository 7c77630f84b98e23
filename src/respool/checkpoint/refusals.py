"""Why a rewind must not be done as it is, and what else to know of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from respool.checkpoint.availability import Availability
from respool.checkpoint.file_log import Trim
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.request import Request, World
from respool.checkpoint.sink import Replay
from respool.checkpoint.steps import Move
from respool.errors import Refusal

_QUIET_SECONDS = 60  # how long a query must have written nothing to count as stopped: Spark's maintenance interval


def refusals(
    checkpoint: Checkpoint, request: Request, world: World, available: Availability, moves: Sequence[Move]
) -> list[Refusal]:
    """Return why a rewind is refused; a flag of the request takes a reason away."""
    found = [*running(checkpoint, request, world, moves), *losses(request, available), *at_sink(request, world)]
    if "metadata" not in checkpoint.folders[""] and not request.new_query_id:
        found.append(
            Refusal(
                "The file metadata, which holds the query's id, is lost: Spark will not start without it.",
                "Put it back from a copy, or give the query a new id with --new-query-id.",
            )
        )
    return found


def running(checkpoint: Checkpoint, request: Request, world: World, moves: Sequence[Move]) -> list[Refusal]:
    """Return why a checkpoint must not be changed as its query runs, or may run.

    Where respool runs the query, its lock is the whole truth. Elsewhere `--stopped` outweighs every hint but one: a
    process that has a file of the checkpoint open for writing.
    """
    if world.runs:
        return [Refusal(f"The query runs: {world.runs}.", "Stop it first.")]
    if world.ours:
        return []
    writers = [
        Refusal(f"The query may be running: {process.text()}.", "Stop that process first.")
        for process in world.processes
        if process.writes
    ]
    return writers if request.stopped else [*writers, *_may_run(checkpoint, world, moves)]


def _may_run(checkpoint: Checkpoint, world: World, moves: Sequence[Move]) -> list[Refusal]:
    """Return the hints that a query runs that respool did not start."""
    hints = [
        Refusal(
            f"The query may be running: {process.text()}.",
            "Stop that process if it is the query's; if the query has ended, confirm that with --stopped.",
        )
        for process in world.processes
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
    age = _last_write(checkpoint, moves, world.now)
    if age is not None and age < _QUIET_SECONDS:
        hints.append(
            Refusal(
                f"The checkpoint was written to {max(age, 0):.0f} seconds ago: its query may run.",
                f"Stop the query's application and wait for {_QUIET_SECONDS} seconds, or confirm with --stopped that "
                "it has ended.",
            )
        )
    return hints


def losses(request: Request, available: Availability) -> Sequence[Refusal]:
    """Return what sources no longer have of what will be read."""
    return () if request.allow_data_loss else available.refusals


def at_sink(request: Request, world: World) -> list[Refusal]:
    """Return why a sink would not take the batches that come again."""
    replay = world.replay
    if replay is None or not replay.blocked or _mends(request, replay):
        return []
    return [Refusal(replay.blocked, replay.remedy or "Write to another place.")]


def _mends(request: Request, replay: Replay) -> bool:
    return request.restore_sink and replay.restore is not None


def _last_write(checkpoint: Checkpoint, moves: Sequence[Move], now: datetime) -> float | None:
    """Return the seconds since the newest batch's files, and those that would move, were written."""
    newest = [f"offsets/{one}" for one in checkpoint.offsets[-1:]] + [
        f"commits/{one}" for one in checkpoint.commits[-1:]
    ]
    facts = checkpoint.files.facts([*newest, *(move.source for move in moves)])
    times = [one.modified for one in facts.values() if one.modified is not None]
    return now.timestamp() - max(times) if times else None


def simultaneous(world: World) -> list[str]:
    """Return what to know of a store on which two changes could begin at the same time."""
    if world.exclusive:
        return []
    why = (
        "the store of this checkpoint does not support conditional writes (such as If-None-Match on S3)"
        if world.exclusive is False
        else "whether the store of this checkpoint supports conditional writes could not be determined"
    )
    return [
        f"Two simultaneous changes cannot be excluded: {why}. Make sure that no other command changes it meanwhile."
    ]


def notes(
    request: Request,
    world: World,
    available: Availability,
    damaged: Mapping[str, str],
    trims: Mapping[str, Trim],
) -> list[str]:
    """Return what a user should know of a rewind that is not refused."""
    result = [f"{why}. It moves aside; older files serve in its place." for _, why in sorted(damaged.items())]
    if any(trim.kept_whole for trim in trims.values()):
        result.append("The log of input files was compacted since: all files to be read again come in one batch.")
    if request.same_range:
        result.append("Batches after it are planned anew.")
    return [*result, *available.notes, *open_files(request, world), *simultaneous(world)]


def open_files(request: Request, world: World) -> list[str]:
    """Return which processes read files of the checkpoint though the user has confirmed that the query has ended."""
    if world.ours or not request.stopped:
        return []
    return [f"Though the query has ended, {process.text()}." for process in world.processes if not process.writes]
