"""A background process, identified by its id and its start time, because ids are reused.

Run as a script, this file is the launcher: it detaches a child, which writes its own process file and then becomes the
program. So the program never runs without being recorded in the file, whichever process is killed. The launcher imports
only the standard library, to start fast.
"""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN = f"unknown {os.getpid()} {time.time_ns()}"


def launch(command: list[str], folder: Path, process_file: Path, output: Path) -> None:
    """Start a program detached, in its own session, and return once it runs.

    Args:
        command: The program, by its full path, and its arguments.
        folder: The folder it runs in.
        process_file: The file in which it records its process id and start time, for `find`.
        output: The file for its standard output and standard error, truncated first.

    Raises:
        OSError: It could not be started.
    """
    launcher = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(process_file), *command]
    with output.open("wb") as sink:
        ran = subprocess.run(launcher, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.PIPE)
    if ran.returncode != 0:
        number, _, text = ran.stderr.decode(errors="replace").strip().partition(" ")
        raise OSError(int(number) if number.isdigit() else 0, text or "it could not be started", command[0])


def find(process_file: Path) -> int | None:
    """Return the id of the process that wrote this file, or None when it no longer runs."""
    from respool.untrusted import Fields, Malformed, parse_json, read_regular_file

    try:
        facts = Fields(parse_json(read_regular_file(process_file)))
        pid, started = facts.whole("pid", least=1, most=2**31 - 1), facts.text("started")
    except (OSError, Malformed):
        return None
    return pid if started and start_time(pid) == started else None


def end(process_file: Path, patience: float) -> bool:
    """End the process of this file, gently first, and remove the file. Return False when none ran.

    Raises:
        PermissionError: It is another user's process.
        TimeoutError: It survived even SIGKILL.
    """
    pid = find(process_file)
    if pid is not None and not (
        _signal(pid, signal.SIGTERM, process_file, patience) or _signal(pid, signal.SIGKILL, process_file, 10.0)
    ):
        raise TimeoutError(errno.ETIMEDOUT, f"process {pid} does not end")
    process_file.unlink(missing_ok=True)
    return pid is not None


def _signal(pid: int, number: int, process_file: Path, seconds: float) -> bool:
    """Send a signal, and return whether the process ends within some seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return _gone(process_file, seconds)


def _gone(process_file: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while find(process_file) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def start_time(pid: int) -> str:
    """Return when a process started, as text that no later process with this id has; empty when it does not run."""
    if _BOOT.exists():
        try:
            # The name, in parentheses, may have spaces. State is the 3rd field, threads the 20th, start time the 22nd.
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        # A first thread may be dead while others still hold files and ports: the process is gone with the last.
        if fields[0] in "ZX" and int(fields[17]) <= 1:
            return ""
        return f"{_BOOT.read_text(encoding='ascii').strip()} {fields[19]}"
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, when = shown.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else when.strip()


def machine() -> str:
    """Return an id of the machine on which process ids are valid: its boot and the container.

    Containers of a machine share its boot id, but not their processes. Where the system has no such ids, every process
    returns another value.
    """
    try:
        return f"{_BOOT.read_text(encoding='ascii').strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return _UNKNOWN


def _detach(process_file: str, command: list[str]) -> int:
    """Fork, and return the exit code of the launcher; the child never returns."""
    answer, question = os.pipe()  # Closed by exec: nothing to read means that the program runs.
    if os.fork() == 0:
        os.close(answer)
        _become(process_file, command, question)
    os.close(question)
    with os.fdopen(answer, "rb") as pipe:
        error = pipe.read()
    sys.stderr.buffer.write(error)
    return 1 if error else 0


def _become(process_file: str, command: list[str], question: int) -> None:
    try:
        os.setsid()
        pid = os.getpid()
        new = f"{process_file}.new"
        with open(new, "w", encoding="ascii") as file:
            json.dump({"pid": pid, "started": start_time(pid)}, file)
        os.replace(new, process_file)
        os.dup2(1, 2)
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(question, f"{error.errno} {error.strerror}".encode())
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(_detach(sys.argv[1], sys.argv[2:]))
