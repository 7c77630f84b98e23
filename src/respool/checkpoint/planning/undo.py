"""Plan the undo of a change. Planning reads, and changes nothing."""

from datetime import datetime

from respool.checkpoint.journal import apply, history, installation
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Restore, backwards, journal_id
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed
from respool.delta.restore import require_undoable
from respool.errors import CheckpointError, UnfinishedChangeError
from respool.storage.open import open_reader, require_referenced


def plan_undo(checkpoint: CheckpointSnapshot, now: datetime, reason: str | None = None) -> Journal:
    """Plan the undo of the last rewind, restore or promotion, whether it was finished or interrupted.

    Raise CheckpointError when there is none, when the query has run since, or when the files moved aside were purged.
    """
    require_listed(checkpoint)
    interrupted = history.pending(checkpoint.files)
    if interrupted is not None and interrupted.operation == "undo":
        return interrupted
    done = interrupted or history.last_change(history.past(checkpoint.files))
    if done is None:
        raise CheckpointError(f"{checkpoint.root} has no change to undo. See: respool checkpoint history.")
    if done.operation == "fork":
        raise UnfinishedChangeError(checkpoint.root, done)
    if done.purged is not None:
        raise CheckpointError(f"What the {done.operation} {done.id} moved aside was purged; it cannot be undone.")
    if interrupted is None:
        _require_not_run(checkpoint, done)
        _require_sink_as_left(done, checkpoint.root)
    return Journal(
        id=f"{journal_id(now, done.newest.offsets)}-undo",
        operation="undo",
        of=done.id,
        request="",
        reason=reason,
        started=now,
        batch=done.newest.offsets + (1 if done.newest.commits == done.newest.offsets else 0),
        same_range=False,
        newest=done.left,
        left=done.newest,
        steps=backwards(done.steps if interrupted is None else apply.started_steps(done.steps, checkpoint.files)),
        query_ids=done.query_ids,
    )


def _require_not_run(checkpoint: CheckpointSnapshot, done: Journal) -> None:
    now = LogEnds(
        checkpoint.offsets[-1] if checkpoint.offsets else -1,
        checkpoint.commits[-1] if checkpoint.commits else -1,
    )
    there = {folder: set(names) for folder, names in checkpoint.folders.items()}
    moved_in = {move.target for move in done.moves}
    back = [move.source for move in done.moves if move.sink is None and move.source not in moved_in]
    grown = [path for path in back if path.rpartition("/")[2] in there.get(path.rpartition("/")[0], ())]
    if now != done.left or grown:
        raise CheckpointError(
            f"The query has run since the {done.operation} {done.id}: "
            f"{grown[0] if grown else f'batch {now.offsets}'} is new. Undoing it would mix two runs. "
            "Rewind again instead, to the batch you want. Nothing was changed."
        )


def _require_sink_as_left(done: Journal, root: str) -> None:
    """Raise CheckpointError when a sink that a change restored was written to since."""
    if installation.foreign(done, root) is not None:
        for step in done.steps:
            place = step.sink if isinstance(step, Move) else step.table.table if isinstance(step, Restore) else None
            if place is not None:
                require_referenced(place, root)
    for step in done.steps:
        if isinstance(step, Restore):
            require_undoable(step.table)
    folders: dict[str, list[str]] = {}
    for move in done.moves:
        if move.sink is not None:
            folders.setdefault(move.sink, []).append(move.source)
    for folder, paths in folders.items():
        new = sorted(open_reader(folder).facts(paths))
        if new:
            raise CheckpointError(
                f"{folder}/{new[0]} is new since the {done.operation} {done.id}: another process has written it. "
                "Undoing it would mix two runs. Nothing was changed."
            )
