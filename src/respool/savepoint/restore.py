"""Plan to put a checkpoint back to a savepoint, or to start a second query from it."""

from collections.abc import Sequence
from uuid import uuid4

from respool.checkpoint import ownership
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import LogEnds, Replace, journal_id
from respool.checkpoint.ownership import ForkRecord
from respool.checkpoint.planning import refusals
from respool.checkpoint.planning.refusals import sink_steps
from respool.checkpoint.planning.request import RewindContext, RewindRequest
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, Refusal
from respool.savepoint import install
from respool.savepoint.extras import files_that_stay
from respool.savepoint.install import InstallSet
from respool.savepoint.manifest import SavepointManifest
from respool.savepoint.placement import require_place
from respool.savepoint.planning import (
    PlannedInstall,
    few_names,
    install_journal,
    install_plan,
    install_refusals,
    pending_reads,
    read_by_origin,
    read_since,
    record_text,
    run_record_steps,
    savepoint_files,
)
from respool.savepoint.store import StoredSavepoint

_AHEAD = (
    "The savepoint is ahead of the checkpoint: the records between them are skipped. The state in the savepoint "
    "includes them."
)


def plan_restore(
    savepoint: StoredSavepoint,
    checkpoint: CheckpointSnapshot | None,
    location: str,
    request: RewindRequest,
    context: RewindContext,
    other_query: bool = False,
) -> PlannedInstall:
    """Plan to put a checkpoint back to a savepoint.

    Args:
        savepoint: The savepoint.
        checkpoint: The checkpoint as it is now; None when the folder is empty or missing.
        location: The checkpoint's folder or URL.
        request: What the user wants.
        context: What else the plan is made from.
        other_query: Whether the checkpoint may belong to another query.
    """
    require_place(location)
    manifest = savepoint.manifest
    install_set = savepoint_files(savepoint, location, None)
    name = journal_id(context.now, manifest.next_batch)
    read_before = read_since(manifest.sources, checkpoint) if checkpoint is not None else read_by_origin(savepoint)
    origin = savepoint.checkpoint()
    reads = pending_reads(manifest.sources, origin, read_before, context.kept, to_end=checkpoint is None)
    steps = install.steps(checkpoint, install_set, name, sink_steps(request, context, name))
    if checkpoint is None or ownership.read_run_record(checkpoint.files) is None:
        steps += run_record_steps(checkpoint, manifest.run)
    refused = install_refusals(checkpoint, request, context, reads, steps)
    if checkpoint is not None and checkpoint.offsets and not other_query:
        refused += _of_another_query(checkpoint, manifest)
    notes = [_AHEAD] if checkpoint is not None and any(reading.skipped for reading in reads.readings) else []
    notes += [*_left_in_place(checkpoint, install_set), *refusals.open_files(request, context)]
    left = LogEnds(manifest.batch, manifest.batch)
    query_id, source = manifest.query_id, savepoint.location
    journal = install_journal("restore", name, request, context.now, checkpoint, query_id, left, source, steps)
    return install_plan(manifest.watermark_ms, install_set, context, reads, refused, notes, journal)


def _of_another_query(checkpoint: CheckpointSnapshot, manifest: SavepointManifest) -> list[Refusal]:
    ids = query_ids(checkpoint)
    if not ids or manifest.query_id in ids:
        return []
    return [
        Refusal(
            f"The savepoint belongs to the query {manifest.query_id}, the checkpoint to {ids[-1]}.",
            "For a second query use `respool savepoint fork`, or confirm with --other-query that this is intended.",
        )
    ]


def _left_in_place(checkpoint: CheckpointSnapshot | None, install_set: InstallSet) -> list[str]:
    """Return a note on the files of a checkpoint that Spark does not define and that are not replaced."""
    if checkpoint is None:
        return []
    names = {path.split("/")[0] for path in files_that_stay(install.safe_move_order(checkpoint), install_set.paths)}
    return [f"Not Spark's, and left in place: {few_names(names)}."] if names else []


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
    read_before = read_by_origin(savepoint)
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
