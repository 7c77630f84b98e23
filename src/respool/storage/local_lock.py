"""Who uses a folder on this machine: its lock, and the processes that have files of it open."""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from respool.errors import CheckpointError, CheckpointInUseError
from respool.locations import OWN

_PROC = Path("/proc")
_SECONDS = 10.0  # the longest that it takes to inspect all processes, on a busy machine
_LONGEST = 80  # characters of a command that are shown
_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Process:
    """A process that has a file open.

    Attributes:
        pid: Its id.
        command: Its command line, cut to be shown.
        path: The file.
        writes: Whether the file is open for writing.
    """

    pid: int
    command: str
    path: str
    writes: bool

    def text(self) -> str:
        """Return it for messages."""
        return f"process {self.pid} ({self.command}) has {self.path} open" + (" for writing" if self.writes else "")


def processes_in(folder: Path) -> tuple[Process, ...]:
    """Return the other processes that have a file open in a folder, one file each, those that write first."""
    root = os.path.realpath(folder)
    deadline = time.monotonic() + _SECONDS
    result = []
    for entry in _numbered(_PROC):
        if time.monotonic() > deadline:
            break
        if int(entry) != os.getpid():
            opened = _opened(entry, root)
            if opened is not None:
                result.append(Process(int(entry), _command(entry), *opened))
    return tuple(sorted(result, key=lambda process: (not process.writes, process.pid)))


def _opened(pid: str, root: str) -> tuple[str, bool] | None:
    """Return a file below a folder that a process has open, preferably for writing, and whether it is."""
    reads = None
    for number in _numbered(_PROC / pid / "fd"):
        try:
            path = os.readlink(_PROC / pid / "fd" / number)
        except OSError:  # closed meanwhile
            continue
        inside = path.removeprefix(f"{root}/")
        if path == inside or inside.split("/")[0] == OWN:  # elsewhere, or respool's own: its lock says more
            continue
        if _is_for_writing(pid, number):
            return path, True
        reads = path, False
    return reads


def _is_for_writing(pid: str, number: str) -> bool:
    try:
        lines = (_PROC / pid / "fdinfo" / number).read_text(encoding="ascii").splitlines()
        return any(line.startswith("flags:") and int(line.split()[1], 8) & _WRITES for line in lines)
    except (OSError, ValueError):
        return False


def _command(pid: str) -> str:
    try:
        words = (_PROC / pid / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    text = ascii(" ".join(words).strip())[1:-1] or "unknown command"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _numbered(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]
    except OSError:  # another user's, ended meanwhile, or not Linux
        return []


_LOCK = "lock"
_JVM = "jvm.lock"
_OPENINGS = 10  # of a lock file that others delete meanwhile, as a run does that could not start
_ATTEMPTS = 100  # of a JVM to take its lock, which whoever tests it has for a moment
_PATIENCE = 5.0  # seconds that a JVM has to release its lock


class LockingJvm(Protocol):
    """The JVM of this process, which may outlive it and locks files itself."""

    @property
    def pid(self) -> int:
        """The id of its process."""
        ...

    def lock(self, path: Path, attempts: int) -> Callable[[], object] | None:
        """Lock a file until the returned function is called or the JVM ends; None when another process holds it."""
        ...


class LocalLock:
    """The lock of a checkpoint's folder, held until `close`."""

    def __init__(self, folder: Path, file: IO[str]) -> None:
        """Keep the locked file."""
        self._folder = folder
        self._file = file
        self._release_in_jvm: Callable[[], object] | None = None

    def extend_to(self, jvm: LockingJvm) -> None:
        """Let a JVM hold the checkpoint, too, until `close` or until it ends."""
        if self._release_in_jvm is not None:
            return
        path = self._folder / OWN / _JVM
        try:
            with _open(path, create=True) as file:
                file.truncate(0)
                file.write(str(jvm.pid))
            self._release_in_jvm = jvm.lock(path, _ATTEMPTS)
        except Exception as error:  # py4j's own errors, too
            raise CheckpointError(
                f"Spark's JVM cannot lock {path}: {error}. Keep the checkpoint on a disk that supports locks, or name "
                "another folder with --checkpoint."
            ) from error
        if self._release_in_jvm is None:
            holder = f"process {_written(path)}"
            raise CheckpointInUseError(str(path), holder, "Wait until it ends, and run this again.")

    def close(self) -> None:
        """Release the checkpoint. A JVM that does not answer holds it until it ends."""
        if self._release_in_jvm is not None:
            _bounded(self._release_in_jvm)
            self._release_in_jvm = None
        self._file.close()


def take(folder: Path) -> LocalLock | None:
    """Lock a folder, which is made when it is missing; None when another process or its JVM holds it."""
    with ExitStack() as stack:
        try:
            path = folder / OWN / _LOCK
            for _ in range(_OPENINGS):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(_open(path, create=True))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, path):
                    break
                file.close()
            else:
                return None
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


def _is_at(file: IO[str], path: Path) -> bool:
    """Return whether an open file still has a path; a lock on a file that was deleted since excludes nobody."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


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
