"""The text of plans, as commands print it: a label, then its text."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from respool.checkpoint.journal import history
from respool.checkpoint.journal.steps import Journal, Move, Prune, Replace, Restore, Step
from respool.checkpoint.planning.rewind import PlannedRewind
from respool.errors import Refusal
from respool.format.positions import PartitionRange, SourceRange
from respool.savepoint.planning import PlannedInstall
from respool.sinks.address import ReplayOutcome
from respool.text import labelled, plural, size

LABEL_WIDTH = 13  # of `text.labelled`
_SOURCE_KINDS = {"number": "memory, socket or custom source"}  # their positions look alike
_YEAR_10000_MS = 253_402_300_800_000  # beyond what ISO 8601 and Python support; an event can have any time
_SHOWN_PARTITIONS = 12  # of a source; the others are counted
_SHOWN_STEPS = 5  # of each kind; --json has all


def time_text(ms: int | None) -> str | None:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; None for no time."""
    if not ms:
        return None
    if not 0 < ms < _YEAR_10000_MS:
        return f"{ms} ms since 1970"
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rewind_lines(plan: PlannedRewind, width: int, files: bool) -> Iterator[str]:
    """Return the plan of a rewind as lines, folded at `width` columns; with `files`, every file that moves."""
    again = "none" if plan.batch > plan.again else _batches(plan.batch, plan.again)
    how = (
        "the first on the very records that it had"
        if plan.journal.same_range
        else "planned again, with all that arrived since"
    )
    yield labelled("Next batch", f"{plan.batch:,}", width)
    yield labelled("Run again", f"{again}, {how}", width)
    for reading in plan.readings:
        yield from _labelled(reading_lines(reading), width)
    yield labelled("Watermark", time_text(plan.watermark_ms) or "none yet", width)
    yield labelled("State", "none" if plan.state_version is None else f"version {plan.state_version:,}", width)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(plan.kinds.items()))
    count = sum(plan.kinds.values())
    yield labelled("Moves aside", f"{plural(count, 'file')}, {size(plan.size)}: {kinds}" if count else "nothing", width)
    if files:  # paths are not folded
        room = " " * LABEL_WIDTH
        yield from (f"{room}{move.source}  {size(move.size)}" for move in plan.journal.moves)
    for step in plan.journal.steps:
        if not isinstance(step, Move):
            yield labelled("Changes", step_text(step), width)
    sink_files = sum(1 for move in plan.journal.moves if move.sink is not None)
    if sink_files:
        yield labelled("Sink", f"{sink_files:,} of its files move aside", width)
    yield labelled("Sink", sink_text(plan.replay), width)
    yield from _labelled(remarks(plan.notes, plan.refusals), width)


def rewind_json(plan: PlannedRewind) -> dict[str, Any]:
    """Return the plan of a rewind for programs."""
    return {
        "id": plan.journal.id,
        "batch": plan.batch,
        "run_again": list(range(plan.batch, plan.again + 1)),
        "same_range": plan.journal.same_range,
        "sources": [asdict(reading) for reading in plan.readings],
        "watermark": time_text(plan.watermark_ms),
        "state_version": plan.state_version,
        "files": sum(plan.kinds.values()),
        "bytes": plan.size,
        "kinds": dict(plan.kinds),
        "steps": steps_json(plan.journal),
        **_decision_json(plan),
    }


def install_lines(plan: PlannedInstall, width: int) -> Iterator[str]:
    """Return the plan of a restore, a fork or a promotion as lines, folded at `width` columns."""
    before = f", in place of {plan.newest + 1:,}" if plan.newest >= 0 else ""
    yield labelled("Next batch", f"{plan.batch:,}{before}", width)
    for reading in plan.readings:
        if reading.start == reading.end:
            yield labelled(f"Source {reading.source}", f"{source_kind_text(reading)}, from {reading.start}", width)
        else:
            yield from _labelled(reading_lines(reading), width)
    yield labelled("Watermark", time_text(plan.watermark_ms) or "none yet", width)
    yield labelled("Installs", f"{plural(len(plan.install_set.paths), 'file')}, {size(plan.install_set.size)}", width)
    if plan.aside:
        yield labelled("Moves aside", f"{plural(plan.aside, 'file')}, {size(plan.aside_size)}", width)
    if plan.journal.operation == "fork":
        yield labelled("Query", f"{plan.journal.query_ids[-1]}, a new one", width)
    else:
        yield labelled("Sink", sink_text(plan.replay), width)
    yield from _labelled(remarks(plan.notes, plan.refusals), width)


def install_json(plan: PlannedInstall) -> dict[str, Any]:
    """Return the plan of a restore, a fork or a promotion for programs."""
    return {
        "id": plan.journal.id,
        "operation": plan.journal.operation,
        "batch": plan.batch,
        "before": plan.newest,
        "sources": [asdict(reading) for reading in plan.readings],
        "watermark": time_text(plan.watermark_ms),
        "files": len(plan.install_set.paths),
        "bytes": plan.install_set.size,
        "aside": plan.aside,
        "query_id": plan.journal.query_ids[-1],
        **_decision_json(plan),
    }


def source_kind_text(reading: SourceRange) -> str:
    """Return what kind of source it is."""
    return _SOURCE_KINDS.get(reading.kind, reading.kind)


def reading_lines(reading: SourceRange) -> Iterator[tuple[str, str]]:
    """Return what is read of a source, as labels and text."""
    name = f"Source {reading.source}"
    if reading.records is not None:
        skipped = sum(part.end - part.start for part in reading.skipped)
        total = plural(reading.records, "record") + (f", {skipped:,} skipped" if skipped else "")
    elif reading.skipped:
        total = f"{reading.end} → {reading.start}, skipped"
    elif reading.files is not None:
        total = f"{plural(reading.files, 'input file')}, {reading.start} → {reading.end}"
    else:
        total = f"{reading.start} → {reading.end}"
    yield name, f"{source_kind_text(reading)}, {total}"
    if reading.kind == "Kafka":
        skipped_parts = {part.name: part for part in reading.skipped}
        for part in reading.parts[:_SHOWN_PARTITIONS]:
            yield "", _skipped_text(skipped_parts[part.name]) if part.name in skipped_parts else _partition_text(part)
        if reading.parts[_SHOWN_PARTITIONS:]:
            yield "", f"and {plural(len(reading.parts) - _SHOWN_PARTITIONS, 'more partition')}"


def sink_text(replay: ReplayOutcome | None) -> str:
    """Return what a sink will do with replayed batches."""
    if replay is None:
        return "unknown; name it with --sink to see what it does with these batches"
    return f"{replay.sink}: {replay.text}"


def remarks(notes: Sequence[str], refusals: Sequence[Refusal]) -> Iterator[tuple[str, str]]:
    """Return the notes of a plan, and why it is refused, as labels and text."""
    yield from (("Note", text) for text in notes)
    yield from (("Refused", f"{refusal.why} {refusal.way_out}") for refusal in refusals)


def step_text(step: Step) -> str:
    """Return what a step other than a move changes."""
    match step:
        case Replace(path="metadata"):
            return "the query gets a new id"
        case Replace(path=path):
            return f"{path} is rewritten"
        case Prune(folder=folder):
            return f"empty folders in {folder} are deleted"
        case Restore(table=table):
            return f"the Delta table goes from version {table.from_version} back to {table.to_version}: {table.table}"
    raise AssertionError(step)


def steps_json(journal: Journal) -> list[dict[str, Any]]:
    """Return all steps of a journal for programs."""
    return [{"step": type(step).__name__, **asdict(step)} for step in journal.steps]


def journal_json(journal: Journal) -> dict[str, Any]:
    """Return a change for programs and tables, without its steps."""
    return {
        "id": journal.id,
        "operation": journal.operation,
        "of": journal.of,
        "time": _utc(journal.started),
        "request": journal.request,
        "reason": journal.reason,
        "from_batch": journal.newest.offsets,
        "to_batch": journal.batch,
        "files": len(journal.moves),
        "bytes": sum(move.size for move in journal.moves),
        "undone": _utc(journal.undone) if journal.undone else None,
        "purged": _utc(journal.purged) if journal.purged else None,
    }


def interrupted_lines(journal: Journal, location: str) -> Iterator[str]:
    """Return an interrupted change with the first of its steps of each kind."""
    origin = journal.origin
    by = f" by {_escaped(origin.user)} on {_escaped(origin.host)}" if origin else ""
    yield (
        f"The {journal.operation} {_escaped(journal.id)} of {location}, started "
        f"{_utc(journal.started)}{by}, was interrupted. Its steps:"
    )
    kinds: dict[str, list[Step]] = {}
    for step in journal.steps:
        kinds.setdefault(_step_kind(step), []).append(step)
    for kind, steps in kinds.items():
        total = sum(getattr(step, "size", 0) for step in steps)
        yield f"  {kind}: {len(steps):,}" + (f", {size(total)}" if total else "")
        yield from (f"    {_escaped(_step_paths(step))}" for step in steps[:_SHOWN_STEPS])
        if len(steps) > _SHOWN_STEPS:
            yield f"    … and {len(steps) - _SHOWN_STEPS:,} more"


def _labelled(lines: Iterator[tuple[str, str]], width: int) -> Iterator[str]:
    return (labelled(label, text, width) for label, text in lines)


def _decision_json(plan: PlannedRewind | PlannedInstall) -> dict[str, Any]:
    """Return what decides whether a plan is applied."""
    return {
        "sink": asdict(plan.replay) if plan.replay else None,
        "notes": list(plan.notes),
        "refusals": [asdict(refusal) for refusal in plan.refusals],
    }


def _batches(first: int, last: int) -> str:
    return f"batch {first:,}" if first == last else f"batches {first:,} to {last:,} ({last - first + 1:,})"


def _utc(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _partition_text(part: PartitionRange) -> str:
    return f"{part.name}: {part.start:,} → {part.end:,} ({plural(part.end - part.start, 'record')})"


def _skipped_text(part: PartitionRange) -> str:
    return f"{part.name}: {part.start:,} → {part.end:,} skipped ({plural(part.end - part.start, 'record')})"


def _step_kind(step: Step) -> str:
    match step:
        case Move(sink=None):
            return f"move {_direction(step)}"
        case Move(sink=sink):
            return f"move in the sink's folder {_escaped(str(sink))}, {_direction(step)}"
        case Replace():
            return "rewrite"
        case Prune():
            return "delete empty folders in"
        case _:
            return "restore the Delta table"


def _direction(move: Move) -> str:
    for folder in (history.ASIDE, history.STAGED):
        if move.target.startswith(f"{folder}/"):
            return f"to {folder}"
        if move.source.startswith(f"{folder}/"):
            return f"from {folder}"
    return "inside the checkpoint"


def _step_paths(step: Step) -> str:
    match step:
        case Move(source=source, target=target):
            return f"{source} → {target}"
        case Replace(path=path):
            return path
        case Prune(folder=folder):
            return folder
        case _:
            return str(step.table.table)


def _escaped(text: str) -> str:
    """Return text of a file that is safe to print on a terminal."""
    return text if text.isprintable() else ascii(text)
