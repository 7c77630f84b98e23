"""Which processes of this machine have files of a folder open: a hint that a query runs on it.

A query that waits for records has no file open, and RocksDB keeps its working copy elsewhere: no process found does not
mean that no query runs. Only Linux is asked, and only processes that this user may inspect.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from respool.checkpoint.files import OWN

_PROC = Path("/proc")
_SECONDS = 2.0  # the longest that a look at all processes takes
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
