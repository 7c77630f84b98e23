"""What `respool checkpoint` prints: text for people, plain data for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from respool.checkpoint.journal.steps import Journal, Move
from respool.checkpoint.ownership import ForkRecord, RunRecord
from respool.checkpoint.planning.rewind import RewindPlan
from respool.checkpoint.summary import BatchFacts, CheckpointSummary, OperatorFacts
from respool.cli.render.output import size, width
from respool.errors import Refusal
from respool.format.positions import PartitionRange, SourceRange
from respool.sinks.address import ReplayOutcome

if TYPE_CHECKING:
    from respool.savepoint.manifest import SavepointManifest

_WIDTH = 60  # of the timeline
_LABEL = 13
_KINDS = {"number": "memory, socket or custom source"}  # what cannot be told apart
_YEAR_10000_MS = 253_402_300_800_000  # beyond what ISO 8601 and Python have; an event can bear any time
_SHOWN_PARTS = 12  # of a source, before they are only counted


def time_text(ms: int | None) -> str | None:
    """Return a time as people and programs read it; None for no time."""
    if not ms:
        return None
    if not 0 < ms < _YEAR_10000_MS:
        return f"{ms} ms since 1970"
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(label: str, text: str) -> str:
    """Return a line with its label in front; what is too long for the terminal is folded."""
    room = " " * _LABEL
    folded = wrap(text, max(20, width() - _LABEL), break_long_words=False, break_on_hyphens=False) or [""]
    first, *more = folded
    return "\n".join([f"{label:<{_LABEL - 1}} {first}", *(f"{room}{one}" for one in more)])


def savepoints_line(summary: CheckpointSummary, savepoints: "Sequence[SavepointManifest]") -> str:
    """Return the savepoints of a checkpoint: those of another query that had its place before are told as such."""

    def told(one: "SavepointManifest") -> str:
        other = "" if one.query_id == summary.query_id else f" of the query {one.query_id}"
        return f"{one.name} at batch {one.batch:,}{other}"

    return ", ".join(told(one) for one in savepoints)


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
        reachable = any(one.first <= batches[-1] and batches[0] <= one.last for one in summary.reachable)
        cells.append("━" if reachable else "┄")
    if summary.next_batch == last:
        cells[-1] = "○"
    left = f"{first:,} "
    picture = [f"{left}{''.join(cells)}▶ {last:,}"]
    if summary.earliest.batch is not None and summary.earliest.batch <= last:
        at = (summary.earliest.batch - first) // each
        picture.append(" " * (len(left) + at) + f"▲ {summary.earliest.batch:,}")
    marked = [one for one in savepoints if one.query_id == summary.query_id and first <= one.batch <= last]
    picture += [" " * (len(left) + (one.batch - first) // each) + f"◆ {one.name}, {one.batch:,}" for one in marked]
    legend = "━ can be rewound to   ┄ kept, but cannot" + ("   ○ not finished" if "○" in cells else "")
    legend += "   ▲ the earliest" + ("   ◆ a savepoint" if marked else "")
    return [*picture, legend + (f"   each is {each:,} batches" if each > 1 else "")]


def batch_rows(summary: CheckpointSummary) -> list[dict[str, Any]]:
    """Return the rows of the table of batches."""
    return [
        {
            "batch": one.batch,
            "planned": (time_text(one.planned_ms) or "–")[:19],
            "watermark": (time_text(one.watermark_ms) or "–")[:19],
            "read": "; ".join(_reading(reading) for reading in one.readings) or one.problem or "–",
            "records": _records(one),
            "finished": one.committed,
        }
        for one in summary.batches
    ]


def operator_rows(summary: CheckpointSummary) -> list[dict[str, Any]]:
    """Return the rows of the table of stateful operators."""
    return [
        {
            "operator": one.operator,
            "stores": ", ".join(one.stores),
            "partitions": one.partitions,
            "versions": f"{one.versions.first:,} to {one.versions.last:,}" if one.versions else "–",
            "files": ", ".join(f"{count:,} {_plural(kind, count)}" for kind, count in sorted(one.kinds.items())),
            "size": size(one.size),
            "format": "2 (unique ids)" if one.unique_ids else "1",
        }
        for one in summary.operators
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


def summary_json(
    summary: CheckpointSummary,
    run: RunRecord | None,
    running: str | None,
    past: list[Journal],
    savepoints: "Sequence[SavepointManifest]",
    fork: ForkRecord | None,
) -> dict[str, Any]:
    """Return a summary for programs."""
    facts = asdict(summary)
    for name in ("earliest", "earliest_same_range"):
        del facts[name]["unknown"]
    facts["batches"] = [_batch_json(one) for one in summary.batches]
    facts["operators"] = [_operator_json(one) for one in summary.operators]
    return {
        **facts,
        "pipeline": asdict(run) if run else None,
        "running": running,
        "rewinds": [journal_json(one) for one in past],
        "savepoints": [{"name": one.name, "batch": one.batch, "query_id": one.query_id} for one in savepoints],
        "fork": asdict(fork) if fork else None,
    }


def plan_lines(plan: RewindPlan, files_too: bool) -> Iterator[str]:
    """Return a plan as text, with every file that moves if that is wanted."""
    again = "none" if plan.batch > plan.again else _batches(plan.batch, plan.again)
    how = (
        "the first on the very records that it had"
        if plan.journal.same_range
        else "planned anew with what has come since"
    )
    yield line("Next batch", f"{plan.batch:,}")
    yield line("Run again", f"{again}, {how}")
    for reading in plan.readings:
        yield from reading_lines(reading)
    yield line("Watermark", time_text(plan.watermark_ms) or "none yet")
    yield line("State", "none" if plan.state_version is None else f"version {plan.state_version:,}")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(plan.kinds.items()))
    files = sum(plan.kinds.values())
    yield line("Moves aside", f"{files:,} files, {size(plan.size)}: {kinds}" if files else "nothing")
    if files_too:
        yield from (f"{'':{_LABEL}}{move.source}  {size(move.size)}" for move in plan.journal.moves)
    for step in plan.journal.steps:
        if not isinstance(step, Move):
            yield line("Changes", _step_text(step))
    sink_files = sum(1 for move in plan.journal.moves if move.sink is not None)
    if sink_files:
        yield line("Sink", f"{sink_files:,} of its files move aside")
    yield sink_line(plan.replay)
    yield from remarks(plan.notes, plan.refusals)


def sink_line(replay: ReplayOutcome | None) -> str:
    """Return what a sink will do."""
    if replay is None:
        return line("Sink", "not known; name it with --sink to be told what it will do with these batches")
    return line("Sink", f"{replay.sink}: {replay.text}")


def remarks(notes: Sequence[str], refusals: Sequence[Refusal]) -> Iterator[str]:
    """Return what else to know of a plan, and why it is refused."""
    yield from (line("Note", note) for note in notes)
    yield from (line("Refused", f"{refusal.why} {refusal.way_out}") for refusal in refusals)


def plan_json(plan: RewindPlan, done: bool) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "id": plan.journal.id,
        "batch": plan.batch,
        "run_again": list(range(plan.batch, plan.again + 1)),
        "same_range": plan.journal.same_range,
        "sources": [asdict(one) for one in plan.readings],
        "watermark": time_text(plan.watermark_ms),
        "state_version": plan.state_version,
        "files": sum(plan.kinds.values()),
        "bytes": plan.size,
        "kinds": dict(plan.kinds),
        "steps": [{"step": type(step).__name__, **asdict(step)} for step in plan.journal.steps],
        "sink": asdict(plan.replay) if plan.replay else None,
        "notes": list(plan.notes),
        "refusals": [asdict(one) for one in plan.refusals],
        "done": done,
    }


def journal_json(journal: Journal) -> dict[str, Any]:
    """Return a rewind of the past for programs and tables."""
    return {
        "id": journal.id,
        "operation": journal.operation,
        "of": journal.of,
        "time": journal.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "request": journal.request,
        "reason": journal.reason,
        "from_batch": journal.newest.offsets,
        "to_batch": journal.batch,
        "files": len(journal.moves),
        "bytes": sum(move.size for move in journal.moves),
        "undone": journal.undone.isoformat(timespec="seconds").replace("+00:00", "Z") if journal.undone else None,
        "purged": journal.purged.isoformat(timespec="seconds").replace("+00:00", "Z") if journal.purged else None,
    }


def history_row(journal: Journal) -> dict[str, Any]:
    """Return a rewind of the past as a row of the table."""
    facts = journal_json(journal)
    state = "undone" if journal.undone else "purged" if journal.purged else ""
    return {
        "time": facts["time"],
        "what": f"undo of {journal.of}" if journal.operation == "undo" else journal.operation,
        "batch": f"{journal.newest.offsets:,} → {journal.batch:,}",
        "asked": journal.request or None,
        "reason": journal.reason,
        "moved": f"{facts['files']:,} files, {size(facts['bytes'])}",
        "state": state or None,
        "id": journal.id,
    }


def _step_text(step: Any) -> str:
    from respool.checkpoint.journal.steps import Prune, Replace, Restore

    match step:
        case Replace(path="metadata"):
            return "the query gets a new id"
        case Replace(path=path):
            return f"{path} is written anew"
        case Prune(folder=folder):
            return f"empty folders in {folder} go"
        case Restore(table=table):
            return f"the Delta table goes from version {table.from_version} back to {table.to_version}: {table.table}"
    raise AssertionError(step)


def kind_text(reading: SourceRange) -> str:
    """Return what a source is."""
    return _KINDS.get(reading.kind, reading.kind)


def reading_lines(reading: SourceRange) -> Iterator[str]:
    """Return what is read of a source as text."""
    name = f"Source {reading.source}"
    if reading.records is not None:
        skipped = sum(part.end - part.start for part in reading.skipped)
        total = f"{reading.records:,} records" + (f", {skipped:,} skipped" if skipped else "")
    elif reading.skipped:
        total = f"{reading.end} → {reading.start}, skipped"
    elif reading.files is not None:
        total = f"{reading.files:,} input file{'s' * (reading.files != 1)}, {reading.start} → {reading.end}"
    else:
        total = f"{reading.start} → {reading.end}"
    yield line(name, f"{kind_text(reading)}, {total}")
    if reading.kind == "Kafka":
        behind = {part.name: part for part in reading.skipped}
        for part in reading.parts[:_SHOWN_PARTS]:
            yield line("", _skipped_text(behind[part.name]) if part.name in behind else _part_text(part))
        if reading.parts[_SHOWN_PARTS:]:
            yield line("", f"and {len(reading.parts) - _SHOWN_PARTS:,} partitions more")


def _part_text(part: PartitionRange) -> str:
    return f"{part.name}: {part.start:,} → {part.end:,} ({part.end - part.start:,} records)"


def _skipped_text(part: PartitionRange) -> str:
    return f"{part.name}: {part.start:,} → {part.end:,} skipped ({part.end - part.start:,} records)"


def _reading(reading: SourceRange) -> str:
    if reading.start == reading.end:
        return f"{reading.end} (nothing new)"
    return f"{reading.start} → {reading.end}"


def _records(one: BatchFacts) -> int | None:
    counts = [reading.records for reading in one.readings]
    return None if not counts or None in counts else sum(count for count in counts if count)


def _batch_json(one: BatchFacts) -> dict[str, Any]:
    return {
        "batch": one.batch,
        "planned": time_text(one.planned_ms),
        "watermark": time_text(one.watermark_ms),
        "sources": [asdict(reading) for reading in one.readings],
        "records": _records(one),
        "committed": one.committed,
        "problem": one.problem,
    }


def _operator_json(one: OperatorFacts) -> dict[str, Any]:
    facts: dict[str, Any] = asdict(one)
    kinds: Mapping[str, int] = one.kinds
    return {**facts, "kinds": dict(kinds)}


def _batches(first: int, last: int) -> str:
    return f"batch {first:,}" if first == last else f"batches {first:,} to {last:,} ({last - first + 1:,})"


def _plural(kind: str, count: int) -> str:
    word = {"sst": "SST"}.get(kind, kind)
    return word if count == 1 else f"{word}s"
