"""A checkpoint's files, on a local disk or on any filesystem that fsspec knows.

Paths are relative to the checkpoint's folder, with `/` between their parts: any other path is refused, by every method.
A `Reader` can change nothing; only `apply` asks for a `Writer`.
"""

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from respool.errors import CheckpointError, CheckpointNotFoundError, FileError, UnreadableFileError
from respool.locations import scheme_of
from respool.untrusted import file_name

OWN = "_respool"  # respool's folder in a checkpoint, which Spark ignores


class Facts(NamedTuple):
    """A file's size, and when it was written, in seconds since 1970; None where the store does not say."""

    size: int
    modified: float | None


@dataclass(frozen=True)
class Listing:
    """All files of a checkpoint but respool's own, listed once.

    Attributes:
        folders: The names of the files in each folder.
        unreadable: Folders that could not be listed and entries that are not regular files or folders, and why. A
            change must not be planned when there are any: what is behind a link, for example, is not in the listing.
    """

    folders: dict[str, list[str]]
    unreadable: dict[str, str]


class Reader(Protocol):
    """Reads a folder."""

    root: str

    def walk(self) -> Listing:
        """List all files, in one pass."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names in one folder that are not folders; none when it is not there."""
        ...

    def read(self, path: str) -> bytes:
        """Return a regular file's bytes; raise FileNotFoundError, or CheckpointError when it cannot be read."""
        ...

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of files, or what went wrong with each."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes, piece by piece; raise as `read` does."""
        ...

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its folders; none when it is not there."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; none when it is not there."""
        ...

    def facts(self, paths: Iterable[str]) -> dict[str, Facts]:
        """Return the facts of those files that are there."""
        ...

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of files in one folder that a killed writer left."""
        ...


class Writer(Reader, Protocol):
    """Changes a folder.

    Attributes:
        at_once: How many files are best moved at once.
    """

    at_once: int

    def exclusive(self) -> bool:
        """Return whether exactly one of several processes that create the same file at the same time succeeds."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a file that must not be there yet; raise FileExistsError when it is.

        No other process may create it with the same content.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, in place of what was there: a reader sees the old bytes or the new ones."""
        ...

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from pieces, as `replace` does."""
        ...

    def move(self, source: str, target: str) -> None:
        """Move a file; done before, by a run that was cut off, it is done."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        ...

    def prune(self, folder: str) -> None:
        """Delete the empty folders in a folder, and itself when nothing is left."""
        ...

    def sync(self, everything: bool = False) -> None:
        """Return when what was done is safe from a power cut; with `everything`, also what other processes did."""
        ...


def local_path(location: str) -> Path | None:
    """Return the path of a folder on a local disk, or None for a URL of another filesystem."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    if re.match(r"dbfs:/(?!/)", location):
        raise CheckpointError(
            f"{location} can be read in Databricks only. Name the same folder as it is mounted there, "
            f"/dbfs/{location.removeprefix('dbfs:/')}, or a copy of it on a disk or an object store."
        )
    return Path(location) if scheme_of(location) is None else None


def absolute(location: str) -> str:
    """Return a folder or URL as it is known from any folder."""
    path = local_path(location)
    return location.rstrip("/") if path is None else str(path.expanduser().absolute())


def open_reader(location: str) -> Reader:
    """Return a reader of a folder that is there; raise CheckpointError when it is not."""
    return open_writer(location)


def new_writer(location: str) -> Writer:
    """Return a writer of a folder that need not be there yet: the first write makes it."""
    path = local_path(location)
    if path is None or path.exists():
        return open_writer(location)
    from respool.checkpoint.local_files import LocalFiles

    return LocalFiles(path)


def open_writer(location: str) -> Writer:
    """Return a writer of a folder that is there; raise CheckpointError when it is not."""
    path = local_path(location)
    if path is None:
        from respool.checkpoint.remote_files import RemoteFiles

        return RemoteFiles(location)
    if not path.exists():
        raise CheckpointNotFoundError(str(path), "the folder does not exist", "Name a pipeline, a folder or a URL.")
    if not path.is_dir():
        raise CheckpointNotFoundError(str(path), "it is a file; expected a checkpoint's folder")
    from respool.checkpoint.local_files import LocalFiles

    return LocalFiles(path)


def open_inside(location: str, name: str) -> Reader:
    """Return a reader of a folder in another folder, whose name was read from a file.

    Raises:
        CheckpointError: It is not a single name, the folder is a symbolic link, or it is not there.
    """
    try:
        file_name(name)
    except ValueError as error:
        raise CheckpointError(f"{location}: {error}. Nothing was done with it.") from None
    path = local_path(location)
    if path is not None and (path / name).is_symlink():
        problem = "is a symbolic link, and respool follows none inside a checkpoint or a savepoint"
        raise UnreadableFileError(str(path / name), problem, "Put the folder itself in its place.")
    return open_reader(f"{location}/{name}")


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Turn what a filesystem raises into a CheckpointError; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (CheckpointError, FileNotFoundError, FileExistsError):
        raise
    except PermissionError as error:
        remedy = f"Use an account that may read and change it. ({short(error)})"
        raise UnreadableFileError(what, "cannot be accessed: permission denied", remedy) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem, remedy = f"cannot be written: {short(error)}", "Make room, and run this again."
            raise UnreadableFileError(what, problem, remedy) from error
        raise UnreadableFileError(what, f"could not be reached: {short(error)}") from error
    except Exception as error:  # each filesystem has errors of its own
        raise UnreadableFileError(what, f"could not be reached: {short(error)}") from error


def read_error(path: str, error: Exception) -> UnreadableFileError:
    """Return the error of a file that could not be read, for what a filesystem or `telling` raised."""
    if isinstance(error, FileError):
        return UnreadableFileError(path, error.predicate, error.remedy)
    return UnreadableFileError(path, f"cannot be read: {short(error)}")


def short(error: BaseException) -> str:
    """Return what an error says, in a few words."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]} …"
