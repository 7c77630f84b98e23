"""Whether a journal was written by this installation, on this machine, by this account, for this checkpoint.

Every account has a random key in a file that only it can read. A journal is sealed with the key when it is written: a
keyed digest of the checkpoint's location, the journal's id and all its steps. A journal without a valid seal came from
elsewhere, for example with a copied folder, and its steps are not applied unless the user accepts them.

    $XDG_STATE_HOME/respool/journal.key     by default ~/.local/state/respool/journal.key
"""

import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from respool.checkpoint.journal.steps import Journal, Origin
from respool.locations import absolute, canonical_location, local_path

_KEY_BYTES = 32


def sign(journal: Journal, location: str) -> Journal:
    """Return a journal with its origin: this installation, and the checkpoint at `location`.

    Where the key can be neither read nor created, as with a read-only home, the seal is empty, and the user is asked to
    accept the journal when it is resumed.
    """
    where = _resolved(location)
    key = _key(create=True)
    seal = "" if key is None else _seal(key, journal, where)
    return replace(journal, origin=Origin(socket.gethostname(), _user(), where, seal))


def foreign(journal: Journal, location: str) -> str | None:
    """Return why a journal of the checkpoint at `location` was not written by this installation; None when it was."""
    origin, where = journal.origin, _resolved(location)
    if origin is None:
        return "it does not record who wrote it"
    if origin.host != socket.gethostname():
        return f"it was written on the host {origin.host!r}; this is {socket.gethostname()!r}"
    if origin.user != _user():
        return f"it was written by the user {origin.user!r}; you are {_user()!r}"
    if canonical_location(origin.location) != where:
        return f"it was written for {origin.location!r}; the checkpoint was copied or moved to {where!r}"
    key = _key(create=False)
    if key is None or not hmac.compare_digest(origin.seal.encode(), _seal(key, journal, origin.location).encode()):
        return "its seal is not that of this installation, or it was changed after it was written"
    return None


def _resolved(location: str) -> str:
    """Return the canonical location of a checkpoint, independent of links and relative paths."""
    return absolute(location) if local_path(location) is None else os.path.realpath(absolute(location))


def _seal(key: bytes, journal: Journal, where: str) -> str:
    steps = [[type(step).__name__, asdict(step)] for step in journal.steps]
    sealed: list[object] = [where, journal.id, journal.operation, journal.of, journal.request, steps]
    if journal.asked is not None:  # journals of version 1 have no `asked`, and were sealed without it
        sealed.append(journal.asked.text())
    return hmac.new(key, json.dumps(sealed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, as in some containers
        return str(os.getuid())


def _key(create: bool) -> bytes | None:
    path = _key_path()
    if path is None:
        return None
    with suppress(OSError):
        key = _read(path)
        if key is not None or not create:
            return key
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(path)
        return _read(path)
    return None


def _key_path() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        try:
            state = str(Path.home() / ".local" / "state")
        except RuntimeError:  # an account without a home
            return None
    return Path(state) / "respool" / "journal.key"


def _read(path: Path) -> bytes | None:
    """Return the key; None when the file is missing, or not a file of this account that nobody else can read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            return None
        key = file.read(_KEY_BYTES)
    return key if len(key) == _KEY_BYTES else None


def _create(path: Path) -> None:
    """Create the key atomically; if another process creates it at the same time, that key is kept."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)
