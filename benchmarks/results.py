"""Measurements as plain data: runs, their medians, and the whole report as JSON."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.measure import Measured, memory_growth, steady, steady_cpu


@dataclass(frozen=True)
class Run:
    """A run of an engine.

    Attributes:
        job: The job.
        engine: The name of the engine.
        status: `right`: its result was checked; `wrong`; `stopped` at the time limit; `failed`.
        why: What is wrong, or why it failed.
        events: The number of events processed.
        steady: Events per second after the warm-up.
        wall_s: Seconds from its start to its last output.
        cpu_s: CPU seconds of its process tree.
        steady_cpu_s: CPU seconds for each million events after the warm-up.
        pss_mb: The peak memory of the tree, in megabytes, with shared pages counted once.
        rss_mb: The same, with shared pages counted for each process.
        load: The machine's load average before the run.
        broker_cpu_s: CPU seconds of the broker during the run.
        other_cpu_s: CPU seconds of all other processes during the run.
        memory_growth: The ratio of its memory in the last quarter of the events to the second quarter.
        table_bytes: The size of its table on disk, for an archive.
        marks: Its progress, in events and seconds; about 50 at most.
        said: Other properties that it printed.
    """

    job: str
    engine: str
    status: str
    why: str
    events: int
    steady: float | None
    wall_s: float
    cpu_s: float
    steady_cpu_s: float | None
    pss_mb: float
    rss_mb: float
    load: float
    broker_cpu_s: float
    other_cpu_s: float
    memory_growth: float | None = None
    table_bytes: int | None = None
    marks: tuple[tuple[int, float], ...] = ()
    said: dict[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> float | None:
        """Events per second between the two marks where it was fastest, for a run without a steady rate."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        rates = [(after - before) / (end - begin) for (before, begin), (after, end) in pairs if end > begin]
        return max(rates, default=None)

    @property
    def counts(self) -> bool:
        """Whether its figures count: the result was right, or the run was stopped at the time limit."""
        return self.status in ("right", "stopped")


@dataclass(frozen=True)
class Spread:
    """The median, the minimum and the maximum of several figures."""

    median: float
    least: float
    most: float

    def text(self, digits: int = 0, scale: float = 1.0) -> str:
        """Return the median, followed by the range unless all figures are equal."""
        median, least, most = (f"{value * scale:,.{digits}f}" for value in (self.median, self.least, self.most))
        return median if least == most else f"{median} ({least}–{most})"


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and the range; None without figures."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def run_of(
    job: str, engine: str, events: int, measured: Measured, wrong: str | None, table_bytes: int | None = None
) -> Run:
    """Return a run as it is reported.

    Args:
        job: The job.
        engine: The name of the engine.
        events: The number of events in the topic.
        measured: The measurements.
        wrong: What is wrong with its result; None if it is right or could not be checked.
        table_bytes: The size of its table on disk.
    """
    if wrong is not None:
        status, why = "wrong", wrong
    elif not measured.in_time:
        status, why = "stopped", f"after {measured.events:,} of {events:,} events"
    elif measured.code != 0 or measured.events < events:
        status, why = "failed", measured.why()
    else:
        status, why = "right", ""
    each = max(1, len(measured.marks) // 50)
    return Run(
        job=job,
        engine=engine,
        status=status,
        why=why,
        events=measured.events,
        steady=steady(measured.marks, events),
        wall_s=round(measured.wall_s, 2),
        cpu_s=round(measured.cpu_s, 2),
        steady_cpu_s=steady_cpu(measured, events),
        pss_mb=round(measured.pss / 1e6, 1),
        rss_mb=round(measured.rss / 1e6, 1),
        load=round(measured.load, 2),
        broker_cpu_s=round(measured.broker_cpu_s, 2),
        other_cpu_s=round(measured.other_cpu_s, 2),
        memory_growth=memory_growth(measured, events),
        table_bytes=table_bytes,
        marks=tuple((mark.events, round(mark.seconds, 3)) for mark in measured.marks[::each]),
        said=dict(measured.said),
    )


_OTHERS = ("growth", "reprocess", "rewind", "store", "start", "cluster", "fleet")  # jobs that no other engine does


@dataclass
class Results:
    """All measurements.

    Attributes:
        machine: The machine.
        options: The options of the benchmark.
        engines: The properties of each engine: title, recovers, runs_on, promises, and the reason in not_run.
        runs: All runs of the jobs counts, sessions and archive.
        growth: The rows of the job growth.
        reprocess: The rows of the job reprocess.
        rewind: The rows of the job rewind.
        store: The rows of the job store.
        start: The rows of the job start.
        cluster: The rows of the job cluster.
        fleet: The rows of the job fleet.
    """

    machine: dict[str, Any]
    options: dict[str, Any]
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    reprocess: list[dict[str, Any]] = field(default_factory=list)
    rewind: list[dict[str, Any]] = field(default_factory=list)
    store: list[dict[str, Any]] = field(default_factory=list)
    start: list[dict[str, Any]] = field(default_factory=list)
    cluster: list[dict[str, Any]] = field(default_factory=list)
    fleet: list[dict[str, Any]] = field(default_factory=list)

    def of(self, job: str, engine: str) -> list[Run]:
        """Return the runs of an engine whose figures count; no runs at all if any of them was wrong."""
        runs = [run for run in self.runs if (run.job, run.engine) == (job, engine)]
        return [] if any(run.status == "wrong" for run in runs) else [run for run in runs if run.counts]

    def figure(self, job: str, engine: str, name: str) -> Spread | None:
        """Return a figure of an engine, over its runs."""
        values = [getattr(run, name) for run in self.of(job, engine)]
        return spread([value for value in values if value is not None])

    def problems(self, job: str, engine: str) -> list[str]:
        """Return the problems of an engine's runs, each once."""
        runs = [run for run in self.runs if (run.job, run.engine) == (job, engine)]
        return list(dict.fromkeys(f"{run.status}: {run.why}" for run in runs if run.status != "right"))

    def to_json(self) -> dict[str, Any]:
        """Return all measurements as plain data."""
        return asdict(self)

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> "Results":
        """Return the measurements from the data that `to_json` returns."""
        runs = [Run(**{**run, "marks": tuple(tuple(mark) for mark in run["marks"])}) for run in facts["runs"]]
        return Results(**{**facts, "runs": runs})

    def without(self, jobs: Collection[str], engines: Collection[str]) -> "Results":
        """Return these measurements without some jobs of some engines, which are measured again."""
        runs = [run for run in self.runs if not (run.job in jobs and run.engine in engines)]
        others: dict[str, Any] = {job: [] for job in _OTHERS if job in jobs}
        return replace(self, runs=runs, **others)
