"""Run a command and measure its whole process tree: `python tree.py REPORT LIMIT_SECONDS COMMAND…`.

This is a separate process above the tree, so that the kernel's totals for ended children cover the tree and nothing
else. It adopts processes whose parents end before them (otherwise init would, and their CPU time would be lost), and
ends all of them when the command has ended or at the time limit. It uses little of the standard library and nothing
else, as it runs during the measurement.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_EVERY = 1.0
_GRACE = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the command of the arguments; exit with its exit code, or with 124 at the time limit."""
    report, limit, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C reaches all processes; the benchmark, which receives it too, then sends SIGTERM.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _end_all())
    begin = time.monotonic()
    process = subprocess.Popen(command)
    samples: list[dict[str, float]] = []
    while process.poll() is None and time.monotonic() - begin < limit:
        sample = _sample()
        # A process that ended without being waited for, such as a worker of pyspark, is in earlier samples only.
        sample["cpu_s"] = max([sample["cpu_s"], *(previous["cpu_s"] for previous in samples[-1:])])
        samples.append({"seconds": time.monotonic() - begin, **sample})
        try:
            process.wait(_EVERY)
        except subprocess.TimeoutExpired:
            continue
    in_time = process.poll() is not None
    _end_all()
    code = process.wait() if in_time else 124
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = {
        "cpu_s": max([used.ru_utime + used.ru_stime, *(sample["cpu_s"] for sample in samples[-1:])]),
        "in_time": in_time,
        "code": code,
        **{name: max((sample[name] for sample in samples), default=0) for name in ("rss", "pss")},
        "samples": samples,
    }
    report.write_text(json.dumps(usage), encoding="utf-8")
    sys.exit(code if code >= 0 else 128 - code)


def _end_all() -> None:
    """End all descendants, first by SIGTERM, and wait for them, so that their CPU time is counted."""
    deadline = time.monotonic() + _GRACE
    signalled: set[int] = set()
    while _has_children():  # orphans are adopted, so they are children, too
        late = time.monotonic() > deadline
        descendants = set(_descendants())
        for pid in descendants if late else descendants - signalled:
            _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        signalled |= descendants
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _has_children() -> bool:
    """Wait for every child that has ended, and return whether any others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants() -> Iterator[int]:
    """Yield the running processes below this process, parents before their children."""
    parents = dict(_parents())
    generation = {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        yield from generation


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:  # the process has ended in the meantime
                continue
            if state != "Z":
                yield int(name), int(parent)


def _sample() -> dict[str, float]:
    """Return the memory of the tree and the CPU time that it has used so far.

    `rss` and `pss` are bytes in memory, with shared pages counted for each process or once; `cpu_s` is the CPU time of
    running processes and of those that they have waited for. Parents are read first: a parent that waits for a child
    afterwards would include the child's time, too.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    sample = {"rss": 0.0, "pss": 0.0, "cpu_s": ended.ru_utime + ended.ru_stime}
    for pid in _descendants():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                ticks = file.read().rpartition(")")[2].split()[11:15]
            sample["cpu_s"] += sum(int(value) for value in ticks) / _TICKS
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    name = line[:4].rstrip(":").lower()
                    if name in ("rss", "pss"):
                        sample[name] += int(line.split()[1]) * 1024
        except OSError:  # the process has ended in the meantime, or belongs to another user
            continue
    return sample


if __name__ == "__main__":
    main()
