"""The files of a folder, on a local disk or on any filesystem that fsspec supports.

Paths are relative to the folder, with `/` between their parts: every method refuses any other path. A `FolderReader`
has no methods that write; only code that changes a folder opens a `FolderWriter`.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from respool.errors import CheckpointError, FileError, UnreadableFileError
from respool.untrusted import MAX_BYTES

_MAX_STATE_BYTES = 4 * 2**30  # of a state file, whose checksum is computed over the whole file


class FileInfo(NamedTuple):
    """The facts of a file.

    Attributes:
        size: Its size in bytes.
        modified: Its modification time in seconds since 1970; None where the store has no such time.
        version: What S3 calls its ETag, which changes with its content; None elsewhere.
    """

    size: int
    modified: float | None
    version: str | None = None


@dataclass(frozen=True)
class FolderListing:
    """All files of a checkpoint except respool's own, listed once.

    Attributes:
        folders: The names of the files in each folder.
        unreadable: Folders that could not be listed and entries that are not regular files or folders, and why. If
            there are any, no change may be planned: the files behind a link, for example, are not in the listing.
    """

    folders: dict[str, list[str]]
    unreadable: dict[str, str]


class FolderReader(Protocol):
    """Reads a folder."""

    root: str

    def walk(self) -> FolderListing:
        """List all files, in one pass."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the entries of one folder that are not folders; empty when the folder does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return a regular file's bytes; raise FileNotFoundError, or CheckpointError when it cannot be read."""
        ...

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of each file, or the error that it raised."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes, piece by piece; raise as `read` does."""
        ...

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its subfolders; empty when the folder does not exist."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; empty when the folder does not exist."""
        ...

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        """Return size and modification time of each file that exists."""
        ...

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of temporary files in one folder that a killed writer left."""
        ...


class FolderWriter(FolderReader, Protocol):
    """Changes a folder.

    Attributes:
        at_once: How many files to move in parallel.
    """

    at_once: int

    def exclusive(self) -> bool:
        """Return whether exactly one of several processes that create the same file at the same time succeeds."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Create a file; raise FileExistsError when it exists.

        No other process may create it with the same content.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file atomically: a reader sees the old bytes or the new bytes."""
        ...

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from chunks, as `replace` does."""
        ...

    def move(self, source: str, target: str) -> None:
        """Move a file; do nothing if an interrupted run has already moved it."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files that exist, in parallel where the store supports it."""
        ...

    def copy_inside(self, source: FolderReader, path: str, target: str) -> bool:
        """Copy a file of another folder inside the store that has both; return False when no store has both."""
        ...

    def prune(self, folder: str) -> None:
        """Delete the empty folders in a folder, and the folder itself if it is then empty."""
        ...

    def sync(self, everything: bool = False) -> None:
        """Return when all changes are safe from a power cut; with `everything`, also those of other processes."""
        ...


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn exceptions of a filesystem into a CheckpointError; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (CheckpointError, FileNotFoundError, FileExistsError):
        raise
    except PermissionError as error:
        remedy = f"Use an account that can read and change it. ({short_message(error)})"
        raise UnreadableFileError(what, "cannot be accessed: permission denied", remedy) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem, remedy = f"cannot be written: {short_message(error)}", "Free some space, and run this again."
            raise UnreadableFileError(what, problem, remedy) from error
        raise UnreadableFileError(what, f"could not be reached: {short_message(error)}") from error
    except Exception as error:  # each filesystem has its own errors
        raise UnreadableFileError(what, f"could not be reached: {short_message(error)}") from error


def require_readable_size(path: str, size: int) -> None:
    """Raise UnreadableFileError for a file of a checkpoint that is too large to be read as a whole."""
    most = _MAX_STATE_BYTES if path.startswith("state/") else MAX_BYTES
    if size > most:
        raise UnreadableFileError(path, f"has {size:,} bytes; at most {most:,} are read as a whole")


def read_error(path: str, error: Exception) -> UnreadableFileError:
    """Return the error about a file that could not be read, from an error of a filesystem or of `translate_errors`."""
    if isinstance(error, FileError):
        return UnreadableFileError(path, error.predicate, error.remedy)
    return UnreadableFileError(path, f"cannot be read: {short_message(error)}")


def short_message(error: BaseException) -> str:
    """Return the message of an error, shortened."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]} …"


def is_denied(error: BaseException) -> bool:
    """Return whether a file could not be read because a permission is missing."""
    return isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError)


def reason(error: BaseException) -> str:
    """Return why a file cannot be used, without its path and without a remedy."""
    if isinstance(error.__cause__, IsADirectoryError):
        return "is a folder; expected a file"
    if is_denied(error):
        return "permission denied"
    return error.predicate if isinstance(error, FileError) else str(error)
