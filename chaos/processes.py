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
        group: The group of pipelines that it belongs to; empty if it belongs to none.
        command: Its command line.
        role: Its role.
    """

    pid: int
    parent: int
    group: str
    command: str
    role: Role


def find(marker: str, group: str | None = None) -> list[Process]:
    """Return the running processes of a run, or of a group in it."""
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
                (text[len(GROUP) + 1 :].decode() for text in variables if text.startswith(f"{GROUP}=".encode())), ""
            )
            if group is None or name == group:
                processes.append(Process(int(folder.name), int(parent), name, command, "other"))
    return _with_roles(processes)


def _with_roles(processes: list[Process]) -> list[Process]:
    daemons = {process.pid for process in processes if _is_daemon(process.command)}
    roles: dict[int, Role] = {}
    for process in processes:
        if _is_daemon(process.command):
            roles[process.pid] = "worker" if process.parent in daemons else "daemon"
        elif "kafka.Kafka" in process.command:
            roles[process.pid] = "broker"
        elif "org.apache.spark.deploy.SparkSubmit" in process.command:
            roles[process.pid] = "jvm"
        elif "pyspark/streaming" in process.command or "pyspark.sql.worker" in process.command:
            roles[process.pid] = "worker"
        elif "-m respool" in process.command:
            roles[process.pid] = "python"
    return [
        Process(process.pid, process.parent, process.group, process.command, roles.get(process.pid, "other"))
        for process in processes
    ]


def _is_daemon(command: str) -> bool:
    return "pyspark.daemon" in command or "respool.spark.python_daemon" in command


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(marker: str, group: str | None, seconds: float) -> list[Process]:
    """Wait for the end of the processes of a run or a group, and return those that are still running."""
    deadline = time.monotonic() + seconds
    while True:
        left = [process for process in find(marker, group) if not makes_class_archive(process)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def makes_class_archive(process: Process) -> bool:
    """Return whether a process builds the class archive for faster starts of Spark; it may outlive a run."""
    return "respool.spark.jvm_classes" in process.command or "ArchiveClassesAtExit" in process.command


def kill_all(marker: str) -> int:
    """Kill all processes of a run, and return their number."""
    killed: set[int] = set()
    for _ in range(50):
        left = find(marker)
        if not left:
            break
        for process in left:
            send(process.pid, signal.SIGKILL)
            killed.add(process.pid)
        time.sleep(0.1)
    return len(killed)
