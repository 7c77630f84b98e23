"""Make a savepoint of a checkpoint, while its query runs or not."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from respool._version import __version__
from respool.checkpoint import reachability
from respool.checkpoint.journal import history
from respool.checkpoint.ownership import read_run_record
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed
from respool.checkpoint.verify.run import verify
from respool.errors import CheckpointError, UnfinishedChangeError
from respool.format import layout
from respool.locations import absolute
from respool.savepoint.copying import ProgressCallback, copy, required_files
from respool.savepoint.extras import not_included
from respool.savepoint.manifest import SavedFile, SavepointManifest
from respool.savepoint.placement import require_store_place
from respool.savepoint.store import Savepoint, SavepointStore, new_folder
from respool.sinks.registry import SinkPosition
from respool.storage.folder import FolderReader
from respool.storage.open import open_reader

_ATTEMPTS = 5  # a running query deletes files while they are copied

Position = Callable[[CheckpointSnapshot, int], SinkPosition]


@dataclass(frozen=True)
class SavepointRequest:
    """A savepoint to create.

    Attributes:
        location: The checkpoint's folder or URL.
        name: The savepoint's name.
        batch: The batch; None for the newest committed batch.
        reason: Why, for the manifest.
    """

    location: str
    name: str
    batch: int | None = None
    reason: str | None = None


class _Changed(Exception):
    """The query continued, and files to be copied are gone."""


def create(
    request: SavepointRequest,
    store: SavepointStore,
    position: Position,
    on_file: ProgressCallback = lambda done, total: None,
) -> Savepoint:
    """Copy what a start after a committed batch needs; the manifest is written last and makes the savepoint exist.

    Raises:
        CheckpointError: The name is taken or invalid, the batch is not committed or no longer kept, or the files cannot
            be read or written. No file is left in that case.
    """
    require_store_place(store.location)
    store.require_free(request.name)
    why: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            return _try(request, store, position, on_file)
        except _Changed as error:
            why = error.__cause__ if isinstance(error.__cause__, Exception) else error
    raise CheckpointError(
        f"The checkpoint {request.location} changes faster than it can be copied, or lacks files: {why} "
        "Check it with: respool checkpoint verify. Nothing was changed."
    )


def _try(request: SavepointRequest, store: SavepointStore, position: Position, on_file: ProgressCallback) -> Savepoint:
    files = open_reader(absolute(request.location))
    unfinished = history.pending(files)
    if unfinished is not None:
        raise UnfinishedChangeError(request.location, unfinished)
    changes = _changes(files)
    # The newest batch is read before the folder is listed, so the listing contains all of its files.
    newest = max(layout.batches(files.names("commits")), default=None)
    checkpoint = CheckpointSnapshot(files)
    require_listed(checkpoint)
    batch = _batch(checkpoint, newest, request.batch)
    data = new_folder()
    try:
        paths = _needed(checkpoint, batch, chosen=request.batch is not None)
        sink_position = position(checkpoint, batch)
        saved = copy(paths, files, store.writer(), f"{request.name}/{data}/", on_file)
        if _changes(files) != changes:
            raise _Changed("it was rewound, restored or promoted during the copy.")
        _require_sound(f"{store.location}/{request.name}/{data}", checkpoint.root)
        return store.add(_manifest(checkpoint, request, batch, data, saved, sink_position))
    except FileNotFoundError as error:
        store.discard(request.name, data)
        raise _Changed from error
    except BaseException:
        store.discard(request.name, data)
        raise


def _changes(files: FolderReader) -> set[str]:
    """Return the records of respool's changes: files from before and after a change must not be mixed."""
    return {*files.names(history.FOLDER), *files.facts([history.PENDING])}


def _batch(checkpoint: CheckpointSnapshot, newest: int | None, wanted: int | None) -> int:
    if newest is None:
        raise CheckpointError(
            f"The checkpoint {checkpoint.root} has no committed batch yet, so there is nothing to save. "
            "Run the query until it has finished a batch. Nothing was changed."
        )
    if wanted is None:
        return newest
    if wanted > newest:
        raise CheckpointError(f"Batch {wanted} is not committed; the newest is {newest}. Nothing was changed.")
    return wanted


def _needed(checkpoint: CheckpointSnapshot, batch: int, chosen: bool) -> list[str]:
    try:
        return required_files(checkpoint, batch)
    except CheckpointError as error:
        if not chosen:  # the newest batch was complete just now, unless the checkpoint is damaged
            raise _Changed from error
        batches = reachability.reachable_text(checkpoint, shift=-1)
        available = (
            f"Available batches: {batches}, and the newest." if batches else "Only the newest batch is available."
        )
        message = f"Batch {batch} cannot be saved: {error.summary}. {available} Nothing was changed."
        raise CheckpointError(message) from error


def _require_sound(copied: str, origin: str) -> None:
    """Raise CheckpointError when the copied files are damaged, so that Spark could not start from them."""
    checks = verify(CheckpointSnapshot(open_reader(copied), is_copy=True))
    problems = [problem for check in checks if check.status == "broken" for problem in check.findings]
    if problems:
        raise CheckpointError(
            f"The checkpoint {origin} is damaged: {problems[0].what} For details and remedies run: "
            f"respool checkpoint verify {origin}. Nothing was changed."
        )


def _manifest(
    checkpoint: CheckpointSnapshot,
    request: SavepointRequest,
    batch: int,
    data: str,
    saved: tuple[SavedFile, ...],
    position: SinkPosition,
) -> SavepointManifest:
    planned, run = checkpoint.planned(batch), read_run_record(checkpoint.files)
    return SavepointManifest(
        name=request.name,
        created=datetime.now(timezone.utc),
        reason=request.reason,
        data=data,
        checkpoint=checkpoint.root,
        query_id=checkpoint.query_id,
        batch=batch,
        planned_ms=planned.timestamp_ms,
        watermark_ms=max(planned.watermark_ms, checkpoint.committed(batch).next_watermark_ms),
        sources=planned.sources,
        conf=planned.conf,
        operators=len(reachability.operators_named(checkpoint)),
        files=saved,
        sink=position,
        run=run,
        spark=run.spark or None if run else None,
        respool=__version__,
        not_included=not_included(checkpoint, {file.path for file in saved}),
    )
