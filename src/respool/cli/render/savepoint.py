"""What the commands on savepoints print: human-readable text, and JSON for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from respool.cli.render.checkpoint import line
from respool.cli.render.output import print_result, size
from respool.format.positions import text_of
from respool.operations.plan_text import time_text
from respool.operations.savepoints import SavepointReport
from respool.savepoint.store import StoredSavepoint
from respool.sinks.registry import SinkPosition
from respool.text import plural


def savepoint_json(savepoint: StoredSavepoint) -> dict[str, Any]:
    """Return a savepoint as JSON, with the number of its files."""
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
        "sources": [asdict(source) for source in manifest.sources],
        "operators": manifest.operators,
        "file_count": len(manifest.files),
        "bytes": manifest.size,
        "sink": asdict(manifest.sink),
        "pipeline": asdict(manifest.run) if manifest.run else None,
        "spark": manifest.spark,
        "respool": manifest.respool,
        "not_included": [asdict(entry) for entry in manifest.not_included],
    }


def savepoint_row(savepoint: StoredSavepoint) -> dict[str, Any]:
    """Return a savepoint as a row of the table."""
    facts, manifest = savepoint_json(savepoint), savepoint.manifest
    return {
        **{name: facts[name] for name in ("name", "batch", "created", "checkpoint", "reason")},
        "pipeline": manifest.run.pipeline if manifest.run else None,
        "watermark": (facts["watermark"] or "–")[:19],
        "files": facts["file_count"],
        "size": size(manifest.size),
    }


def savepoint_lines(savepoint: StoredSavepoint) -> Iterator[str]:
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
    yield line("Spark", manifest.spark or "unknown version")
    yield line("Batch", f"{manifest.batch:,}, planned {facts['planned'] or 'at an unknown time'}")
    yield line("Watermark", facts["watermark"] or "none yet")
    for source in manifest.sources:
        yield line(f"Source {source.source}", text_of(source.end))
    operators = plural(manifest.operators, "stateful operator")
    yield line("State", operators if manifest.operators else "none")
    yield line("Output", position_text(manifest.sink))
    if manifest.not_included:
        yield line("Left out", left_out_text(savepoint))


def left_out_text(savepoint: StoredSavepoint) -> str:
    """Return what was in the checkpoint, is not Spark's, and is not in the savepoint."""
    parts = (
        f"{entry.path} ({plural(entry.files, 'file')}, {size(entry.size)})" for entry in savepoint.manifest.not_included
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
    return f"{position.output}; its position is unknown: {position.unknown}"


def files_text(savepoint: StoredSavepoint) -> str:
    """Return how many files a savepoint has, and their size."""
    return f"{plural(len(savepoint.manifest.files), 'file')}, {size(savepoint.manifest.size)}"


def print_created(savepoint: StoredSavepoint, path: str) -> None:
    """Print a savepoint that was created; `path` is the checkpoint as the user named it."""
    manifest = savepoint.manifest
    name, checkpoint = manifest.name, manifest.checkpoint
    print_result(f"Savepoint {name} of {checkpoint} at batch {manifest.batch:,}: {files_text(savepoint)}.")
    if manifest.not_included:
        print_result(f"Not included, as neither Spark nor Delta defines it: {left_out_text(savepoint)}.")
    print_result(f"Restore it with: respool savepoint restore {name} {path}")


def print_report(report: SavepointReport, savepoint: StoredSavepoint) -> None:
    """Print what was checked."""
    for problem in report.wrong:
        print_result(f"✗ {problem}")
    for note in report.notes:
        print_result(f"• {note}")
    for table, rows in (report.loaded or {}).items():
        print_result(f"✓ {table}: {plural(rows, 'row')}")
    if report.ok:
        print_result(f"{files_text(savepoint)}, as they were saved. A query can start from it.")


def report_json(report: SavepointReport, load_state: bool) -> dict[str, Any]:
    """Return what was checked, as JSON."""
    plain = {"savepoint": report.name, "ok": report.ok, "wrong": list(report.wrong), "notes": list(report.notes)}
    return {**plain, "loaded": report.loaded} if load_state else plain
