"""Growth: respool's jobs at 1, 4 and 16 times as many events and open visits.

At every size each visit has eight events and never ends, and a batch is a tenth of the smallest size: the events of a
batch belong to different visits, so each event has about one result, however many visits are open.
"""

from typing import Any

from benchmarks import data
from benchmarks.comparing import Bench, run_once
from benchmarks.engines import ENGINES
from benchmarks.results import Run

JOBS = ("counts", "sessions", "archive")
FACTORS = (1, 4, 16)
_ROUNDS = 8


def grow(bench: Bench, events: int, runs: int, rows: list[dict[str, Any]]) -> None:
    """Add a row for each run.

    Args:
        bench: The setup; the time limit of a run grows with every doubling of the size.
        events: The number of events of the smallest size.
        runs: The number of runs of each job and size.
        rows: Rows are appended to this list.
    """
    respool = ENGINES[0]
    for factor in FACTORS:
        visits = max(1, events * factor // _ROUNDS)
        dataset = data.prepare(bench.kafka, bench.place.folder / "data", events * factor, visits, bench.say)
        longer = Bench(bench.place, bench.kafka, bench.broker, bench.limit * max(1, factor // 2), bench.say)
        for number in range(1, runs + 1):
            for job in JOBS:
                run = run_once(longer, job, respool, dataset, batch=max(1, events // 10))
                rows.append(_row(run, factor, dataset.events, visits))
                cost = f"{run.steady_cpu_s:.1f} CPU s a million" if run.steady_cpu_s else "no steady part"
                bench.say(
                    f"growth {job} ×{factor} {number}/{runs}: {cost}, {run.wall_s:.0f} s, {run.pss_mb:,.0f} MB, "
                    f"load {run.load:.1f}  {run.status} {run.why}".rstrip()
                )
        data.forget(bench.kafka, bench.place.folder / "data", dataset)


def _row(run: Run, factor: int, events: int, visits: int) -> dict[str, Any]:
    return {
        "job": run.job,
        "factor": factor,
        "events": events,
        "visits": visits,
        "status": run.status,
        "why": run.why,
        "wall_s_per_million": 1e6 / run.steady if run.steady else None,
        "cpu_s_per_million": run.steady_cpu_s,
        "pss_mb": run.pss_mb,
        "memory_growth": run.memory_growth,
        "wall_s": run.wall_s,
        "cpu_s": run.cpu_s,
        "load": run.load,
        "other_cpu_s": run.other_cpu_s,
    }
