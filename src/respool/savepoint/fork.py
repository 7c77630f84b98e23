"""Plan a second query from a savepoint."""

from collections.abc import Sequence
from uuid import uuid4

from respool.checkpoint import ownership
from respool.checkpoint.journal.steps import LogEnds, Replace, journal_id
from respool.checkpoint.ownership import ForkRecord
from respool.checkpoint.planning import refusals
from respool.checkpoint.planning.request import RewindContext, RewindRequest
from respool.errors import CheckpointError
from respool.savepoint import install
from respool.savepoint.manifest import SavepointManifest
from respool.savepoint.placement import require_place
from respool.savepoint.planning import (
    PlannedInstall,
    few_names,
    install_journal,
    install_plan,
    pending_reads,
    read_by_origin,
    record_text,
    run_record_steps,
    savepoint_files,
)
from respool.savepoint.store import StoredSavepoint


def plan_fork(
    savepoint: StoredSavepoint, location: str, request: RewindRequest, context: RewindContext
) -> PlannedInstall:
    """Plan a second query from a savepoint, in a folder that is empty or missing."""
    manifest = savepoint.manifest
    query_id = str(uuid4())
    install_set = savepoint_files(savepoint, location, query_id)
    name = journal_id(context.now, manifest.next_batch)
    steps = install.steps(None, install_set, name)
    steps += run_record_steps(None, manifest.run)
    record = ForkRecord(
        savepoint=manifest.name,
        location=savepoint.location,
        batch=manifest.batch,
        checkpoint=manifest.checkpoint,
        query_id=manifest.query_id,
        sink=manifest.run.sink if manifest.run else "",
        created=manifest.created,
        sink_identity=manifest.run.sink_identity if manifest.run else None,
    )
    steps.append(Replace(ownership.FORK, None, record_text(record.to_json())))
    read_before = read_by_origin(manifest)
    reads = pending_reads(manifest.sources, savepoint.checkpoint(), read_before, context.kept, to_end=True)
    left = LogEnds(manifest.batch, manifest.batch)
    journal = install_journal("fork", name, request, context.now, None, query_id, left, savepoint.location, steps)
    refused = refusals.losses(request, reads.available)
    return install_plan(manifest.watermark_ms, install_set, context, reads, refused, _left_out(manifest), journal)


def require_new(location: str, names: Sequence[str]) -> None:
    """Raise CheckpointError when a fork would go into a folder that is not empty, or into another checkpoint."""
    require_place(location)
    if names:
        shown = ", ".join(sorted(names)[:4]) + (" …" if names[4:] else "")
        raise CheckpointError(
            f"{location} is not empty: it contains {shown}. A fork needs its own folder; name a new one. "
            "Nothing was changed."
        )


def _left_out(manifest: SavepointManifest) -> list[str]:
    names = {extra.path for extra in manifest.not_included}
    return [f"In the original checkpoint, but not in the savepoint: {few_names(names)}."] if names else []
