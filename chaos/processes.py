"""The processes of a run, recognized by a variable in their environment, however they were started."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chaos.place import GROUP, MARKER

Role = Literal["jvm", "daemon", "worker", "python", "broker", "other"]


@dataclass(frozen=True)
class Process:
    """A process of a run.

    Attributes:
        pid: Its id.
        parent: The id of its parent.
        group: The pipelines' group that it belongs to; empty for none.
        command: Its command line.
        role: What it is.
    """

    pid: int
    parent: int
    group: str
    command: str
    role: Role


def find(marker: str, group: str | None = None) -> list[Process]:
    """Return the processes of a run, or of one group in it; those that have ended are left out."""
    wanted = f"{MARKER}={marker}".encode()
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if wanted not in variables or int(folder.name) == os.getpid():
                continue
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if state in "ZX":
                continue
            name = next(
                (one[len(GROUP) + 1 :].decode() for one in variables if one.startswith(f"{GROUP}=".encode())), ""
            )
            if group is None or name == group:
                processes.append(Process(int(folder.name), int(parent), name, command, "other"))
    return _with_roles(processes)


def _with_roles(processes: list[Process]) -> list[Process]:
    daemons = {one.pid for one in processes if _is_daemon(one.command)}
    roles: dict[int, Role] = {}
    for one in processes:
        if _is_daemon(one.command):
            roles[one.pid] = "worker" if one.parent in daemons else "daemon"
        elif "kafka.Kafka" in one.command:
            roles[one.pid] = "broker"
        elif "org.apache.spark.deploy.SparkSubmit" in one.command:
            roles[one.pid] = "jvm"
        elif "pyspark/streaming" in one.command or "pyspark.sql.worker" in one.command:
            roles[one.pid] = "worker"
        elif "-m respool" in one.command:
            roles[one.pid] = "python"
    return [Process(one.pid, one.parent, one.group, one.command, roles.get(one.pid, "other")) for one in processes]


def _is_daemon(command: str) -> bool:
    return "pyspark.daemon" in command or "respool.local.python_daemon" in command


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False when the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(marker: str, group: str | None, seconds: float) -> list[Process]:
    """Wait for the end of the processes of a run or a group, and return those that are left."""
    deadline = time.monotonic() + seconds
    while True:
        left = [one for one in find(marker, group) if not makes_class_archive(one)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def makes_class_archive(process: Process) -> bool:
    """Return whether a process is of the one that prepares quicker starts of Spark, which is meant to outlive a run."""
    return "respool.local.class_archive" in process.command or "ArchiveClassesAtExit" in process.command


def kill_all(marker: str) -> int:
    """Kill all processes of a run, and return how many there were."""
    killed: set[int] = set()
    for _ in range(50):
        left = find(marker)
        if not left:
            break
        for one in left:
            send(one.pid, signal.SIGKILL)
            killed.add(one.pid)
        time.sleep(0.1)
    return len(killed)
