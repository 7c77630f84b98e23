"""Start: the time of short `respool` commands, and the time until a pipeline has finished its first batch."""

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import data, rewind
from benchmarks.comparing import Bench, run_once
from benchmarks.engines import ENGINES, RESPOOL
from benchmarks.results import spread

_RECORDS = 1_000
_BATCHES = 100


def commands(runs: int) -> list[dict[str, Any]]:
    """Return a row for each command that needs no Spark."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "checkpoint"
        rewind.make_checkpoint(folder, _BATCHES, 2)
        measured = {"respool --help": ["--help"], "respool checkpoint show": ["checkpoint", "show", str(folder)]}
        rows = []
        for what, words in measured.items():
            seconds, memory = rewind.measure([RESPOOL, *words], runs)
            rows.append(_row(what, "respool", seconds, None, memory / 1e6))
    return rows


def first_batches(bench: Bench, runs: int) -> list[dict[str, Any]]:
    """Return a row for each engine: seconds from the start of its process to the end of its first batch."""
    dataset = data.prepare(bench.kafka, bench.place.folder / "data", _RECORDS, 50, bench.say)
    seconds: dict[str, list[float]] = {"respool": [], "pyspark": []}
    used: dict[str, list[float]] = {"respool": [], "pyspark": []}
    memory: dict[str, float] = {}
    for _ in range(runs):
        for engine in ENGINES:
            if engine.name in seconds:
                run = run_once(bench, "counts", engine, dataset, batch=_RECORDS)
                if run.status != "right":
                    bench.say(f"start {engine.name}: {run.status} {run.why}")
                    continue
                seconds[engine.name].append(run.marks[0][1])
                used[engine.name].append(run.cpu_s)
                memory[engine.name] = max(memory.get(engine.name, 0), run.pss_mb)
    return [
        _row("first batch of counts", name, seconds[name], used[name], memory[name])
        for name in seconds
        if seconds[name]
    ]


def _row(what: str, engine: str, seconds: list[float], cpu: list[float] | None, memory: float) -> dict[str, Any]:
    times, used = spread(seconds), spread(cpu or [])
    assert times is not None
    return {
        "what": what,
        "engine": engine,
        "median_s": round(times.median, 3),
        "least_s": round(times.least, 3),
        "most_s": round(times.most, 3),
        "cpu_s": round(used.median, 2) if used else None,
        "memory_mb": round(memory),
        "load": round(os.getloadavg()[0], 2),
    }
