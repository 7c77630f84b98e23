"""Growth: respool's jobs at 1, 4 and 16 times as many events and open visits.

Every size has eight rounds of its visits, none of which ends, in batches of a tenth of the smallest size: each event of
a batch is another visit's, so that there is about one result for each event, however many visits are open.
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
        bench: Where; a run may take its limit for each 2 times of the smallest size.
        events: How many events the smallest size has.
        runs: How many runs of each job and size.
        rows: Where to.
    """
    respool = ENGINES[0]
    for factor in FACTORS:
        visits = max(1, events * factor // _ROUNDS)
        made = data.prepare(bench.kafka, bench.place.folder / "data", events * factor, visits, bench.say)
        longer = Bench(bench.place, bench.kafka, bench.broker, bench.limit * max(1, factor // 2), bench.say)
        for number in range(1, runs + 1):
            for job in JOBS:
                one = run_once(longer, job, respool, made, batch=max(1, events // 10))
                rows.append(_row(one, factor, made.events, visits))
                cost = f"{one.steady_cpu_s:.1f} CPU s a million" if one.steady_cpu_s else "no steady part"
                bench.say(
                    f"growth {job} ×{factor} {number}/{runs}: {cost}, {one.wall_s:.0f} s, {one.pss_mb:,.0f} MB, "
                    f"load {one.load:.1f}  {one.status} {one.why}".rstrip()
                )
        data.forget(bench.kafka, bench.place.folder / "data", made)


def _row(one: Run, factor: int, events: int, visits: int) -> dict[str, Any]:
    return {
        "job": one.job,
        "factor": factor,
        "events": events,
        "visits": visits,
        "status": one.status,
        "why": one.why,
        "wall_s_per_million": 1e6 / one.steady if one.steady else None,
        "cpu_s_per_million": one.steady_cpu_s,
        "pss_mb": one.pss_mb,
        "memory_growth": one.memory_growth,
        "wall_s": one.wall_s,
        "cpu_s": one.cpu_s,
        "load": one.load,
        "other_cpu_s": one.other_cpu_s,
    }
