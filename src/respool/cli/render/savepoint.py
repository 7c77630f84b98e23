"""What the commands on savepoints print: text for people, plain data for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from respool.cli.render.checkpoint import kind_text, line, reading_lines, remarks, sink_line, time_text
from respool.cli.render.output import size
from respool.format.positions import text_of
from respool.savepoint.planning import InstallPlan
from respool.savepoint.store import Savepoint
from respool.sinks.registry import SinkPosition


def savepoint_json(savepoint: Savepoint) -> dict[str, Any]:
    """Return a savepoint for programs, its files only counted."""
    manifest = savepoint.manifest
    return {
        "name": manifest.name,
        "location": savepoint.location,
        "data": savepoint.data,
        "created": manifest.created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "reason": manifest.reason,
        "checkpoint": manifest.checkpoint,
        "query_id": manifest.query_id,
        "batch": manifest.batch,
        "planned": time_text(manifest.planned_ms),
        "watermark": time_text(manifest.watermark_ms),
        "sources": [asdict(one) for one in manifest.sources],
        "operators": manifest.operators,
        "file_count": len(manifest.files),
        "bytes": manifest.size,
        "sink": asdict(manifest.sink),
        "pipeline": asdict(manifest.run) if manifest.run else None,
        "spark": manifest.spark,
        "respool": manifest.respool,
        "not_included": [asdict(one) for one in manifest.not_included],
    }


def savepoint_row(savepoint: Savepoint) -> dict[str, Any]:
    """Return a savepoint as a row of the table."""
    facts, manifest = savepoint_json(savepoint), savepoint.manifest
    return {
        **{name: facts[name] for name in ("name", "batch", "created", "checkpoint", "reason")},
        "pipeline": manifest.run.pipeline if manifest.run else None,
        "watermark": (facts["watermark"] or "–")[:19],
        "files": facts["file_count"],
        "size": size(manifest.size),
    }


def savepoint_lines(savepoint: Savepoint) -> Iterator[str]:
    """Return a savepoint as text."""
    manifest = savepoint.manifest
    facts = savepoint_json(savepoint)
    yield line("Savepoint", f"{manifest.name}, made {facts['created']} by respool {manifest.respool}")
    if manifest.reason:
        yield line("Reason", manifest.reason)
    yield line("Files", f"{len(manifest.files):,}, {size(manifest.size)}, in {savepoint.data}")
    yield line("Checkpoint", manifest.checkpoint)
    yield line("Query", manifest.query_id)
    if manifest.run:
        yield line("Pipeline", f"{manifest.run.pipeline}: {manifest.run.topic} → {manifest.run.sink}")
        if manifest.run.fingerprint:
            from respool.pipeline.fingerprint import Fingerprint

            yield line("Fingerprint", Fingerprint.from_json(manifest.run.fingerprint).digest)
    yield line("Spark", manifest.spark or "version not known")
    yield line("Batch", f"{manifest.batch:,}, planned {facts['planned'] or 'at no known time'}")
    yield line("Watermark", facts["watermark"] or "none yet")
    for one in manifest.sources:
        yield line(f"Source {one.source}", text_of(one.end))
    operators = f"{manifest.operators} stateful operator{'s' * (manifest.operators > 1)}"
    yield line("State", operators if manifest.operators else "none")
    yield line("Output", position_text(manifest.sink))
    if manifest.not_included:
        yield line("Left out", left_out_text(savepoint))


def left_out_text(savepoint: Savepoint) -> str:
    """Return what was in the checkpoint, is not Spark's, and is not in the savepoint."""
    parts = (
        f"{one.path} ({one.files:,} file{'s' * (one.files != 1)}, {size(one.size)})"
        for one in savepoint.manifest.not_included
    )
    return ", ".join(parts)


def position_text(position: SinkPosition) -> str:
    """Return how far an output was."""
    if position.offsets is not None:
        ends = ", ".join(f"{partition}: {end:,}" for partition, end in position.offsets.items())
        return f"{position.output}, end offsets {ends}"
    if position.version is not None:
        noted = "".join(f", batch {batch:,} of {query}" for query, batch in (position.transactions or {}).items())
        return f"{position.output}, version {position.version:,}{noted}"
    return f"{position.output}; how far it was is not known: {position.unknown}"


def plan_lines(plan: InstallPlan) -> Iterator[str]:
    """Return a plan as text."""
    yield line("Next batch", f"{plan.batch:,}" + (f", in place of {plan.newest + 1:,}" if plan.newest >= 0 else ""))
    for reading in plan.readings:
        if reading.start == reading.end:
            yield line(f"Source {reading.source}", f"{kind_text(reading)}, from {reading.start}")
        else:
            yield from reading_lines(reading)
    yield line("Watermark", time_text(plan.watermark_ms) or "none yet")
    yield line("Brings in", f"{len(plan.install_set.paths):,} files, {size(plan.install_set.size)}")
    if plan.aside:
        yield line("Moves aside", f"{plan.aside:,} files, {size(plan.aside_size)}")
    if plan.journal.operation == "fork":
        yield line("Query", f"{plan.journal.query_ids[-1]}, a new one")
    else:
        yield sink_line(plan.replay)
    yield from remarks(plan.notes, plan.refusals)


def plan_json(plan: InstallPlan, done: bool) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "id": plan.journal.id,
        "operation": plan.journal.operation,
        "batch": plan.batch,
        "before": plan.newest,
        "sources": [asdict(one) for one in plan.readings],
        "watermark": time_text(plan.watermark_ms),
        "files": len(plan.install_set.paths),
        "bytes": plan.install_set.size,
        "aside": plan.aside,
        "query_id": plan.journal.query_ids[-1],
        "sink": asdict(plan.replay) if plan.replay else None,
        "notes": list(plan.notes),
        "refusals": [asdict(one) for one in plan.refusals],
        "done": done,
    }
