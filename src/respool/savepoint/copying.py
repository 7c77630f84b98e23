"""Copy files between filesystems and check them; which files a savepoint needs."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from respool.checkpoint import reachability
from respool.checkpoint.planning import sources
from respool.checkpoint.snapshot import CheckpointSnapshot, with_companions
from respool.errors import BatchUnavailableError, CheckpointError, DamagedFileError, UnreadableFileError
from respool.format import layout, positions, state_files
from respool.savepoint.extras import schema_logs
from respool.savepoint.manifest import SavedFile
from respool.savepoint.placement import require_store_place
from respool.savepoint.store import SavepointStore, StoredSavepoint, new_folder
from respool.storage.folder import FolderReader, FolderWriter

_THREADS = 16  # files copied at a time: most are small, and each waits for its disk or its store

A = TypeVar("A")
B = TypeVar("B")
ProgressCallback = Callable[[int, int], None]


def copy(
    paths: Sequence[str], source: FolderReader, target: FolderWriter, prefix: str, on_file: ProgressCallback
) -> tuple[SavedFile, ...]:
    """Copy files, and return their paths, sizes and hashes.

    Args:
        paths: Their paths in the source.
        source: The folder that they are in.
        target: The folder to copy them to.
        prefix: The prefix of their paths in the target, with its slash.
        on_file: Called with the number of files done, and the total.
    """
    copied = tuple(_all(paths, lambda path: _copy(path, source, target, prefix), on_file))
    target.sync()
    return copied


def copy_verified(
    files: Sequence[SavedFile], source: FolderReader, target: FolderWriter, prefix: str, on_file: ProgressCallback
) -> None:
    """Copy files with recorded hashes; raise CheckpointError for a file that differs from its record."""

    def copy_file(file: SavedFile) -> None:
        try:
            copied = _copy(file.path, source, target, prefix)
        except FileNotFoundError:
            raise UnreadableFileError(f"{source.root}/{file.path}", "is missing", _DAMAGED) from None
        if copied != file:
            target.delete(prefix + file.path)
            raise _changed(file, copied, source)

    for _ in _all(files, copy_file, on_file):
        pass
    target.sync()


def check(files: Sequence[SavedFile], source: FolderReader, on_file: ProgressCallback) -> list[str]:
    """Return what is wrong with files that have recorded hashes."""

    def check_file(file: SavedFile) -> str | None:
        try:
            actual = _hashed(file.path, source, _drop)
        except FileNotFoundError:
            return f"{file.path} is missing."
        except CheckpointError as error:
            return str(error)
        return None if actual == file else str(_changed(file, actual, source))

    return [problem for problem in _all(files, check_file, on_file) if problem is not None]


_DAMAGED = "The savepoint is damaged. Use another savepoint. Nothing was changed."


def _changed(file: SavedFile, actual: SavedFile, source: FolderReader) -> DamagedFileError:
    same_size = actual.size == file.size
    problem = "other bytes than were saved" if same_size else f"{actual.size:,} bytes, expected {file.size:,}"
    return DamagedFileError(f"{source.root}/{file.path}", f"it has {problem}", _DAMAGED)


def _copy(path: str, source: FolderReader, target: FolderWriter, prefix: str) -> SavedFile:
    """Copy a file; return the size and the hash of the bytes that were written."""
    if target.copy_inside(source, path, prefix + path):
        return replace(_hashed(prefix + path, target, _drop), path=path)
    return _hashed(path, source, lambda chunks: target.write(prefix + path, chunks))


def _hashed(path: str, source: FolderReader, consume: Callable[[Iterator[bytes]], object]) -> SavedFile:
    """Pass a file's bytes to a consumer, and return their size and hash."""
    digest, size = hashlib.sha256(), 0

    def passing() -> Iterator[bytes]:
        nonlocal size
        for piece in source.chunks(path):
            digest.update(piece)
            size += len(piece)
            yield piece

    consume(passing())
    return SavedFile(path, size, digest.hexdigest())


def _drop(chunks: Iterator[bytes]) -> None:
    for _ in chunks:
        pass


def _all(items: Sequence[A], work: Callable[[A], B], on_file: ProgressCallback) -> Iterator[B]:
    with ThreadPoolExecutor(_THREADS) as pool:
        for done, result in enumerate(pool.map(work, items), start=1):
            on_file(done, len(items))
            yield result


_STATE = "state/"


def required_files(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the files that a start after a committed batch needs, with their checksum files.

    Raises:
        CheckpointError: Some of them are missing.
    """
    if "metadata" not in checkpoint.folders[""]:
        raise BatchUnavailableError(
            f"The checkpoint {checkpoint.root} has lost its file metadata, which holds the query's id"
        )
    why = reachability.log_obstacle(checkpoint, batch + 1, same_range=False)
    if why is not None:
        raise BatchUnavailableError(why)
    offsets = [f"offsets/{number}" for number in (batch - 1, batch) if number >= 0]
    paths = ["metadata", *schema_logs(checkpoint), *_sources(checkpoint, batch), *_state(checkpoint, batch), *offsets]
    return with_companions(checkpoint, [*paths, f"commits/{batch}"])


def _sources(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the files of the sources; of a log of input files, only the entries read up to the batch."""
    later: set[str] = set()
    for source in checkpoint.planned(batch).sources:
        if positions.kind_of(source.end) == "files":
            later |= set(sources.trim(checkpoint, source.source, int(source.end["logOffset"])).moves)
    folders = [folder for folder in checkpoint.folders if folder.startswith("sources/")]
    paths = [f"{folder}/{name}" for folder in sorted(folders) for name in sorted(checkpoint.folders[folder])]
    return [path for path in paths if path not in later and _is_listed(path)]


def _state(checkpoint: CheckpointSnapshot, batch: int) -> list[str]:
    """Return the state files after the batch: the metadata of the operators, then what each store's version loads."""
    paths = [path for first, path in layout.run_files(checkpoint.folders) if first <= batch]
    for folder in sorted(checkpoint.folders):
        if folder.startswith(_STATE) and folder.endswith("/_metadata"):
            paths += [f"{folder}/{name}" for name in sorted(checkpoint.folders[folder])]
    loads, _ = reachability.state_loads(checkpoint, batch + 1)
    for load in loads:
        files = [*([load.snapshot] if load.snapshot else []), *load.increments]
        paths += [f"{load.store.folder}/{file.name}" for file in files]
        if load.snapshot is not None and load.snapshot.kind == "zip":
            path = f"{load.store.folder}/{load.snapshot.name}"
            named = state_files.files_named(path, checkpoint.files.read(path))
            paths += [f"{load.store.folder}/{name}" for name in named]
    return [path for path in paths if _is_listed(path)]


def _is_listed(path: str) -> bool:
    """Return whether a file is listed: checksum files follow their file, and unfinished files are left out."""
    name = path.rpartition("/")[2]
    return not layout.is_companion(name) and not layout.is_leftover(name)


def copy_to(
    savepoint: StoredSavepoint,
    store: SavepointStore,
    name: str | None = None,
    on_file: ProgressCallback = lambda done, total: None,
) -> StoredSavepoint:
    """Copy a savepoint into a store, under its own name or another; every byte is verified.

    Raises:
        CheckpointError: The name is taken, or a file is damaged. No file is left in that case.
    """
    manifest = replace(savepoint.manifest, name=name or savepoint.manifest.name, data=new_folder())
    require_store_place(store.location)
    store.require_free(manifest.name)
    try:
        copy_verified(manifest.files, savepoint.files(), store.writer(), f"{manifest.name}/{manifest.data}/", on_file)
        return store.add(manifest)
    except BaseException:
        store.discard(manifest.name, manifest.data)
        raise
