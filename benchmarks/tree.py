"""Run a command, and say what its whole process tree took: `python tree.py REPORT LIMIT_SECONDS COMMAND…`.

A process of its own stands above the tree, so that what the kernel sums up for ended children is the tree's and nothing
else. It adopts processes whose parents end before them (they would go to init otherwise, with the CPU time they took),
and ends all of them when the command is over or the time is up. Only the standard library is used, and little of it:
this process runs beside what is measured.
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
    """Run the command of the arguments; the exit code is its own, or 124 when the time was up."""
    report, limit, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C reaches all of them; the bench, which hears it too, then asks for the end.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _end_all())
    begin = time.monotonic()
    process = subprocess.Popen(command)
    samples: list[dict[str, float]] = []
    while process.poll() is None and time.monotonic() - begin < limit:
        found = _sample()
        # A process that has ended, and that nobody waits for, such as a worker of pyspark, is in earlier samples only.
        found["cpu_s"] = max([found["cpu_s"], *(one["cpu_s"] for one in samples[-1:])])
        samples.append({"seconds": time.monotonic() - begin, **found})
        try:
            process.wait(_EVERY)
        except subprocess.TimeoutExpired:
            continue
    in_time = process.poll() is not None
    _end_all()
    code = process.wait() if in_time else 124
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "cpu_s": max([used.ru_utime + used.ru_stime, *(one["cpu_s"] for one in samples[-1:])]),
        "in_time": in_time,
        "code": code,
        **{name: max((one[name] for one in samples), default=0) for name in ("rss", "pss")},
        "samples": samples,
    }
    report.write_text(json.dumps(told), encoding="utf-8")
    sys.exit(code if code >= 0 else 128 - code)


def _end_all() -> None:
    """End all descendants, gently at first, and take note of what they took."""
    deadline = time.monotonic() + _GRACE
    signalled: set[int] = set()
    while _has_children():  # those of children that have ended are ours, too
        late = time.monotonic() > deadline
        found = set(_descendants())
        for pid in found if late else found - signalled:
            _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        signalled |= found
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _has_children() -> bool:
    """Return whether there are any, after a wait for every one that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants() -> Iterator[int]:
    """Yield the processes below this one, parents before their children, but those that have ended."""
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
            except OSError:  # it has ended meanwhile
                continue
            if state != "Z":
                yield int(name), int(parent)


def _sample() -> dict[str, float]:
    """Return what the tree holds and has taken by now.

    `rss` and `pss` are bytes in memory, shared pages counted for each process or once; `cpu_s` is the CPU time of the
    processes that are there and of those they have waited for. Parents are looked at first: one that waits for a child
    afterwards would have its time, too.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"rss": 0.0, "pss": 0.0, "cpu_s": ended.ru_utime + ended.ru_stime}
    for pid in _descendants():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                ticks = file.read().rpartition(")")[2].split()[11:15]
            found["cpu_s"] += sum(int(one) for one in ticks) / _TICKS
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    name = line[:4].rstrip(":").lower()
                    if name in ("rss", "pss"):
                        found[name] += int(line.split()[1]) * 1024
        except OSError:  # it has ended meanwhile, or is another user's
            continue
    return found


if __name__ == "__main__":
    main()
