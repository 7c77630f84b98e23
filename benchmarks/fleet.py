"""Fleet: several pipelines in one application, in local mode: what each further pipeline costs.

All count the same few records, and then wait for more: what they use from then on is the cost of triggers without
records.
"""

import uuid
from typing import Any

from benchmarks import data, measure
from benchmarks.comparing import Bench
from benchmarks.engines import RESPOOL
from benchmarks.measure import Measured, cpu_at
from respool.kafka import topics

SIZES = (1, 20)
TRIGGER = 10  # seconds
_RECORDS = 1_000
_LASTS = 120.0  # seconds
_SETTLED = 10.0  # seconds after the last batch
_MODULE = """
from dataclasses import replace
from respool.visits.counts import visit_counts

for number in range({count}):
    pipeline = visit_counts(topic={topic!r}, output_topic=f"{output}-{{number}}")
    globals()[f"p{{number}}"] = replace(pipeline, name=f"fleet-{{number}}")
"""


def measure_all(bench: Bench, rows: list[dict[str, Any]]) -> None:
    """Add a row for each size."""
    events = data.prepare(bench.kafka, bench.place.folder / "data", _RECORDS, 50, bench.say)
    for count in SIZES:
        name = f"fleet-{uuid.uuid4().hex[:8]}"
        folder = bench.place.folder / "runs" / name
        folder.mkdir(parents=True)
        text = _MODULE.format(count=count, topic=events.topic, output=name)
        (folder / "fleet.py").write_text(text, encoding="utf-8")
        command = [
            *(RESPOOL, "run", *(f"fleet:p{number}" for number in range(count)), "--json", "--no-dead-letter"),
            *("--trigger", f"{TRIGGER}s", "--master", "local[2]", "--home", str(folder / "home")),
            *("--bootstrap-servers", bench.kafka.bootstrap_servers),
        ]
        measured = measure.run(command, folder, _LASTS, bench.broker, {"TZ": "UTC"})
        row = row_of(count, measured)
        rows.append(row)
        bench.say(f"fleet of {count}: {row}" if row["status"] == "right" else f"fleet of {count}: {measured.why()}")
        for topic in topics.list_topics(bench.kafka):
            if topic.name.startswith(name):
                topics.delete(bench.kafka, topic.name)
        if row["status"] == "right":
            data.clear(folder)


def row_of(count: int, measured: Measured) -> dict[str, Any]:
    """Return the row of a run that was ended at its time limit."""
    finished = [mark.seconds for mark in measured.marks if mark.events >= count * _RECORDS]
    if not finished or not measured.samples or measured.samples[-1].seconds <= finished[-1] + _SETTLED:
        return {"pipelines": count, "status": "failed", "load": measured.load}
    begin, end = finished[-1] + _SETTLED, measured.samples[-1].seconds
    idle = cpu_at(measured.samples, end) - cpu_at(measured.samples, begin)
    return {
        "pipelines": count,
        "status": "right",
        "first_s": round(finished[0], 1),
        "first_cpu_s": round(cpu_at(measured.samples, finished[0]), 1),
        "idle_cpu_ms": round(1000 * idle / (end - begin) * TRIGGER / count, 1),
        "memory_mb": round(max(sample.pss for sample in measured.samples) / 1e6),
        "load": round(measured.load, 2),
    }
