"""Copy files from one place to another, and know their bytes by their SHA-256."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from respool.checkpoint.files import Reader, Writer
from respool.errors import CheckpointError, DamagedFileError, UnreadableFileError
from respool.savepoint.manifest import SavedFile

_AT_ONCE = 8  # files copied at a time: most are small, and each waits for its disk or its store

A = TypeVar("A")
B = TypeVar("B")
Tell = Callable[[int, int], None]


def copy(paths: Sequence[str], source: Reader, target: Writer, prefix: str, on_file: Tell) -> tuple[SavedFile, ...]:
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


def copy_known(files: Sequence[SavedFile], source: Reader, target: Writer, prefix: str, on_file: Tell) -> None:
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


def check(files: Sequence[SavedFile], source: Reader, on_file: Tell) -> list[str]:
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


def _changed(file: SavedFile, found: SavedFile, source: Reader) -> DamagedFileError:
    what = f"{found.size:,} bytes, expected {file.size:,}" if found.size != file.size else "other bytes than were saved"
    return DamagedFileError(f"{source.root}/{file.path}", f"it has {what}", _DAMAGED)


def _copy(path: str, source: Reader, target: Writer, prefix: str) -> SavedFile:
    return _watched(path, source, lambda chunks: target.write(prefix + path, chunks))


def _watched(path: str, source: Reader, take: Callable[[Iterator[bytes]], object]) -> SavedFile:
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
