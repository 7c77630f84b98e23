"""Hold a checkpoint, so that no two of respool's own processes run on it or change it at once.

On a local disk a file is locked; the system lets go of the lock when its process ends, however it ends. An object store
has no locks: there a small file says who holds the checkpoint, is written again and again while it does, and counts for
a minute.

    _respool/lock         on a local disk
    _respool/lease.json   elsewhere
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from respool.checkpoint.files import OWN, Writer, local_path, open_writer
from respool.errors import CheckpointError

_LEASE = f"{OWN}/lease.json"
_SECONDS = 60.0  # how long a lease counts after it was written
_RENEW = 15.0  # how often it is written again
_SETTLE = 1.0  # how long to wait before a look at who wrote last


class Lease:
    """A checkpoint that is held until `close`.

    Attributes:
        warning: Why the checkpoint is not really held, for people; None when it is.
    """

    def __init__(self, let_go: Callable[[], None], warning: str | None = None) -> None:
        """Take what lets go of it."""
        self._let_go = let_go
        self.warning = warning

    def __enter__(self) -> "Lease":
        """Return the lease."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the checkpoint."""
        self.close()

    def close(self) -> None:
        """Let go of the checkpoint."""
        self._let_go()


def hold(checkpoint: str) -> Lease | None:
    """Hold a checkpoint; None when another process holds it now. A local folder is made when it is missing."""
    folder = local_path(checkpoint)
    return _hold_local(folder) if folder is not None else _hold_remote(checkpoint)


def holder(checkpoint: str) -> str | None:
    """Return who holds a checkpoint now, for people; None when nobody does."""
    folder = local_path(checkpoint)
    if folder is None:
        facts = _lease(open_writer(checkpoint))
        return None if facts is None else f"process {facts['process']} on {facts['host']}"
    try:
        with (folder / OWN / "lock").open(encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"process {lock.read() or 'unknown'}"
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{folder / OWN / 'lock'} cannot be read: {error.strerror}.") from error
    return None


def _hold_local(folder: Path) -> Lease | None:
    with ExitStack() as stack:
        try:
            (folder / OWN).mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / OWN / "lock").open("a+", encoding="utf-8"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        except BlockingIOError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {folder} cannot be written: {error.strerror}. "
                "Make room or change its permissions, or name another folder with --checkpoint."
            ) from error
        stack.pop_all()
        return Lease(lock.close)


def _hold_remote(checkpoint: str) -> Lease | None:
    try:
        files = open_writer(checkpoint)
        if _lease(files) is not None:
            return None
        token = str(uuid4())
        _renew(files, token)
        time.sleep(_SETTLE)
        found = _lease(files)
    except CheckpointError as error:
        # Spark may well reach what this process cannot.
        return Lease(lambda: None, f"Nothing keeps a second run away from {checkpoint}: {error}")
    if found is None or found["token"] != token:
        return None
    ended = threading.Event()
    thread = threading.Thread(target=_keep, args=(files, token, ended), name="lease", daemon=True)
    thread.start()

    def let_go() -> None:
        ended.set()
        thread.join()
        with suppress(CheckpointError):
            files.delete(_LEASE)

    return Lease(let_go)


def _keep(files: Writer, token: str, ended: threading.Event) -> None:
    while not ended.wait(_RENEW):
        with suppress(CheckpointError):  # a store that is out of reach for a while: the next turn tries again
            _renew(files, token)


def _renew(files: Writer, token: str) -> None:
    facts = {"token": token, "process": os.getpid(), "host": socket.gethostname(), "renewed": time.time()}
    files.replace(_LEASE, json.dumps(facts).encode())


def _lease(files: Writer) -> dict[str, Any] | None:
    """Return the lease that counts now, if there is one."""
    try:
        facts: dict[str, Any] = json.loads(files.read(_LEASE))
        return facts if time.time() - float(facts["renewed"]) < _SECONDS else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None  # cut off while it was written: it counts for nobody
