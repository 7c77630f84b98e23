"""One run of one engine: how fast it went, and what it took of the machine.

A program tells how far it is by lines of JSON on its standard output: `{"events": 400000}` for the events that it has
taken in so far, or `{"rows": 200000}` for those of one batch, as `respool run --json` does. The time of a line is the
time at which it is read here, less the seconds of `"ago"`, if it has that.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TREE = Path(__file__).parent / "tree.py"
_WARM_UP = 400_000
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Mark:
    """So many events were dealt with so many seconds after the start."""

    events: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """What the process tree had taken and held so many seconds after the start: CPU seconds, bytes."""

    seconds: float
    cpu_s: float
    pss: float


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Attributes:
        marks: How far it was, and when.
        in_time: It ended by itself, within the limit.
        code: Its exit code.
        cpu_s: CPU seconds of the process tree.
        pss: The most memory that the tree held, in bytes, shared pages counted once.
        rss: The same, shared pages counted for each process.
        load: The machine's load of the minute before.
        broker_cpu_s: CPU seconds of the broker meanwhile.
        other_cpu_s: CPU seconds that anything else on the machine took meanwhile.
        log: What it printed to standard error.
        said: What else it told of itself.
        samples: What it took and held, second by second.
    """

    marks: tuple[Mark, ...]
    in_time: bool
    code: int
    cpu_s: float
    pss: int
    rss: int
    load: float
    broker_cpu_s: float
    other_cpu_s: float
    log: Path
    said: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()

    @property
    def events(self) -> int:
        """How many events it has dealt with."""
        return self.marks[-1].events if self.marks else 0

    @property
    def wall_s(self) -> float:
        """Seconds from the start of the process to its last output."""
        return self.marks[-1].seconds if self.marks else 0.0

    def why(self) -> str:
        """Return the last telling line of its standard error."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "Error" in line or "Exception" in line]
        return (telling or lines or ["nothing was said"])[-1][:300]


def warm_up(events: int) -> int:
    """Return after how many events the steady part begins: 400,000, or a fifth of a small run."""
    return _WARM_UP if events >= 2 * _WARM_UP else events // 5


def steady(marks: Sequence[Mark], events: int) -> float | None:
    """Return the events a second between the end of the warm-up and the last mark; None without two such marks."""
    after = [mark for mark in marks if mark.events >= warm_up(events)]
    if not after or after[-1].seconds <= after[0].seconds or after[-1].events <= after[0].events:
        return None
    return (after[-1].events - after[0].events) / (after[-1].seconds - after[0].seconds)


def steady_cpu(measured: Measured, events: int) -> float | None:
    """Return the CPU seconds for each million events after the warm-up; None when that cannot be told."""
    after = [mark for mark in measured.marks if mark.events >= warm_up(events)]
    if len(after) < 2 or after[-1].events <= after[0].events or not measured.samples:
        return None
    used = cpu_at(measured.samples, after[-1].seconds) - cpu_at(measured.samples, after[0].seconds)
    return used / (after[-1].events - after[0].events) * 1e6


def memory_growth(measured: Measured, events: int) -> float | None:
    """Return the memory during the last quarter of the events against that during the second; None without samples."""

    def held(first: float, last: float) -> list[float]:
        begin, end = (
            min((one.seconds for one in measured.marks if one.events >= part * events), default=0.0)
            for part in (first, last)
        )
        return [one.pss for one in measured.samples if begin <= one.seconds <= end]

    before, after = held(0.25, 0.5), held(0.75, 1.0)
    return statistics.median(after) / statistics.median(before) if before and after else None


def cpu_at(samples: Sequence[Sample], seconds: float) -> float:
    """Return the CPU seconds at a time, on a straight line between the samples around it."""
    before = max((one for one in samples if one.seconds <= seconds), key=lambda one: one.seconds, default=samples[0])
    after = min((one for one in samples if one.seconds > seconds), key=lambda one: one.seconds, default=before)
    if after.seconds <= before.seconds:
        return before.cpu_s
    part = (seconds - before.seconds) / (after.seconds - before.seconds)
    return before.cpu_s + part * (after.cpu_s - before.cpu_s)


def run(
    words: Sequence[str], folder: Path, limit: float, broker: int | None, environ: Mapping[str, str] | None = None
) -> Measured:
    """Run a command to its end or to the limit.

    Args:
        words: The command.
        folder: Where its log goes.
        limit: The most seconds.
        broker: The broker's process, to tell its CPU time.
        environ: What to add to the environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, log = folder / "tree.json", folder / "log.txt"
    load = os.getloadavg()[0]
    busy, brokers, own = _busy(), _cpu_of(broker), _own()
    begin = time.monotonic()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-S", str(_TREE), str(report), str(limit), *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environ or {})},
            cwd=folder,
        )
        try:
            marks, said = _read(process, begin)
        finally:
            process.terminate()
            process.wait()
    told = json.loads(report.read_text())
    used = told["cpu_s"]
    brokers = _cpu_of(broker) - brokers
    other = _busy() - busy - used - brokers - (_own() - own)
    return Measured(
        marks=tuple(marks),
        in_time=told["in_time"],
        code=told["code"],
        cpu_s=used,
        pss=told["pss"],
        rss=told["rss"],
        load=load,
        broker_cpu_s=brokers,
        other_cpu_s=max(0.0, other),
        log=log,
        said=said,
        samples=tuple(Sample(one["seconds"], one["cpu_s"], one["pss"]) for one in told["samples"]),
    )


def _read(process: "subprocess.Popen[bytes]", begin: float) -> tuple[list[Mark], dict[str, str]]:
    """Return the marks and the other words of a program until it ends."""
    assert process.stdout is not None
    marks: list[Mark] = []
    said: dict[str, str] = {}
    with process.stdout as lines:
        for line in lines:
            found = _told(line)
            now = time.monotonic() - begin - found.get("ago", 0)
            if "events" in found:
                marks.append(Mark(int(found["events"]), now))
            elif "rows" in found:
                marks.append(Mark((marks[-1].events if marks else 0) + int(found["rows"]), now))
            elif "said" in found:
                said.update(found["said"])
    return marks, said


def _told(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:  # a word of the engine itself
        return {}
    return found if isinstance(found, dict) else {}


def _busy() -> float:
    """Return the CPU seconds that the machine has worked, all told."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, interrupts, soft, *_ = (int(one) for one in file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / _TICKS


def _cpu_of(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
