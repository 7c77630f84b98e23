"""What was measured, as plain data: runs, their medians, and the whole report as JSON."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.measure import Measured, memory_growth, steady, steady_cpu


@dataclass(frozen=True)
class Run:
    """One run of an engine.

    Attributes:
        job: What it did.
        engine: Its name.
        status: `right`: its result was checked; `wrong`; `stopped`: the time was up; `failed`.
        why: What is wrong, or why it failed.
        events: How many events it dealt with.
        steady: Events a second after the warm-up.
        wall_s: Seconds from its start to its last output.
        cpu_s: CPU seconds of its process tree.
        steady_cpu_s: CPU seconds for each million events after the warm-up.
        pss_mb: The most memory of the tree, in megabytes, shared pages counted once.
        rss_mb: The same, counted for each process.
        load: The machine's load before.
        broker_cpu_s: CPU seconds of the broker meanwhile.
        other_cpu_s: CPU seconds of others meanwhile.
        memory_growth: Its memory during the last quarter of the events against that during the second.
        table_bytes: What its table takes on disk, of an archive.
        marks: How far it was, in events and seconds; at most some 50 of them.
        said: What it told of itself.
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
        """Events a second between the two marks where it was fastest: for one without a steady rate."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        rates = [(after - before) / (end - begin) for (before, begin), (after, end) in pairs if end > begin]
        return max(rates, default=None)

    @property
    def counts(self) -> bool:
        """Whether its figures count: the result was right, or it was on its way when the time was up."""
        return self.status in ("right", "stopped")


@dataclass(frozen=True)
class Spread:
    """The median of several figures, the least and the most of them."""

    median: float
    least: float
    most: float

    def text(self, digits: int = 0, scale: float = 1.0) -> str:
        """Return it for readers: the median, and the range behind it when there is one."""
        median, least, most = (f"{one * scale:,.{digits}f}" for one in (self.median, self.least, self.most))
        return median if least == most else f"{median} ({least}–{most})"


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and the range; None for no figures."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def run_of(
    job: str, engine: str, events: int, measured: Measured, wrong: str | None, table_bytes: int | None = None
) -> Run:
    """Return a run as it is reported.

    Args:
        job: What it did.
        engine: Its name.
        events: How many events there are.
        measured: What it took.
        wrong: What is wrong with its result; None when it is right or could not be checked.
        table_bytes: What its table takes on disk.
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
        marks=tuple((one.events, round(one.seconds, 3)) for one in measured.marks[::each]),
        said=dict(measured.said),
    )


@dataclass
class Results:
    """Everything that was measured.

    Attributes:
        machine: What it was measured on.
        options: What was asked for.
        engines: What is known of each engine: title, recovers, runs_on, promises, not_run with its reason.
        runs: All runs of the jobs counts, sessions and archive.
        growth: The rows of the job growth.
        reprocess: The rows of the job reprocess.
        rewind: The rows of the job rewind.
        start: The rows of the job start.
    """

    machine: dict[str, Any]
    options: dict[str, Any]
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    reprocess: list[dict[str, Any]] = field(default_factory=list)
    rewind: list[dict[str, Any]] = field(default_factory=list)
    start: list[dict[str, Any]] = field(default_factory=list)

    def of(self, job: str, engine: str) -> list[Run]:
        """Return the runs of an engine whose figures count; none at all when one of them was wrong."""
        found = [one for one in self.runs if (one.job, one.engine) == (job, engine)]
        return [] if any(one.status == "wrong" for one in found) else [one for one in found if one.counts]

    def figure(self, job: str, engine: str, name: str) -> Spread | None:
        """Return a figure of an engine, over its runs."""
        values = [getattr(one, name) for one in self.of(job, engine)]
        return spread([one for one in values if one is not None])

    def problems(self, job: str, engine: str) -> list[str]:
        """Return what is to be told of an engine's runs beside the figures, each once."""
        runs = [one for one in self.runs if (one.job, one.engine) == (job, engine)]
        return list(dict.fromkeys(f"{one.status}: {one.why}" for one in runs if one.status != "right"))

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return asdict(self)

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> "Results":
        """Return what `to_json` gave."""
        runs = [Run(**{**one, "marks": tuple(tuple(mark) for mark in one["marks"])}) for one in facts["runs"]]
        return Results(**{**facts, "runs": runs})

    def without(self, jobs: Collection[str], engines: Collection[str]) -> "Results":
        """Return what is left when some jobs of some engines are to be measured again."""
        runs = [one for one in self.runs if not (one.job in jobs and one.engine in engines)]
        others: dict[str, Any] = {one: [] for one in ("growth", "reprocess", "rewind", "start") if one in jobs}
        return replace(self, runs=runs, **others)
