"""A folder on a local disk."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from respool.checkpoint.files import OWN, Facts, Listing, short, telling
from respool.errors import CheckpointError

_PIECE = 2**20  # bytes read at a time


class LocalFiles:
    """A folder on a local disk."""

    at_once = 1

    def __init__(self, root: Path) -> None:
        """Take the folder."""
        self.root = str(root)
        self._touched: set[str] = set()  # folders whose entries changed since the last `sync`

    def walk(self) -> Listing:
        """List all files, in one pass."""
        listing = Listing({}, {})
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                names, folders = self._list(folder)
            except OSError as error:
                names, folders = [], []
                listing.unreadable[folder] = short(error)
            listing.folders[folder] = names
            pending += [f"{folder}/{name}" if folder else name for name in folders if folder or name != OWN]
        return listing

    def _list(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the files and of the folders in a folder."""
        if folder in ("offsets", "commits"):  # flat, and by far the largest
            return os.listdir(self._at(folder)), []
        names: list[str] = []
        folders: list[str] = []
        with os.scandir(self._at(folder)) as entries:
            for entry in entries:
                (folders if entry.is_dir() else names).append(entry.name)
        return names, folders

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in one folder; none when it is not there."""
        try:
            with os.scandir(self._at(folder)) as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        with telling(path), open(self._at(path), "rb") as file:
            return file.read()

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of files, or what went wrong with each."""
        found: dict[str, bytes | Exception] = {}
        for path in paths:
            try:
                found[path] = self.read(path)
            except (OSError, CheckpointError) as error:
                found[path] = error
        return found

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes, piece by piece."""
        with telling(path), open(self._at(path), "rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its folders; none when it is not there."""
        return [
            os.path.relpath(os.path.join(here, name), self.root)
            for here, _, names in os.walk(self._at(folder))
            for name in names
        ]

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; none when it is not there."""
        try:
            with os.scandir(self._at(folder)) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def facts(self, paths: Iterable[str]) -> dict[str, Facts]:
        """Return the facts of those files that are there."""
        found = {}
        base = f"{self.root}/"
        for path in paths:
            try:
                known = os.stat(base + path)
            except OSError:
                continue
            found[path] = Facts(known.st_size, known.st_mtime)
        return found

    def create(self, path: str, data: bytes) -> None:
        """Write a file that must not be there yet."""
        with telling(path):
            os.makedirs(os.path.dirname(self._at(path)), exist_ok=True)
            new = self._temporary(path, [data])
            try:
                os.link(new, self._at(path))  # fails when the file is there, and shows it whole or not at all
            finally:
                os.unlink(new)
            self._touch(path)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, in place of what was there."""
        self.write(path, [data])

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from pieces, in place of what was there."""
        with telling(path):
            os.makedirs(os.path.dirname(self._at(path)), exist_ok=True)
            os.replace(self._temporary(path, chunks), self._at(path))
            self._touch(path)

    def move(self, source: str, target: str) -> None:
        """Move a file, if that is not done yet."""
        before, after = self._at(source), self._at(target)
        with telling(source):
            if not os.path.lexists(before):
                if not os.path.lexists(after):
                    raise CheckpointError(f"{source} has vanished: something else changes this checkpoint.")
                return
            if os.path.lexists(after):
                raise CheckpointError(f"{source} cannot be moved to {target}: both are there.")
            os.makedirs(os.path.dirname(after), exist_ok=True)
            os.rename(before, after)
            self._touch(source, target)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with telling(path):
            Path(self._at(path)).unlink(missing_ok=True)
            self._touch(path)

    def prune(self, folder: str) -> None:
        """Delete the empty folders in a folder, and itself when nothing is left."""
        with telling(folder):
            for here, folders, names in os.walk(self._at(folder), topdown=False):
                if not names and not any(os.path.lexists(os.path.join(here, one)) for one in folders):
                    os.rmdir(here)

    def sync(self) -> None:
        """Write the changed folders to the disk."""
        for folder in self._touched:
            if os.path.isdir(folder):
                handle = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        self._touched.clear()

    def _temporary(self, path: str, chunks: Iterable[bytes]) -> str:
        where = self._at(path)
        new = os.path.join(os.path.dirname(where), f".{os.path.basename(where)}.{os.getpid()}.tmp")
        try:
            with open(new, "wb") as file:
                for piece in chunks:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise
        return new

    def _touch(self, *paths: str) -> None:
        self._touched.update(os.path.dirname(self._at(path)) for path in paths)

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root
