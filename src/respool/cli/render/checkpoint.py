"""What `respool checkpoint` prints: human-readable text, and JSON for programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.summary import BatchFacts, CheckpointSummary, OperatorFacts
from respool.cli.render.output import print_result, size, table, width
from respool.format.positions import SourceRange
from respool.operations.plan_text import journal_json, time_text
from respool.text import labelled, plural

if TYPE_CHECKING:
    from respool.checkpoint.journal.apply import Leftover
    from respool.operations.checkpoint_results import CheckpointReport, CheckpointStatus, PurgeResult
    from respool.savepoint.manifest import SavepointManifest

_WIDTH = 60  # of the timeline
_MARKS = {"ok": "✓", "note": "•", "unchecked": "?", "broken": "✗"}
_SHOWN_LEFTOVERS = 20


def line(label: str, text: str) -> str:
    """Return a line with its label in front; what is too long for the terminal is folded."""
    return labelled(label, text, width())


def savepoints_line(summary: CheckpointSummary, savepoints: "Sequence[SavepointManifest]") -> str:
    """Return the savepoints of a checkpoint; those of a query that had its location before name that query."""

    def text(savepoint: "SavepointManifest") -> str:
        other = "" if savepoint.query_id == summary.query_id else f" of the query {savepoint.query_id}"
        return f"{savepoint.name} at batch {savepoint.batch:,}{other}"

    return ", ".join(text(savepoint) for savepoint in savepoints)


def timeline(summary: CheckpointSummary, savepoints: "Sequence[SavepointManifest]" = ()) -> list[str]:
    """Return a picture of the batches: which are kept, which can be rewound to, which is next.

    Args:
        summary: The checkpoint.
        savepoints: Its savepoints; those of another query are of other batches, and left out.
    """
    if summary.newest < 0:
        return []
    first, last = summary.oldest, summary.newest
    count = last - first + 1
    each = max(1, -(-count // _WIDTH))  # batches in one character
    cells = []
    for start in range(first, last + 1, each):
        batches = range(start, min(start + each, last + 1))
        reachable = any(span.first <= batches[-1] and batches[0] <= span.last for span in summary.reachable)
        cells.append("━" if reachable else "┄")
    if summary.next_batch == last:
        cells[-1] = "○"
    left = f"{first:,} "
    picture = [f"{left}{''.join(cells)}▶ {last:,}"]
    if summary.earliest.batch is not None and summary.earliest.batch <= last:
        at = (summary.earliest.batch - first) // each
        picture.append(" " * (len(left) + at) + f"▲ {summary.earliest.batch:,}")
    own = [saved for saved in savepoints if saved.query_id == summary.query_id]
    marked = [saved for saved in own if first <= saved.batch <= last]
    picture += [
        " " * (len(left) + (saved.batch - first) // each) + f"◆ {saved.name}, {saved.batch:,}" for saved in marked
    ]
    legend = "━ can be rewound to   ┄ kept, but cannot" + ("   ○ not finished" if "○" in cells else "")
    legend += "   ▲ the earliest" + ("   ◆ a savepoint" if marked else "")
    return [*picture, legend + (f"   each is {each:,} batches" if each > 1 else "")]


def batch_rows(summary: CheckpointSummary) -> list[dict[str, Any]]:
    """Return the rows of the table of batches."""
    return [
        {
            "batch": row.batch,
            "planned": _in_seconds(time_text(row.planned_ms)),
            "watermark": _in_seconds(time_text(row.watermark_ms)),
            "read": "; ".join(_reading(reading) for reading in row.readings) or row.problem or "–",
            "records": _records(row),
            "finished": row.committed,
        }
        for row in summary.batches
    ]


def _in_seconds(time: str | None) -> str:
    return "–" if time is None else re.sub(r"\.\d+Z$", "Z", time)


def operator_rows(summary: CheckpointSummary) -> list[dict[str, Any]]:
    """Return the rows of the table of stateful operators."""
    return [
        {
            "operator": row.operator,
            "stores": ", ".join(row.stores),
            "partitions": row.partitions,
            "versions": f"{row.versions.first:,} to {row.versions.last:,}" if row.versions else "–",
            "files": ", ".join(f"{count:,} {_plural(kind, count)}" for kind, count in sorted(row.kinds.items())),
            "size": size(row.size),
            "format": "2 (unique ids)" if row.unique_ids else "1",
        }
        for row in summary.operators
    ]


def rewind_line(summary: CheckpointSummary) -> str:
    """Return which batches can be rewound to, and why no earlier one."""
    if summary.earliest.batch is None:
        over = "" if summary.earliest.unknown else " --to-batch 0 starts over."
        return f"to no kept batch: {summary.earliest.why}.{over}"
    spans = ", ".join(f"{s.first:,}" if s.first == s.last else f"{s.first:,} to {s.last:,}" for s in summary.reachable)
    text = (f"to batch {spans}. Not earlier: " if spans else "to no earlier batch: ") + f"{summary.earliest.why}."
    same = summary.earliest_same_range
    if same.batch is not None and same.batch != summary.earliest.batch:
        text += f" With --same-range from {same.batch:,} on."
    return text


def print_status(status: "CheckpointStatus", path: str) -> None:
    """Print a checkpoint; `path` is its name as the user gave it."""
    summary, run, fork = status.summary, status.run, status.fork
    print_result(line("Checkpoint", summary.root))
    print_result(line("Query", summary.query_id or "lost: the file metadata is missing or damaged"))
    if run:
        print_result(line("Pipeline", f"{run.pipeline}: {run.topic} → {run.sink}"))
    if fork:
        print_result(line("Fork", f"of {fork.checkpoint}, from the savepoint {fork.savepoint} at batch {fork.batch:,}"))
    print_result(line("Runs", f"now, in {status.holder}" if status.holder else "unknown (not started by respool)"))
    if summary.settings:
        print_result(line("Spark", ", ".join(f"{name} {value}" for name, value in summary.settings.items())))
    if summary.untested:
        print_result(line("Untested", summary.untested))
    print_result(line("Batches", _kept_text(summary)))
    print_result(line("Rewind", rewind_line(summary)))
    if status.pending is not None:
        print_result(line("Unfinished", status.pending.interruption(path)))
    for leftover in _leftover_lines(status.leftovers):
        print_result(line("Leftovers", f"{leftover}; the next change or `respool checkpoint purge {path}` deletes it"))
    if status.savepoints:
        print_result(line("Savepoints", savepoints_line(summary, status.savepoints)))
    for picture in timeline(summary, status.savepoints):
        print_result(f"  {picture}")
    _print_tables(summary)
    if status.history:
        count = len(status.history)
        print_result("")
        print_result(f"{plural(count, 'change')} by respool; see: respool checkpoint history {path}")


def _print_tables(summary: CheckpointSummary) -> None:
    print_result("")
    table(batch_rows(summary), ("batch", "planned", "watermark", "read", "records", "finished"), "No batch yet.")
    if summary.kept > len(summary.batches):
        print_result(f"{summary.kept - len(summary.batches):,} older batches are kept too; --batches all lists them.")
    print_result("")
    columns = ("operator", "stores", "partitions", "versions", "files", "size", "format")
    table(operator_rows(summary), columns, "No state.")


def print_report(report: "CheckpointReport") -> None:
    """Print what was checked, with the findings."""
    for check in report.checks:
        print_result(f"{_MARKS[check.status]} {check.name}")
        for finding in check.findings:
            print_result(f"    {finding.what}")
            if finding.remedy:
                print_result(f"    → {finding.remedy}")
    if report.broken:
        print_result(f"{len(report.broken)} of {len(report.checks)} checks found something broken.")
    elif not report.complete:
        print_result("Nothing broken was found, but not everything could be checked: see above.")
    else:
        print_result("A restart will find all it needs.")


def print_purge(result: "PurgeResult") -> None:
    """Print what is deleted."""
    columns = ("time", "what", "batch", "moved", "id")
    table([history_row(change) for change in result.changes], columns, "No change is that old.")
    for text in _leftover_lines(result.leftovers):
        print_result(text)


def purge_json(result: "PurgeResult") -> dict[str, Any]:
    """Return what is deleted, as JSON."""
    return {
        "purged": [journal_json(change) for change in result.changes],
        "leftovers": [leftover.facts() for leftover in result.leftovers],
    }


def status_json(status: "CheckpointStatus") -> dict[str, Any]:
    """Return a checkpoint as JSON."""
    summary = asdict(status.summary)
    for name in ("earliest", "earliest_same_range"):
        del summary[name]["unknown"]
    summary["batches"] = [_batch_json(batch) for batch in status.summary.batches]
    summary["operators"] = [_operator_json(operator) for operator in status.summary.operators]
    savepoints = status.savepoints
    return {
        **summary,
        "pipeline": asdict(status.run) if status.run else None,
        "running": status.holder,
        "rewinds": [journal_json(change) for change in status.history],
        "savepoints": [{"name": saved.name, "batch": saved.batch, "query_id": saved.query_id} for saved in savepoints],
        "fork": status.fork.to_json() if status.fork else None,
        "leftovers": [leftover.facts() for leftover in status.leftovers],
    }


def change_json(change: Journal) -> dict[str, Any]:
    """Return a change of the history as JSON, with the files that it moved."""
    return {**journal_json(change), "moved": [move.source for move in change.moves]}


def history_row(journal: Journal) -> dict[str, Any]:
    """Return a change of the history as a row of the table."""
    change = journal_json(journal)
    state = "undone" if journal.undone else "purged" if journal.purged else ""
    return {
        "time": change["time"],
        "what": f"undo of {journal.of}" if journal.operation == "undo" else journal.operation,
        "batch": f"{journal.newest.offsets:,} → {journal.batch:,}",
        "asked": journal.request or None,
        "reason": journal.reason,
        "moved": f"{plural(change['files'], 'file')}, {size(change['bytes'])}",
        "state": state or None,
        "id": journal.id,
    }


def _reading(reading: SourceRange) -> str:
    if reading.start == reading.end:
        return f"{reading.end} (nothing new)"
    return f"{reading.start} → {reading.end}"


def _records(batch: BatchFacts) -> int | None:
    counts = [reading.records for reading in batch.readings]
    return None if not counts or None in counts else sum(count for count in counts if count)


def _batch_json(batch: BatchFacts) -> dict[str, Any]:
    return {
        "batch": batch.batch,
        "planned": time_text(batch.planned_ms),
        "watermark": time_text(batch.watermark_ms),
        "sources": [asdict(reading) for reading in batch.readings],
        "records": _records(batch),
        "committed": batch.committed,
        "problem": batch.problem,
    }


def _operator_json(operator: OperatorFacts) -> dict[str, Any]:
    kinds: Mapping[str, int] = operator.kinds
    return {**asdict(operator), "kinds": dict(kinds)}


def _plural(kind: str, count: int) -> str:
    word = {"sst": "SST"}.get(kind, kind)
    return word if count == 1 else f"{word}s"


def _kept_text(summary: CheckpointSummary) -> str:
    if summary.kept == 0:
        return "none yet"
    following, newest = summary.next_batch, summary.newest
    again = f"{following:,} is next" if following > newest else f"{following:,} is not finished, and runs again"
    return f"{summary.kept:,} kept, {summary.oldest:,} to {newest:,}; {again}"


def _leftover_lines(leftovers: "Sequence[Leftover]") -> Iterator[str]:
    for leftover in leftovers[:_SHOWN_LEFTOVERS]:
        files = f"{leftover.files:,} files, " if leftover.files != 1 else ""
        yield f"left by an interrupted command: {leftover.path} ({files}{size(leftover.size)})"
    if len(leftovers) > _SHOWN_LEFTOVERS:
        yield f"… and {len(leftovers) - _SHOWN_LEFTOVERS:,} more"
