"""A run of an engine: its speed, and its use of CPU and memory.

A program reports progress by lines of JSON on its standard output: `{"events": 400000}` for all events processed so
far, or `{"rows": 200000}` for those of a single batch, as `respool run --json` does. The time of a line is the time at
which it is read here, minus the seconds in `"ago"`, if present.
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
    """How many events were processed by a time, in seconds after the start."""

    events: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """CPU seconds and bytes of memory used by the process tree at a time, in seconds after the start."""

    seconds: float
    cpu_s: float
    pss: float


@dataclass(frozen=True)
class Measured:
    """The measurements of a run.

    Attributes:
        marks: Its progress over time.
        in_time: Whether it ended on its own, within the limit.
        code: Its exit code.
        cpu_s: CPU seconds of the process tree.
        pss: The peak memory of the tree in bytes, with shared pages counted once.
        rss: The same, with shared pages counted for each process.
        load: The machine's load average of the minute before the run.
        broker_cpu_s: CPU seconds of the broker during the run.
        other_cpu_s: CPU seconds of all other processes on the machine during the run.
        log: The file of its standard error.
        said: Other properties that it printed.
        samples: CPU time and memory, second by second.
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
        """The number of events processed."""
        return self.marks[-1].events if self.marks else 0

    @property
    def wall_s(self) -> float:
        """Seconds from the start of the process to its last output."""
        return self.marks[-1].seconds if self.marks else 0.0

    def why(self) -> str:
        """Return the last error in its standard error, or its last line."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return (errors or lines or ["standard error is empty"])[-1][:300]


def warm_up(events: int) -> int:
    """Return after how many events the steady part begins: 400,000, or a fifth of a small run."""
    return _WARM_UP if events >= 2 * _WARM_UP else events // 5


def steady(marks: Sequence[Mark], events: int) -> float | None:
    """Return the events a second between the end of the warm-up and the last mark; None without two of these marks."""
    after = [mark for mark in marks if mark.events >= warm_up(events)]
    if not after or after[-1].seconds <= after[0].seconds or after[-1].events <= after[0].events:
        return None
    return (after[-1].events - after[0].events) / (after[-1].seconds - after[0].seconds)


def steady_cpu(measured: Measured, events: int) -> float | None:
    """Return the CPU seconds for each million events after the warm-up; None without enough marks or samples."""
    after = [mark for mark in measured.marks if mark.events >= warm_up(events)]
    if len(after) < 2 or after[-1].events <= after[0].events or not measured.samples:
        return None
    used = cpu_at(measured.samples, after[-1].seconds) - cpu_at(measured.samples, after[0].seconds)
    return used / (after[-1].events - after[0].events) * 1e6


def memory_growth(measured: Measured, events: int) -> float | None:
    """Return the ratio of memory in the last quarter of the events to the second quarter; None without samples."""

    def held(first: float, last: float) -> list[float]:
        begin, end = (
            min((mark.seconds for mark in measured.marks if mark.events >= part * events), default=0.0)
            for part in (first, last)
        )
        return [sample.pss for sample in measured.samples if begin <= sample.seconds <= end]

    before, after = held(0.25, 0.5), held(0.75, 1.0)
    return statistics.median(after) / statistics.median(before) if before and after else None


def cpu_at(samples: Sequence[Sample], seconds: float) -> float:
    """Return the CPU seconds at a time, interpolated between the samples around it."""
    earlier = [sample for sample in samples if sample.seconds <= seconds]
    later = [sample for sample in samples if sample.seconds > seconds]
    before = max(earlier, key=lambda sample: sample.seconds, default=samples[0])
    after = min(later, key=lambda sample: sample.seconds, default=before)
    if after.seconds <= before.seconds:
        return before.cpu_s
    part = (seconds - before.seconds) / (after.seconds - before.seconds)
    return before.cpu_s + part * (after.cpu_s - before.cpu_s)


def run(
    command: Sequence[str], folder: Path, limit: float, broker: int | None, environ: Mapping[str, str] | None = None
) -> Measured:
    """Run a command to its end or to the limit.

    Args:
        command: The command.
        folder: The working directory, and the folder of its log.
        limit: The maximum number of seconds.
        broker: The broker's process, whose CPU time is measured separately.
        environ: Environment variables to add.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, log = folder / "tree.json", folder / "log.txt"
    load = os.getloadavg()[0]
    busy, brokers, own = _busy(), _cpu_of(broker), _own()
    begin = time.monotonic()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-S", str(_TREE), str(report), str(limit), *command],
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
    usage = json.loads(report.read_text())
    used = usage["cpu_s"]
    brokers = _cpu_of(broker) - brokers
    other = _busy() - busy - used - brokers - (_own() - own)
    return Measured(
        marks=tuple(marks),
        in_time=usage["in_time"],
        code=usage["code"],
        cpu_s=used,
        pss=usage["pss"],
        rss=usage["rss"],
        load=load,
        broker_cpu_s=brokers,
        other_cpu_s=max(0.0, other),
        log=log,
        said=said,
        samples=tuple(Sample(sample["seconds"], sample["cpu_s"], sample["pss"]) for sample in usage["samples"]),
    )


def _read(process: "subprocess.Popen[bytes]", begin: float) -> tuple[list[Mark], dict[str, str]]:
    """Return the marks and the other properties that a program prints until it ends."""
    assert process.stdout is not None
    marks: list[Mark] = []
    said: dict[str, str] = {}
    with process.stdout as lines:
        for line in lines:
            values = _parse(line)
            now = time.monotonic() - begin - values.get("ago", 0)
            if "events" in values:
                marks.append(Mark(int(values["events"]), now))
            elif "rows" in values:
                marks.append(Mark((marks[-1].events if marks else 0) + int(values["rows"]), now))
            elif "said" in values:
                said.update(values["said"])
    return marks, said


def _parse(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:  # other output of the engine
        return {}
    return values if isinstance(values, dict) else {}


def _busy() -> float:
    """Return the CPU seconds of all processes on the machine."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, interrupts, soft, *_ = (int(number) for number in file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / _TICKS


def _cpu_of(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
