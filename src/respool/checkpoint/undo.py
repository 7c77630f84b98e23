"""Plan the undoing of a rewind. Planning reads, and changes nothing."""

from datetime import datetime

from respool.checkpoint import history
from respool.checkpoint.files import open_reader
from respool.checkpoint.plan import journal_id, require_listed
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.sink import require_undoable
from respool.checkpoint.steps import Journal, Left, Restore, backwards
from respool.errors import CheckpointError


def plan_undo(checkpoint: Checkpoint, now: datetime, reason: str | None = None) -> Journal:
    """Plan the undoing of the last rewind, whether it was finished or cut off.

    Raise CheckpointError when there is none, when the query has run since, or when what it moved aside was purged.
    """
    require_listed(checkpoint)
    cut_off = history.pending(checkpoint.files)
    if cut_off is not None and cut_off.operation == "undo":
        return cut_off
    rewind = cut_off or history.last_rewind(history.past(checkpoint.files))
    if rewind is None:
        raise CheckpointError(f"No rewind of {checkpoint.root} is there to take back. See: respool checkpoint history.")
    if rewind.purged is not None:
        raise CheckpointError(f"What the rewind {rewind.id} moved aside was purged; it cannot be taken back.")
    if cut_off is None:
        _require_not_run(checkpoint, rewind)
        _require_sink_as_left(rewind)
    return Journal(
        id=f"{journal_id(now, rewind.newest.offsets)}-undo",
        operation="undo",
        of=rewind.id,
        request="",
        reason=reason,
        started=now,
        batch=rewind.newest.offsets + (1 if rewind.newest.commits == rewind.newest.offsets else 0),
        same_range=False,
        newest=rewind.left,
        left=rewind.newest,
        steps=backwards(rewind.steps),
        query_ids=rewind.query_ids,
    )


def _require_not_run(checkpoint: Checkpoint, rewind: Journal) -> None:
    now = Left(
        checkpoint.offsets[-1] if checkpoint.offsets else -1,
        checkpoint.commits[-1] if checkpoint.commits else -1,
    )
    there = {folder: set(names) for folder, names in checkpoint.folders.items()}
    back = [move.source for move in rewind.moves if move.sink is None]
    grown = [path for path in back if path.rpartition("/")[2] in there.get(path.rpartition("/")[0], ())]
    if now != rewind.left or grown:
        raise CheckpointError(
            f"The query has run since the rewind {rewind.id}: {grown[0] if grown else f'batch {now.offsets}'} is new. "
            "Taking the rewind back would mix two runs. Rewind again instead, to the batch you want. "
            "Nothing was changed."
        )


def _require_sink_as_left(rewind: Journal) -> None:
    """Raise CheckpointError when a sink that followed the rewind was written to since."""
    for step in rewind.steps:
        if isinstance(step, Restore):
            require_undoable(step.table)
    folders: dict[str, list[str]] = {}
    for move in rewind.moves:
        if move.sink is not None:
            folders.setdefault(move.sink, []).append(move.source)
    for folder, paths in folders.items():
        new = sorted(open_reader(folder).facts(paths))
        if new:
            raise CheckpointError(
                f"{folder}/{new[0]} is new since the rewind {rewind.id}: something has written there. "
                "Taking the rewind back would mix two runs. Nothing was changed."
            )
