"""A checkpoint's files, on a local disk or on any filesystem that fsspec knows.

Paths are relative to the checkpoint's folder, with `/` between their parts: any other path is refused, by every method.
A `Reader` can change nothing; only `apply` asks for a `Writer`.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from respool.errors import CheckpointError, FileError, UnreadableFileError


class FileInfo(NamedTuple):
    """A file's size, and when it was written, in seconds since 1970; None where the store does not say."""

    size: int
    modified: float | None


@dataclass(frozen=True)
class FolderListing:
    """All files of a checkpoint but respool's own, listed once.

    Attributes:
        folders: The names of the files in each folder.
        unreadable: Folders that could not be listed and entries that are not regular files or folders, and why. A
            change must not be planned when there are any: what is behind a link, for example, is not in the listing.
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

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        """Return the facts of those files that are there."""
        ...

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of files in one folder that a killed writer left."""
        ...


class FolderWriter(FolderReader, Protocol):
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


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn what a filesystem raises into a CheckpointError; a missing file stays a FileNotFoundError."""
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
    except Exception as error:  # each filesystem has errors of its own
        raise UnreadableFileError(what, f"could not be reached: {short_message(error)}") from error


def read_error(path: str, error: Exception) -> UnreadableFileError:
    """Return the error of a file that could not be read, for what a filesystem or `telling` raised."""
    if isinstance(error, FileError):
        return UnreadableFileError(path, error.predicate, error.remedy)
    return UnreadableFileError(path, f"cannot be read: {short_message(error)}")


def short_message(error: BaseException) -> str:
    """Return what an error says, in a few words."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]} …"


def is_denied(error: BaseException) -> bool:
    """Return whether a file could not be read for want of a permission."""
    return isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError)


def reason(error: BaseException) -> str:
    """Return why a file cannot be used, without its path and without advice that is given elsewhere."""
    if isinstance(error.__cause__, IsADirectoryError):
        return "is a folder; expected a file"
    if is_denied(error):
        return "permission denied"
    return error.predicate if isinstance(error, FileError) else str(error)
