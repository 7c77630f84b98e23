"""Copy a savepoint to another place, on any filesystem."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from respool.checkpoint import reachability
from respool.checkpoint.planning import source_trim
from respool.checkpoint.snapshot import CheckpointSnapshot, with_companions
from respool.errors import BatchUnavailableError, CheckpointError, DamagedFileError, UnreadableFileError
from respool.format import layout, positions, state_files
from respool.savepoint.extras import schema_logs
from respool.savepoint.manifest import SavedFile
from respool.savepoint.placement import require_store_place
from respool.savepoint.store import Savepoint, SavepointStore, new_folder
from respool.storage.folder import FolderReader, FolderWriter

_AT_ONCE = 8  # files copied at a time: most are small, and each waits for its disk or its store

A = TypeVar("A")
B = TypeVar("B")
Tell = Callable[[int, int], None]


def copy(
    paths: Sequence[str], source: FolderReader, target: FolderWriter, prefix: str, on_file: Tell
) -> tuple[SavedFile, ...]:
    """Copy files, and return what they are.

    Args:
        paths: Their paths in the source.
        source: Where they are.
        target: Where they go.
        prefix: What stands before their paths there, with its slash.
        on_file: Called with how many are done, of how many.
    """
    found = tuple(_all(paths, lambda path: _copy(path, source, target, prefix), on_file))
    target.sync()
    return found


def copy_known(
    files: Sequence[SavedFile], source: FolderReader, target: FolderWriter, prefix: str, on_file: Tell
) -> None:
    """Copy files whose bytes are known; raise CheckpointError for one that is not as it was."""

    def one(file: SavedFile) -> None:
        try:
            found = _copy(file.path, source, target, prefix)
        except FileNotFoundError:
            raise UnreadableFileError(f"{source.root}/{file.path}", "is missing", _DAMAGED) from None
        if found != file:
            target.delete(prefix + file.path)
            raise _changed(file, found, source)

    for _ in _all(files, one, on_file):
        pass
    target.sync()


def check(files: Sequence[SavedFile], source: FolderReader, on_file: Tell) -> list[str]:
    """Return what is wrong with files whose bytes are known."""

    def one(file: SavedFile) -> str | None:
        try:
            found = _watched(file.path, source, _drop)
        except FileNotFoundError:
            return f"{file.path} is missing."
        except CheckpointError as error:
            return str(error)
        return None if found == file else str(_changed(file, found, source))

    return [wrong for wrong in _all(files, one, on_file) if wrong is not None]


_DAMAGED = "The savepoint is damaged. Use another one. Nothing was changed."


def _changed(file: SavedFile, found: SavedFile, source: FolderReader) -> DamagedFileError:
    what = f"{found.size:,} bytes, expected {file.size:,}" if found.size != file.size else "other bytes than were saved"
    return DamagedFileError(f"{source.root}/{file.path}", f"it has {what}", _DAMAGED)


def _copy(path: str, source: FolderReader, target: FolderWriter, prefix: str) -> SavedFile:
    return _watched(path, source, lambda chunks: target.write(prefix + path, chunks))


def _watched(path: str, source: FolderReader, take: Callable[[Iterator[bytes]], object]) -> SavedFile:
    """Hand a file's bytes on, and return what they were."""
    digest, size = hashlib.sha256(), 0

    def passing() -> Iterator[bytes]:
        nonlocal size
        for piece in source.chunks(path):
            digest.update(piece)
            size += len(piece)
            yield piece

    take(passing())
    return SavedFile(path, size, digest.hexdigest())


def _drop(chunks: Iterator[bytes]) -> None:
    for _ in chunks:
        pass


def _all(items: Sequence[A], work: Callable[[A], B], on_file: Tell) -> Iterator[B]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done, result in enumerate(pool.map(work, items), start=1):
            on_file(done, len(items))
            yield result


_STATE = "state/"


def required_files(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the files that a start after a committed batch needs, with their checksum files.

    Raises:
        CheckpointError: They are not all there.
    """
    if "metadata" not in checkpoint.folders[""]:
        raise BatchUnavailableError(
            f"The checkpoint {checkpoint.root} has lost its file metadata, which holds the query's id"
        )
    why = reachability.log_obstacle(checkpoint, batch + 1, same_range=False)
    if why is not None:
        raise BatchUnavailableError(why)
    offsets = [f"offsets/{one}" for one in (batch - 1, batch) if one >= 0]
    paths = ["metadata", *schema_logs(checkpoint), *_sources(checkpoint, batch), *_state(checkpoint, batch), *offsets]
    return with_companions(checkpoint, [*paths, f"commits/{batch}"])


def _sources(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the files of the sources: of a log of input files, only what was read up to the batch."""
    later: set[str] = set()
    for one in checkpoint.planned(batch).sources:
        if positions.kind_of(one.end) == "files":
            later |= set(source_trim.trim(checkpoint, one.source, int(one.end["logOffset"])).moves)
    folders = [folder for folder in checkpoint.folders if folder.startswith("sources/")]
    paths = [f"{folder}/{name}" for folder in sorted(folders) for name in sorted(checkpoint.folders[folder])]
    return [path for path in paths if path not in later and _counts(path)]


def _state(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the files of the state that the batch left: what describes it, then what makes its version."""
    paths = [path for first, path in layout.run_files(checkpoint.folders) if first <= batch]
    for folder in sorted(checkpoint.folders):
        if folder.startswith(_STATE) and folder.endswith("/_metadata"):
            paths += [f"{folder}/{name}" for name in sorted(checkpoint.folders[folder])]
    loads, _ = reachability.state_loads(checkpoint, batch + 1)
    for load in loads:
        files = [*([load.snapshot] if load.snapshot else []), *load.increments]
        paths += [f"{load.store.folder}/{one.name}" for one in files]
        if load.snapshot is not None and load.snapshot.kind == "zip":
            path = f"{load.store.folder}/{load.snapshot.name}"
            named = state_files.files_named(path, checkpoint.files.read(path))
            paths += [f"{load.store.folder}/{name}" for name in named]
    return [path for path in paths if _counts(path)]


def _counts(path: str) -> bool:
    """Return whether a file counts by itself: checksum files come with theirs, and what was not finished does not."""
    name = path.rpartition("/")[2]
    return not layout.is_companion(name) and not layout.is_leftover(name)


def copy_to(
    savepoint: Savepoint, store: SavepointStore, name: str | None = None, on_file: Tell = lambda done, total: None
) -> Savepoint:
    """Copy a savepoint into a store, under its own name or another; every byte is checked on the way.

    Raises:
        CheckpointError: The name is taken, or a file is damaged. Nothing is left then.
    """
    manifest = replace(savepoint.manifest, name=name or savepoint.manifest.name, data=new_folder())
    require_store_place(store.location)
    store.require_free(manifest.name)
    try:
        copy_known(manifest.files, savepoint.files(), store.writer(), f"{manifest.name}/{manifest.data}/", on_file)
        return store.add(manifest)
    except BaseException:
        store.discard(manifest.name, manifest.data)
        raise
