"""The report: tables in Markdown, all figures as JSON, a chart."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.goals import costs, goals
from benchmarks.measure import warm_up
from benchmarks.results import Results, spread

_COMPARED = {
    "counts": "Events counted in windows of 10 minutes, from a topic to a topic.",
    "sessions": "Sessions of every visit, by a gap of 10 minutes, from a topic to a topic.",
    "archive": "Every record to a Delta table, partitioned by date and hour of event time.",
}
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


def write(results: Results, out: Path) -> str:
    """Write report.md, report.json and report.svg to a folder, and return the text of report.md."""
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(results)
    (out / "report.md").write_text(text, encoding="utf-8")
    (out / "report.json").write_text(json.dumps(results.to_json(), indent=1) + "\n", encoding="utf-8")
    (out / "report.svg").write_text(chart.draw(results), encoding="utf-8")
    return text


def publish(out: Path, docs: Path) -> None:
    """Copy the chart and the figures of a report to the docs, with the tables between two markers in performance.md."""
    page = docs / "performance.md"
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise SystemExit(f"{page} has no place for figures: expected a line {_BEGIN} and a line {_END}")
    _, _, tables = (out / "report.md").read_text(encoding="utf-8").partition("\n")  # without its title
    deeper = tables.strip().replace("\n## ", "\n### ")
    shutil.copyfile(out / "report.svg", docs / "performance.svg")
    shutil.copyfile(out / "report.json", docs / "performance.json")
    page.write_text(f"{before}{_BEGIN}\n\n{deeper}\n\n{_END}{after}", encoding="utf-8")


def markdown(results: Results) -> str:
    """Return the report as Markdown."""
    parts = [_head(results), _goals(results)]
    parts += [_compared(results, job) for job in _COMPARED if any(run.job == job for run in results.runs)]
    parts += [
        part
        for part in (_growth(results), _reprocess(results), _rewind(results), _store(results), _start(results))
        if part
    ]
    parts += [_cluster(results), _fleet(results)]
    parts.append(_not_run(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: Results) -> str:
    machine, options = results.machine, results.options
    runs = f"{options['runs']} run{'s' * (options['runs'] != 1)}"
    return (
        f"# respool compared with its peers\n\n"
        f"{machine['at']}, {machine['cores']} cores of {machine['model']}, {machine['memory_gb']} GB, "
        f"load at the start {machine['load']}. {options['events']:,} events, {runs} of each engine, in turns; figures "
        "are medians, with the range of the runs. An engine that reached the time limit is run "
        "once. A figure counts only if the result was right, or if the run was stopped at the time limit."
    )


def _goals(results: Results) -> str:
    rows = [
        (goal.job, goal.target, goal.measured, "met" if goal.met else f"**not met**: {goal.share:.0%} of the target")
        for goal in goals(results)
    ]
    return "## Goals\n\n" + _table(("job", "goal", "measured", ""), rows) if rows else ""


def _compared(results: Results, job: str) -> str:
    events = results.options["events"]
    names = [name for name, engine in results.engines.items() if job in engine["promises"] and not engine["not_run"]]
    rows = [_row(results, job, name) for name in names]
    size = job == "archive"
    heads = ["engine", "steady, thousand/s", "whole run, s", "CPU s", "memory, MB", *(["table, MB"] if size else [])]
    heads += ["recovers", "load", "other CPU s", "notes"]
    text = f"## {job}\n\n{_COMPARED[job]} Steady: after the first {warm_up(events):,} events. "
    text += "CPU and memory are those of the whole process tree, without the broker; shared pages count once.\n\n"
    text += _table(heads, rows) + "\n\nWhat each engine promises:\n"
    return text + "".join(
        f"\n- {results.engines[name]['title']} ({results.engines[name]['runs_on']}): "
        f"{results.engines[name]['promises'][job]}."
        for name in names
    )


def _row(results: Results, job: str, name: str) -> list[str]:
    def figure(of: str, digits: int, scale: float = 1.0) -> str:
        values = results.figure(job, name, of)
        return values.text(digits, scale) if values else "–"

    engine = results.engines[name]
    cells = [engine["title"], figure("steady", 1, 1e-3), figure("wall_s", 1), figure("cpu_s", 1), figure("pss_mb", 0)]
    if job == "archive":
        cells.append(figure("table_bytes", 1, 1e-6))
    notes = "; ".join(results.problems(job, name))
    return [*cells, "yes" if engine["recovers"] else "no", figure("load", 1), figure("other_cpu_s", 0), notes]


def _growth(results: Results) -> str:
    rows = []
    for job in dict.fromkeys(row["job"] for row in results.growth):
        figures = {
            name: costs(results.growth, job, name)
            for name in ("cpu_s_per_million", "wall_s_per_million", "pss_mb", "memory_growth")
        }
        for factor in dict.fromkeys(row["factor"] for row in results.growth if row["job"] == job):
            first = next(row for row in results.growth if (row["job"], row["factor"]) == (job, factor))
            cells = [
                _number(figures[name].get(factor), digits) for name, digits in zip(figures, (2, 2, 0, 2), strict=True)
            ]
            bad = {row["why"] for row in results.growth if (row["job"], row["factor"]) == (job, factor) and row["why"]}
            rows.append((job, f"{factor} ×", f"{first['events']:,}", f"{first['visits']:,}", *cells, "; ".join(bad)))
    if not rows:
        return ""
    heads = (
        "job",
        "size",
        "events",
        "open visits",
        "CPU s per million",
        "s per million",
        "memory, MB",
        "memory growth",
        "notes",
    )
    return (
        "## growth\n\nrespool only, with more events and proportionally more open visits; a batch is a tenth of the "
        "smallest size. Cost after the warm-up; memory growth: last quarter of the events relative to the second.\n\n"
        + _table(heads, rows)
    )


def _reprocess(results: Results) -> str:
    rows = [
        (row["way"], f"{row['days']:,}", f"{row['records']:,}", f"{row['spark_bytes'] / 1e3:,.0f}", _seconds(row))
        for row in results.reprocess
    ]
    heads = ("way", "days", "records", "KB read", "s")
    return "## reprocess\n\nA window of 10 minutes, computed from an archive.\n\n" + _table(heads, rows) if rows else ""


def _rewind(results: Results) -> str:
    rows = [
        (row["command"], f"{row['batches']:,}", f"{row['files']:,}", _seconds(row), str(row["memory_mib"]))
        for row in results.rewind
    ]
    heads = ("command", "batches", "files", "s", "memory, MiB")
    return "## rewind\n\n`checkpoint show` and the plan of a rewind.\n\n" + _table(heads, rows) if rows else ""


def _store(results: Results) -> str:
    rows = [
        (
            row["command"],
            f"{row['files']:,}",
            f"{row['requests']:,}",
            f"{row['times_least']:.2f} ×",
            _number(row["median_s"], 2),
            f"{row['times_faster']:.1f} ×",
        )
        for row in results.store
    ]
    heads = ("command", "files", "requests", "of the fewest", "s", "faster than one by one")
    return "## store\n\nA checkpoint on S3; each request takes 20 ms.\n\n" + _table(heads, rows) if rows else ""


def _start(results: Results) -> str:
    rows = [
        (row["what"], row["engine"], _seconds(row), _number(row["cpu_s"], 1), f"{row['memory_mb']:,}")
        for row in results.start
    ]
    heads = ("what", "engine", "s", "CPU s of the whole run", "memory, MB")
    return "## start\n\nSeconds from the start of a process.\n\n" + _table(heads, rows) if rows else ""


def _cluster(results: Results) -> str:
    rows = []
    for key in dict.fromkeys((row["job"], row["where"], row["partitions"]) for row in results.cluster):
        of = [row for row in results.cluster if (row["job"], row["where"], row["partitions"]) == key]
        job, where, partitions = key
        usable = [row for row in of if row["status"] in ("right", "stopped")]
        steady, batch = (spread([row[name] for row in usable if row[name]]) for name in ("steady", "batch_s"))
        cells = [steady.text(1, 1e-3) if steady else "–", batch.text(2) if batch else "–"]
        problems = "; ".join(dict.fromkeys(f"{row['status']}: {row['why']}" for row in of if row["status"] != "right"))
        rows.append((job, where, str(partitions or "chosen"), *cells, problems))
    heads = ("job", "where", "state partitions", "steady, thousand/s", "s per batch", "notes")
    text = "## cluster\n\nrespool on a standalone cluster on this machine, and in a local Spark: the same cores.\n\n"
    return text + _table(heads, rows) if rows else ""


def _fleet(results: Results) -> str:
    rows = [
        (
            f"{row['pipelines']}",
            *(_number(row[name], 1) for name in ("first_s", "first_cpu_s", "idle_cpu_ms")),
            _number(row["memory_mb"], 0),
        )
        for row in results.fleet
        if row["status"] == "right"
    ]
    heads = (
        "pipelines",
        "all have finished a batch, s",
        "CPU s until then",
        "CPU ms of a trigger without records",
        "memory, MB",
    )
    text = "## fleet\n\nPipelines that count, in one application with `local[2]`; each trigger is of one pipeline.\n\n"
    return text + _table(heads, rows) if rows else ""


def _not_run(results: Results) -> str:
    reasons = [f"- {engine['title']}: {engine['not_run']}" for engine in results.engines.values() if engine["not_run"]]
    return "## Not run\n\n" + "\n".join(reasons) if reasons else ""


def _seconds(row: dict[str, Any]) -> str:
    return f"{row['median_s']:.2f} ({row['least_s']:.2f}–{row['most_s']:.2f})"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are also aligned in a terminal."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([text[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *text[1:]])
