"""What respool did to a checkpoint: one journal for each change and each undoing of one.

_respool/pending.json           a journal whose steps are not all done
_respool/history/<id>.json      one whose steps are
_respool/aside/<id>/<path>      what it moved aside
_respool/staged/<id>/<path>     what it will move in, copied from elsewhere beforehand
"""

import json

from respool.checkpoint.files import OWN, Reader
from respool.checkpoint.steps import Journal, from_json, to_json
from respool.errors import CheckpointError

PENDING = f"{OWN}/pending.json"
ASIDE = f"{OWN}/aside"
STAGED = f"{OWN}/staged"
FOLDER = f"{OWN}/history"


def pending(files: Reader) -> Journal | None:
    """Return the journal of a change that was cut off, if there is one."""
    try:
        return _parse(PENDING, files.read(PENDING))
    except FileNotFoundError:
        return None


def past(files: Reader) -> list[Journal]:
    """Return the journals of all finished changes, the oldest first."""
    names = sorted(name for name in files.names(FOLDER) if name.endswith(".json") and not name.startswith("."))
    found = files.read_many([f"{FOLDER}/{name}" for name in names])
    journals = []
    for path, data in found.items():
        if isinstance(data, Exception):
            raise CheckpointError(f"{path} cannot be read: {data}") from data
        journals.append(_parse(path, data))
    return sorted(journals, key=lambda one: (one.started, one.id))


def path_of(journal: Journal) -> str:
    """Return where a finished journal is kept."""
    return f"{FOLDER}/{journal.id}.json"


def text_of(journal: Journal) -> bytes:
    """Return a journal as the bytes of its file."""
    return (json.dumps(to_json(journal), indent=1) + "\n").encode()


def undoable(journal: Journal) -> bool:
    """Return whether a change is one that can be taken back: a fork is a checkpoint of its own, to be deleted whole."""
    return journal.operation not in ("undo", "fork") and journal.undone is None


def last_change(journals: list[Journal]) -> Journal | None:
    """Return the newest change that can be taken back."""
    return next((one for one in reversed(journals) if undoable(one)), None)


def _parse(path: str, data: bytes) -> Journal:
    try:
        return from_json(path, json.loads(data))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}. Ask for help before you change this checkpoint.") from error
