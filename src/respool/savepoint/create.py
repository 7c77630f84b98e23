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
from respool.savepoint.copying import Tell, copy, required_files
from respool.savepoint.extras import not_included
from respool.savepoint.manifest import SavedFile, SavepointManifest
from respool.savepoint.placement import require_store_place
from respool.savepoint.store import Savepoint, SavepointStore, new_folder
from respool.sinks.registry import SinkPosition
from respool.storage.folder import FolderReader
from respool.storage.open import open_reader

_ATTEMPTS = 5  # at a query that deletes files while they are copied

Position = Callable[[CheckpointSnapshot, int], SinkPosition]


@dataclass(frozen=True)
class SavepointRequest:
    """What savepoint a user wants.

    Attributes:
        location: The checkpoint's folder or URL.
        name: The savepoint's name.
        batch: The batch; None for the newest that is committed.
        reason: Why, for the manifest.
    """

    location: str
    name: str
    batch: int | None = None
    reason: str | None = None


class _Moved(Exception):
    """The query went on, and what was to be copied is gone."""


def create(
    wanted: SavepointRequest, store: SavepointStore, position: Position, on_file: Tell = lambda done, total: None
) -> Savepoint:
    """Copy what a start after a committed batch needs, and make it count at the end, all at once.

    Raises:
        CheckpointError: The name is taken or none, the batch is not committed or no longer kept, or the files cannot be
            read or written. Nothing is left then.
    """
    require_store_place(store.location)
    store.require_free(wanted.name)
    why: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            return _try(wanted, store, position, on_file)
        except _Moved as error:
            why = error.__cause__ if isinstance(error.__cause__, Exception) else error
    raise CheckpointError(
        f"The checkpoint {wanted.location} changes faster than it can be copied, or lacks files: {why} "
        "Look at it with: respool checkpoint verify. Nothing was changed."
    )


def _try(wanted: SavepointRequest, store: SavepointStore, position: Position, on_file: Tell) -> Savepoint:
    files = open_reader(absolute(wanted.location))
    cut_off = history.pending(files)
    if cut_off is not None:
        raise UnfinishedChangeError(wanted.location, cut_off)
    changes = _changes(files)
    # The newest batch is looked up before the listing: all that it left is there by then.
    newest = max(layout.batches(files.names("commits")), default=None)
    checkpoint = CheckpointSnapshot(files)
    require_listed(checkpoint)
    batch = _batch(checkpoint, newest, wanted.batch)
    data = new_folder()
    try:
        paths = _needed(checkpoint, batch, chosen=wanted.batch is not None)
        where = position(checkpoint, batch)
        saved = copy(paths, files, store.writer(), f"{wanted.name}/{data}/", on_file)
        if _changes(files) != changes:
            raise _Moved("it was rewound, restored or promoted meanwhile.")
        _require_sound(f"{store.location}/{wanted.name}/{data}", checkpoint.root)
        return store.add(_manifest(checkpoint, wanted, batch, data, saved, where))
    except FileNotFoundError as error:
        store.discard(wanted.name, data)
        raise _Moved from error
    except BaseException:
        store.discard(wanted.name, data)
        raise


def _changes(files: FolderReader) -> set[str]:
    """Return what tells whether a checkpoint was changed by respool: two of its lives must not be mixed."""
    return {*files.names(history.FOLDER), *files.facts([history.PENDING])}


def _batch(checkpoint: CheckpointSnapshot, newest: int | None, wanted: int | None) -> int:
    if newest is None:
        raise CheckpointError(
            f"The checkpoint {checkpoint.root} has no committed batch yet: there is nothing to keep. "
            "Run the query until it has finished one. Nothing was changed."
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
        if not chosen:  # it was whole a moment ago, unless it is damaged
            raise _Moved from error
        batches = reachability.reachable_text(checkpoint, shift=-1)
        can = f"Batches that can: {batches}, and the newest." if batches else "Only the newest can."
        raise CheckpointError(f"Batch {batch} cannot be kept: {error.summary}. {can} Nothing was changed.") from error


def _require_sound(copied: str, origin: str) -> None:
    """Raise CheckpointError when what was copied is damaged, so that Spark could not start from it."""
    checks = verify(CheckpointSnapshot(open_reader(copied), is_copy=True))
    found = [one for check in checks if check.status == "broken" for one in check.findings]
    if found:
        raise CheckpointError(
            f"The checkpoint {origin} is damaged: {found[0].what} See what can be done with: "
            f"respool checkpoint verify {origin}. Nothing was changed."
        )


def _manifest(
    checkpoint: CheckpointSnapshot,
    wanted: SavepointRequest,
    batch: int,
    data: str,
    saved: tuple[SavedFile, ...],
    position: SinkPosition,
) -> SavepointManifest:
    planned, run = checkpoint.planned(batch), read_run_record(checkpoint.files)
    return SavepointManifest(
        name=wanted.name,
        created=datetime.now(timezone.utc),
        reason=wanted.reason,
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
