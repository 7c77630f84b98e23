"""What respool did to a checkpoint: one journal for each rewind and each undoing of one.

_respool/pending.json           a journal whose steps are not all done
_respool/history/<id>.json      one whose steps are
_respool/aside/<id>/<path>      what it moved aside
"""

import json

from respool.checkpoint.files import OWN, Reader
from respool.checkpoint.steps import Journal, from_json, to_json
from respool.errors import CheckpointError

PENDING = f"{OWN}/pending.json"
ASIDE = f"{OWN}/aside"
_HISTORY = f"{OWN}/history"


def pending(files: Reader) -> Journal | None:
    """Return the journal of a change that was cut off, if there is one."""
    try:
        return _parse(PENDING, files.read(PENDING))
    except FileNotFoundError:
        return None


def past(files: Reader) -> list[Journal]:
    """Return the journals of all finished changes, the oldest first."""
    names = sorted(name for name in files.names(_HISTORY) if name.endswith(".json") and not name.startswith("."))
    found = files.read_many([f"{_HISTORY}/{name}" for name in names])
    journals = []
    for path, data in found.items():
        if isinstance(data, Exception):
            raise CheckpointError(f"{path} cannot be read: {data}") from data
        journals.append(_parse(path, data))
    return sorted(journals, key=lambda one: (one.started, one.id))


def path_of(journal: Journal) -> str:
    """Return where a finished journal is kept."""
    return f"{_HISTORY}/{journal.id}.json"


def text_of(journal: Journal) -> bytes:
    """Return a journal as the bytes of its file."""
    return (json.dumps(to_json(journal), indent=1) + "\n").encode()


def last_rewind(journals: list[Journal]) -> Journal | None:
    """Return the newest rewind that was not undone."""
    return next((one for one in reversed(journals) if one.operation == "rewind" and one.undone is None), None)


def _parse(path: str, data: bytes) -> Journal:
    try:
        return from_json(path, json.loads(data))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}. Ask for help before you change this checkpoint.") from error
