"""The lock of a checkpoint on a local disk.

    _respool/lock       locked by the process that runs on the checkpoint or changes it (`flock`)
    _respool/jvm.lock   locked by that process's JVM (a record lock, as Java takes them)

The system releases each lock when its process ends, however it ends. The JVM writes the checkpoint and outlives a
killed Python process by seconds, so the checkpoint is in use until both locks are free. Each file holds the id of its
process, for messages only.
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from respool.checkpoint.files import OWN
from respool.errors import CheckpointError, CheckpointInUseError

_LOCK = "lock"
_JVM = "jvm.lock"
_ATTEMPTS = 100  # of a JVM to take its lock, which whoever tests it has for a moment
_PATIENCE = 5.0  # seconds that a JVM has to release its lock


class LocalLock:
    """The lock of a checkpoint's folder, held until `close`."""

    def __init__(self, folder: Path, file: IO[str]) -> None:
        """Keep the locked file."""
        self._folder = folder
        self._file = file
        self._in_jvm: Any = None

    def extend_to(self, jvm: Any, pid: int) -> None:
        """Let a JVM hold the checkpoint, too, until `close` or until it ends."""
        if self._in_jvm is not None:
            return
        path = self._folder / OWN / _JVM
        try:
            with _open(path, create=True) as file:
                file.truncate(0)
                file.write(str(pid))
            # py4j keeps the object alive in the JVM: were it collected there, the lock would be released.
            opened = jvm.java.io.RandomAccessFile(str(path.absolute()), "rw")
            for _ in range(_ATTEMPTS):
                if opened.getChannel().tryLock() is not None:
                    self._in_jvm = opened
                    return
                time.sleep(0.02)
        except Exception as error:  # py4j's own errors, too
            raise CheckpointError(
                f"Spark's JVM cannot lock {path}: {error}. Keep the checkpoint on a disk that supports locks, or name "
                "another folder with --checkpoint."
            ) from error
        raise CheckpointInUseError(str(path), f"process {_written(path)}", "Wait for its end, and run this again.")

    def close(self) -> None:
        """Release the checkpoint. A JVM that does not answer holds it until it ends."""
        if self._in_jvm is not None:
            _bounded(self._in_jvm.close)
            self._in_jvm = None
        self._file.close()


def take(folder: Path) -> LocalLock | None:
    """Lock a folder, which is made when it is missing; None when another process or its JVM holds it."""
    with ExitStack() as stack:
        try:
            (folder / OWN).mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(_open(folder / OWN / _LOCK, create=True))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if jvm_of(folder) is not None:
                return None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        except BlockingIOError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {folder} cannot be written: {error.strerror}. "
                "Make room or change its permissions, or name another folder with --checkpoint."
            ) from error
        stack.pop_all()
        return LocalLock(folder, file)


def process_of(folder: Path) -> str | None:
    """Return the id of the process that holds a folder, as text; None when there is no such process."""
    path = folder / OWN / _LOCK
    return _written(path) if _is_locked(path, lambda file: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)) else None


def jvm_of(folder: Path) -> str | None:
    """Return the id of the JVM that holds a folder, as text; None when there is no such JVM."""
    path = folder / OWN / _JVM
    return _written(path) if _is_locked(path, lambda file: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)) else None


def _is_locked(path: Path, lock: Callable[[IO[str]], None]) -> bool:
    try:
        with _open(path) as file:
            try:
                lock(file)
            except (BlockingIOError, PermissionError):  # POSIX allows both for a record lock
                return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    return False


def _open(path: Path, create: bool = False) -> IO[str]:
    """Open a regular file; anything else in its place, such as a link, is an OSError."""
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    number = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(22, "it is not a regular file", str(path))
    return open(number, "r+" if create else "r", encoding="utf-8")


def _written(path: Path) -> str:
    """Return the process id that a lock file holds."""
    with suppress(OSError, ValueError), _open(path) as file:
        text = file.read(20)
        return text if text.isdecimal() else "unknown"
    return "unknown"


def _bounded(function: Callable[[], object]) -> None:
    """Call a function of a JVM that may be gone, in a thread: an interrupted thread's connection is of no more use."""

    def call() -> None:
        with suppress(Exception):
            function()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
