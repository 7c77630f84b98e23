"""Processes as Linux shows them."""

import os
import sys
from contextlib import suppress
from pathlib import Path

# Linux kills the program when the thread that started it ends, however it ends (PR_SET_PDEATHSIG, SIGKILL).
_RUN_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


def ending_with_the_tests(words: list[str]) -> list[str]:
    """Return a command that ends with the process that starts it.

    `preexec_fn` would do the same, but copies the process of the tests first, for which memory may be short.
    """
    return [sys.executable, "-S", "-c", _RUN_WITH_PARENT, *words] if sys.platform == "linux" else words


def processes_of(folder: Path) -> list[str]:
    """Return the processes whose command, environment or working directory contains a folder."""
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if (
                str(folder).encode() in text + os.readlink(process / "cwd").encode()
                and int(process.name) != os.getpid()
            ):
                running.append(f"{process.name}: {text[:200]!r}")
        except (OSError, ValueError):  # ended meanwhile, or of another user
            continue
    return running


def children_of(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started."""
    children = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            children += [int(word) for word in file.read_text().split()]
    return children


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended, and that nobody waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
