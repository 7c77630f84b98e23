"""The changes that respool made to a checkpoint: a journal for each change and each undo.

_respool/pending.json           the journal of a change that is not finished
_respool/history/<id>.json      the journal of a finished change
_respool/aside/<id>/<path>      a file that it moved aside
_respool/staged/<id>/<path>     a file that it will move in, copied from elsewhere beforehand
"""

import json

from typing_extensions import assert_never

from respool.checkpoint.journal.steps import Journal, Move, Prune, Replace, Restore, damaged, from_json, to_json
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.locations import OWN
from respool.storage.folder import FolderReader, read_error
from respool.untrusted import Malformed, file_name, relative_path

PENDING = f"{OWN}/pending.json"
ASIDE = f"{OWN}/aside"
STAGED = f"{OWN}/staged"
FOLDER = f"{OWN}/history"
_OWN_NOTES = (f"{OWN}/run.json", f"{OWN}/fork.json")  # of `ownership.py`, which a change may rewrite


def pending(files: FolderReader) -> Journal | None:
    """Return the journal of an interrupted change; None when there is none."""
    try:
        return _parse(PENDING, files.read(PENDING))
    except FileNotFoundError:
        return None


def past(files: FolderReader) -> list[Journal]:
    """Return the journals of all finished changes, the oldest first."""
    names = sorted(name for name in files.names(FOLDER) if name.endswith(".json") and not name.startswith("."))
    contents = files.read_many([f"{FOLDER}/{name}" for name in names])
    journals = []
    for path, data in contents.items():
        if isinstance(data, Exception):
            raise read_error(path, data) from data
        journal = _parse(path, data)
        if path != path_of(journal):
            raise damaged(path, f"it is the journal of another change, {journal.id}")
        journals.append(journal)
    return sorted(journals, key=lambda journal: (journal.started, journal.id))


def newest_change(files: FolderReader) -> str:
    """Return the id of the newest finished change or undo; empty when there was none.

    Ids begin with the time. A batch that is replayed after a crash has the same id before and after; a batch that is
    replayed after a rewind does not.
    """
    names = (name.removesuffix(".json") for name in files.names(FOLDER) if name.endswith(".json"))
    return max((name for name in names if not name.startswith(".")), default="")


def path_of(journal: Journal) -> str:
    """Return the path of a finished journal."""
    return f"{FOLDER}/{journal.id}.json"


def text_of(journal: Journal) -> bytes:
    """Return a journal as the bytes of its file."""
    return (json.dumps(to_json(journal), indent=1) + "\n").encode()


def undoable(journal: Journal) -> bool:
    """Return whether a change can be undone: a fork is a separate checkpoint, which is deleted instead."""
    return journal.operation not in ("undo", "fork") and journal.undone is None


def last_change(journals: list[Journal]) -> Journal | None:
    """Return the newest change that can be undone; None when there is none."""
    return next((journal for journal in reversed(journals) if undoable(journal)), None)


def _parse(path: str, data: bytes) -> Journal:
    journal = from_json(path, data)
    try:
        _require_confined(journal)
    except Malformed as error:
        raise damaged(path, str(error)) from error
    return journal


def _require_confined(journal: Journal) -> None:
    """Raise Malformed unless respool could have planned all steps, inside the checkpoint or its sink."""
    names = [file_name(name) for name in (journal.id, journal.of) if name is not None]
    kept = tuple(f"{folder}/{name}/" for name in names for folder in (ASIDE, STAGED))
    for step in journal.steps:
        match step:
            case Move():
                _require_own_move(step, kept)
            case Replace():
                if relative_path(step.path) not in _OWN_NOTES:
                    _require_outside(step.path)
            case Prune():
                _require_outside(relative_path(step.folder))
            case Restore():
                pass  # the table is shown to the user before
            case _:
                assert_never(step)


def _require_own_move(move: Move, kept: tuple[str, ...]) -> None:
    """Raise Malformed unless a move is between a path and the same path in the journal's own folder."""
    for path, other in ((move.source, move.target), (move.target, move.source)):
        for folder in kept:
            if relative_path(other) == folder + relative_path(path):
                if move.sink is not None and not folder.startswith(f"{ASIDE}/"):
                    break
                _require_outside(path)
                return
    raise Malformed(f"a step moves {move.source!a} to {move.target!a}, which no change does")


def _require_outside(path: str) -> None:
    if path.split("/")[0] == OWN:
        raise Malformed(f"a step changes {path!a}, which no change does")


def query_ids(checkpoint: CheckpointSnapshot) -> tuple[str, ...]:
    """Return all ids that the query had, the newest last: a rewind can give it a new id."""
    ids: dict[str, None] = {}
    for change in past(checkpoint.files):
        ids |= dict.fromkeys(change.query_ids)
    try:
        now = checkpoint.query_id
    except CheckpointError:
        return tuple(ids)
    ids.pop(now, None)
    return (*ids, now)
