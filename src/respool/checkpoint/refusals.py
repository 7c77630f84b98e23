"""Why a rewind must not be done as it is, and what else to know of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from respool.checkpoint import file_log
from respool.checkpoint.file_log import Trim
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.request import Kept, Request, World
from respool.checkpoint.sink import Replay
from respool.checkpoint.sources import Reading
from respool.checkpoint.steps import Move

_WITHOUT = "Go on without them with --allow-data-loss."
_QUIET_SECONDS = 60  # how long a query must have written nothing to count as stopped: Spark's maintenance interval


@dataclass(frozen=True)
class Refusal:
    """Why a change is refused, and what to do about it."""

    why: str
    way_out: str


def refusals(
    checkpoint: Checkpoint,
    request: Request,
    world: World,
    readings: Sequence[Reading],
    trims: Mapping[str, Trim],
    moves: Sequence[Move],
) -> list[Refusal]:
    """Return why a rewind is refused; a flag of the request takes a reason away."""
    found = [*running(checkpoint, request, world, moves), *losses(request, world, readings), *at_sink(request, world)]
    if not request.allow_data_loss:
        found += [Refusal(one, _WITHOUT) for one in _lost_files(trims)]
    if "metadata" not in checkpoint.folders[""] and not request.new_query_id:
        found.append(
            Refusal(
                "The file metadata, which holds the query's id, is lost: Spark will not start without it.",
                "Put it back from a copy, or give the query a new id with --new-query-id.",
            )
        )
    return found


def running(checkpoint: Checkpoint, request: Request, world: World, moves: Sequence[Move]) -> list[Refusal]:
    """Return why a checkpoint must not be changed as its query runs, or may run."""
    if world.runs:
        return [Refusal(f"The query runs: {world.runs}.", "Stop it first.")]
    if world.ours or request.stopped:
        return []
    age = _last_write(checkpoint, moves, world.now)
    if age is None or age >= _QUIET_SECONDS:
        return []
    return [
        Refusal(
            f"The checkpoint was written to {max(age, 0):.0f} seconds ago: its query may run.",
            f"Stop the query's application and wait for {_QUIET_SECONDS} seconds, "
            "or say that it has ended with --stopped.",
        )
    ]


def losses(request: Request, world: World, readings: Sequence[Reading]) -> list[Refusal]:
    """Return which records are to be read again that Kafka no longer has."""
    return [] if request.allow_data_loss else [Refusal(one, _WITHOUT) for one in _lost_records(readings, world.kept)]


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


def _lost_records(readings: Sequence[Reading], kept: Kept | None) -> list[str]:
    found = []
    for part in (part for one in readings if one.kind == "Kafka" and kept for part in one.parts):
        assert kept is not None
        topic, _, number = part.name.rpartition("-")
        key = (topic, int(number))
        if key not in kept.first:
            found.append(f"Kafka has no partition {part.name}: was the topic deleted?")
        elif kept.first[key] > part.start and part.end > part.start:
            gone = min(kept.first[key], part.end) - part.start
            found.append(
                f"Kafka no longer has {gone:,} of the records of {part.name}: batches would read from offset "
                f"{part.start}, its first is {kept.first[key]}."
            )
        elif kept.next[key] < part.end:
            found.append(
                f"{part.name} ends at offset {kept.next[key]}, though the query has read up to {part.end}: "
                "was the topic made anew?"
            )
    return found


def _lost_files(trims: Mapping[str, Trim]) -> list[str]:
    gone = [path for trim in trims.values() for path in file_log.missing(trim.inputs)]
    if not gone:
        return []
    more = f", and {len(gone) - 1} more" if gone[1:] else ""
    return [f"Input files are gone: {gone[0]}{more}. Spark would leave them out without a word."]


def notes(
    request: Request,
    world: World,
    readings: Sequence[Reading],
    damaged: Mapping[str, str],
    trims: Mapping[str, Trim],
) -> list[str]:
    """Return what a user should know of a rewind that is not refused."""
    found = [f"{why}. It moves aside; older files serve in its place." for _, why in sorted(damaged.items())]
    if any(trim.kept_whole for trim in trims.values()):
        found.append("The log of input files was compacted since: all files to be read again come in one batch.")
    if request.same_range:
        found.append("Batches after it are planned anew.")
    inputs = sum(len(trim.inputs) for trim in trims.values())
    if inputs:
        found.append(f"{inputs:,} input files are read again.")
    if world.kept is None and any(one.kind == "Kafka" for one in readings):
        found.append("No Kafka broker was asked whether it still has these records. Name it with --bootstrap-servers.")
    return found
