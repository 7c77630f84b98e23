"""Counts and sessions on a cluster of two workers with one core each, and in a local Spark with two cores.

Both have the same two cores of this machine, and the same checkpoints on its disk: the difference is what a cluster
costs. The cost of a batch is also measured by the number of state partitions, on the cluster.
"""

import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.comparing import Bench, run_once
from benchmarks.data import Data
from benchmarks.engines import ENGINES, Engine, Task
from benchmarks.environments import Place
from benchmarks.results import Run
from support.cluster import standalone_cluster

JOBS = ("counts", "sessions")
PARTITIONS = (2, 8, 32, 200)
_BATCHES = 6  # of a run that measures the cost of a batch
_LOCAL, _CLUSTER = "local[2]", "2 workers × 1 core"


def measure_all(bench: Bench, events: Data, runs: int, rows: list[dict[str, Any]]) -> None:
    """Add a row for each run.

    Args:
        bench: The setup.
        events: The events.
        runs: The number of runs of each job.
        rows: Rows are appended to this list.
    """
    with tempfile.TemporaryDirectory(prefix="respool-bench-") as folder, standalone_cluster(Path(folder)) as cluster:
        for number in range(1, runs + 1):
            for job in JOBS:
                for where, engine in ((_LOCAL, _on(_LOCAL, {})), (_CLUSTER, _on(cluster.address, cluster.spark))):
                    run = run_once(bench, job, engine, events)
                    _add(bench, rows, run, where, None, f"{number}/{runs}")
        for partitions in PARTITIONS:
            engine = _on(cluster.address, {**cluster.spark, "spark.sql.shuffle.partitions": str(partitions)})
            run = run_once(bench, "counts", engine, events, batch=max(1, events.events // _BATCHES))
            _add(bench, rows, run, _CLUSTER, partitions, f"{partitions} partitions")


def _on(master: str, spark: Mapping[str, str]) -> Engine:
    """Return respool with a master and settings of Spark."""
    respool = ENGINES[0]

    def command(place: Place, task: Task) -> list[str]:
        task.folder.mkdir(parents=True, exist_ok=True)
        lines = ["[spark]", *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in spark.items())]
        (task.folder / "respool.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = respool.command(place, task)
        words[words.index("--master") + 1] = master
        return words

    return replace(respool, command=command)


def _add(bench: Bench, rows: list[dict[str, Any]], run: Run, where: str, partitions: int | None, what: str) -> None:
    # The first two batches load code in the driver and on the executors.
    times = [seconds for _, seconds in run.marks][1:]
    batches = [after - before for before, after in pairwise(times)]
    row = {
        "job": run.job,
        "where": where,
        "partitions": partitions,
        "events": run.events,
        "status": run.status,
        "why": run.why,
        "steady": run.steady,
        "batch_s": round(statistics.median(batches), 3) if batches else None,
        "wall_s": run.wall_s,
        "load": run.load,
        "other_cpu_s": run.other_cpu_s,
    }
    rows.append(row)
    bench.say(
        f"cluster {run.job} on {where} {what}: {row['batch_s']} s a batch, {run.wall_s:.1f} s  {run.status} "
        f"{run.why}".rstrip()
    )
