"""The goals of respool, as ratios within a single report, and whether they are met."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results import Results, spread

_FLAT = 1.15


@dataclass(frozen=True)
class Goal:
    """A goal.

    Attributes:
        job: The job.
        target: What should be reached.
        measured: What was measured.
        share: The measured fraction of the target: 1 or more is enough.
    """

    job: str
    target: str
    measured: str
    share: float

    @property
    def met(self) -> bool:
        """Whether the target was reached."""
        return self.share >= 1


def goals(results: Results) -> list[Goal]:
    """Return the goals of the jobs that were measured."""
    return [
        *_at_least(results, "counts", 1.5),
        *_ahead(results, "counts"),
        *_at_least(results, "sessions", 15),
        *_ahead(results, "sessions"),
        *_sessions_cpu(results),
        *_at_least(results, "archive", 2.5),
        *_archive_bytes(results),
        *_growth(results.growth),
        *_reprocess(results.reprocess),
        *_rewind(results.rewind),
        *_store(results.store),
        *_start(results.start),
    ]


def _at_least(results: Results, job: str, times: float) -> list[Goal]:
    own, plain = (results.figure(job, name, "steady") for name in ("respool", "pyspark"))
    words = ""
    if plain is None:  # it reached the time limit before it had a steady rate
        plain, words = results.figure(job, "pyspark", "fastest"), " that of its fastest batch"
    if own is None or plain is None:
        return []
    ratio = own.median / plain.median
    return [Goal(job, f"at least {times:g} × plain PySpark's steady rate", f"{ratio:.2f} ×{words}", ratio / times)]


def _ahead(results: Results, job: str) -> list[Goal]:
    own = results.figure(job, "respool", "steady")
    rates = {
        engine["title"]: rate.median
        for name, engine in results.engines.items()
        if name != "respool" and engine["recovers"] and (rate := results.figure(job, name, "steady")) is not None
    }
    if own is None or not rates:
        return []
    best = max(rates, key=lambda name: rates[name])
    ratio = f"{own.median / rates[best]:.2f} × the fastest other, {best}"
    return [Goal(job, "ahead of every engine that recovers from a crash", ratio, own.median / rates[best])]


def _sessions_cpu(results: Results) -> list[Goal]:
    own = results.figure("sessions", "respool", "cpu_s")
    if own is None:
        return []
    scaled = own.median * 2e6 / results.options["events"]
    return [Goal("sessions", "at most 40 CPU seconds for 2,000,000 events", f"{scaled:.1f}", 40 / scaled)]


def _archive_bytes(results: Results) -> list[Goal]:
    own, plain = (results.figure("archive", name, "table_bytes") for name in ("respool", "pyspark"))
    if own is None or plain is None:
        return []
    ratio = own.median / plain.median
    return [Goal("archive", "at most 1.3 × plain PySpark's bytes", f"{ratio:.2f} ×", 1.3 / ratio)]


def costs(rows: Sequence[dict[str, Any]], job: str, name: str) -> dict[int, float]:
    """Return the median of a figure of the job growth, by the factor of the size."""
    figures: dict[int, list[float]] = {}
    for row in rows:
        if row["job"] == job and row["status"] == "right" and row[name] is not None:
            figures.setdefault(row["factor"], []).append(row[name])
    medians = {factor: spread(values) for factor, values in figures.items()}
    return {factor: figure.median for factor, figure in medians.items() if figure is not None}


def _growth(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    goals = []
    for job in dict.fromkeys(row["job"] for row in rows):
        by_size = costs(rows, job, "cpu_s_per_million")
        if len(by_size) > 1:
            ratio = by_size[max(by_size)] / by_size[min(by_size)]
            target = f"{job}: cost of an event flat within 15 % from 1 × to {max(by_size)} ×"
            goals.append(Goal("growth", target, f"{ratio:.2f} ×", _FLAT / ratio))
        memory = costs(rows, job, "memory_growth")
        if memory:
            ratio = memory[max(memory)]
            target = f"{job}: memory at {max(memory)} × flat within 15 % from its second quarter to its last"
            goals.append(Goal("growth", target, f"{ratio:.2f} ×", _FLAT / ratio))
    return goals


def _reprocess(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    seconds = {(row["way"], row["days"]): row["median_s"] for row in rows}
    days = sorted({row["days"] for row in rows})
    if len(days) < 2:
        return []
    own, most = seconds["reprocess", days[-1]], days[-1]
    flat, faster = own / seconds["reprocess", days[0]], seconds["walk-through", most] / own
    return [
        Goal("reprocess", f"from 1 to {most} days flat within 1.5 ×", f"{flat:.2f} ×", 1.5 / flat),
        Goal(
            "reprocess", f"at least 20 × the speed of the walk-through at {most} days", f"{faster:.1f} ×", faster / 20
        ),
    ]


def _store(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    goals = []
    for row in rows:
        most = 1.2 if row["command"] == "show" else 2.5
        target = f"{row['command']}: at most {most:g} × the fewest requests"
        goals.append(Goal("store", target, f"{row['times_least']:.2f} ×", most / row["times_least"]))
        if row["command"] != "show":
            faster = row["times_faster"]
            goals.append(Goal("store", f"{row['command']}: 5 × as fast as one by one", f"{faster:.1f} ×", faster / 5))
    return goals


def _rewind(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    goals = []
    for command in dict.fromkeys(row["command"] for row in rows):
        seconds = {int(row["batches"]): float(row["median_s"]) for row in rows if row["command"] == command}
        few, many = min(seconds), max(seconds)
        goals.append(
            Goal("rewind", f"{command} of {many:,} batches under 1 s", f"{seconds[many]:.2f} s", 1 / seconds[many])
        )
        if few < many:
            more, longer = many / few, seconds[many] / seconds[few]
            goals.append(
                Goal(
                    "rewind",
                    f"{command} linear at worst: {more:g} × the batches",
                    f"{longer:.1f} × the time",
                    more / longer,
                )
            )
    return goals


def _start(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    first = {row["engine"]: row["median_s"] for row in rows if row["what"].startswith("first batch")}
    if len(first) < 2:
        return []
    ratio = first["respool"] / first["pyspark"]
    return [Goal("start", "first batch no slower than plain PySpark's", f"{ratio:.2f} × its time", 1 / ratio)]
