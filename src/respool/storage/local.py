"""A folder on a local disk: the only place where respool opens, creates, moves and deletes files of a checkpoint.

The content of the folder is not trusted. Every path is checked to stay inside the folder, no symbolic link below it is
followed, and only regular files are read. The folder itself may be named by a link. A process that replaces folders by
links while respool works is not defended against: it can change the checkpoint anyway.

Created files and folders are accessible by their owner only. A file's bytes are on the disk before it gets its name;
names are on the disk after `sync`.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from respool.errors import CheckpointError, UnreadableFileError
from respool.locations import OWN
from respool.storage.folder import (
    FileInfo,
    FolderListing,
    FolderReader,
    require_readable_size,
    short_message,
    translate_errors,
)
from respool.untrusted import relative_path

_PIECE = 2**20  # bytes read at a time
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")  # characters that `relative_path` refuses
_LINK = "it is a symbolic link, which respool does not follow"
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
_FLAT = ("offsets", "commits")  # by far the largest folders; every entry is listed as a file, whatever it is


class LocalReader:
    """Reads a folder on a local disk."""

    def __init__(self, root: Path) -> None:
        """Keep the folder's path; nothing is read yet."""
        self.root = str(root)

    def walk(self) -> FolderListing:
        """List all files, in one pass."""
        listing = FolderListing({}, {})
        pending = [""]
        while pending:
            folder = pending.pop()
            prefix = f"{folder}/" if folder else ""
            names: list[str] = []
            folders: list[str] = []
            try:
                with os.scandir(self._folder_at(folder)) as entries:
                    for entry in entries:
                        if entry.is_file(follow_symlinks=False):
                            names.append(entry.name)
                        elif not entry.is_dir(follow_symlinks=False):
                            listing.unreadable[prefix + entry.name] = _irregular(entry)
                            if not entry.is_dir():
                                names.append(entry.name)
                        elif folder in _FLAT:
                            names.append(entry.name)
                        else:
                            folders.append(entry.name)
            except FileNotFoundError as error:
                if folder:
                    continue  # the query has deleted it since
                listing.unreadable[folder] = short_message(error)
            except OSError as error:
                listing.unreadable[folder] = short_message(error)
            for name in _unsafe(names) + _unsafe(folders):
                listing.unreadable[prefix + name] = "its name has characters that respool does not accept"
            listing.folders[folder] = names
            pending += [prefix + name for name in folders if folder or name != OWN]
        return listing

    def names(self, folder: str) -> list[str]:
        """Return the names of the entries of one folder that are not folders; empty when the folder does not exist."""
        return [entry.name for entry in self._entries(folder) if not entry.is_dir(follow_symlinks=False)]

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; empty when the folder does not exist."""
        return [entry.name for entry in self._entries(folder) if entry.is_dir(follow_symlinks=False)]

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its subfolders; empty when the folder does not exist."""
        paths: list[str] = []
        pending = [folder]
        while pending:
            here = pending.pop()
            for entry in self._entries(here):
                path = f"{here}/{entry.name}" if here else entry.name
                (pending if entry.is_dir(follow_symlinks=False) else paths).append(path)
        return paths

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        with translate_errors(path), self._open(path) as file:
            require_readable_size(path, os.fstat(file.fileno()).st_size)
            return file.read()

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of each file, or the error that it raised."""
        contents: dict[str, bytes | Exception] = {}
        for path in paths:
            try:
                contents[path] = self.read(path)
            except (OSError, CheckpointError) as error:
                contents[path] = error
        return contents

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes in chunks."""
        with translate_errors(path), self._open(path) as file:
            while piece := file.read(_PIECE):
                yield piece

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        """Return size and modification time of each file that exists; links are not followed."""
        infos = {}
        inside: dict[str, bool] = {}
        base = f"{self.root}/"
        for path in paths:
            folder = path.rpartition("/")[0]
            if folder not in inside:
                inside[folder] = self._is_inside(folder)
            if not inside[folder] or path.endswith(("/..", "/.", "/")) or path in ("", ".", ".."):
                continue
            try:
                known = os.lstat(base + path)
            except (OSError, ValueError):
                continue
            infos[path] = FileInfo(known.st_size, known.st_mtime)
        return infos

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of temporary files in one folder that a killed process left."""
        return [f"{folder}/{name}" if folder else name for name in self.names(folder) if _TEMPORARY.fullmatch(name)]

    def _open(self, path: str) -> BinaryIO:
        """Open a regular file; never block on a FIFO or a device."""
        where = self._at(path)
        try:
            handle = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:  # a link, a socket, or a device without a driver cannot even be opened
            with suppress(FileNotFoundError):
                self._require_regular(path, os.lstat(where).st_mode, error)
            raise
        try:
            self._require_regular(path, os.fstat(handle).st_mode)
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise

    def _require_regular(self, path: str, mode: int, cause: OSError | None = None) -> None:
        if not stat.S_ISREG(mode):
            raise UnreadableFileError(f"{self.root}/{path}", f"is {_kind(mode)}; expected a regular file") from cause

    def _entries(self, folder: str) -> list["os.DirEntry[str]"]:
        """Return the entries of a folder; empty when the folder does not exist."""
        try:
            with os.scandir(self._folder_at(folder)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _at(self, path: str) -> str:
        """Return the full path of a file; raise CheckpointError for a path that leads out of the folder."""
        self._check(path)
        self._refuse_links(path.split("/")[:-1])
        return f"{self.root}/{path}"

    def _folder_at(self, folder: str) -> str:
        """Return the full path of a folder; raise CheckpointError for a path that leads out of the folder."""
        if not folder:
            return self.root
        self._check(folder)
        self._refuse_links(folder.split("/"))
        return f"{self.root}/{folder}"

    def _check(self, path: str) -> None:
        try:
            relative_path(path)
        except ValueError as error:
            raise CheckpointError(f"{self.root}: {error}. Nothing was done with it.") from None

    def _refuse_links(self, parts: Sequence[str]) -> None:
        """Raise CheckpointError when a parent folder is a link, FileNotFoundError when it is a file."""
        where = self.root
        for part in parts:
            where = f"{where}/{part}"
            try:
                mode = os.lstat(where).st_mode
            except FileNotFoundError:
                return
            if stat.S_ISLNK(mode):
                raise UnreadableFileError(
                    where,
                    "is a symbolic link; respool does not follow links inside a checkpoint, a savepoint or their store",
                    "Replace the link by the folder itself. The link's target was not touched.",
                )
            if not stat.S_ISDIR(mode):
                raise FileNotFoundError(f"{where} is not a folder")

    def _is_inside(self, folder: str) -> bool:
        try:
            self._folder_at(folder)
        except (CheckpointError, OSError):
            return False
        return True


class LocalWriter(LocalReader):
    """Reads and changes a folder on a local disk."""

    at_once = 1

    def __init__(self, root: Path) -> None:
        """Keep the folder's path; the folder is created by the first write."""
        super().__init__(root)
        self._touched: set[str] = set()  # folders whose entries changed since the last `sync`

    def exclusive(self) -> bool:
        """Return True: a hard link is created atomically."""
        return True

    def create(self, path: str, data: bytes) -> None:
        """Create a file; raise FileExistsError when it exists."""
        with translate_errors(path):
            where = self._at(path)
            self._make_folder(os.path.dirname(where))
            new = self._temporary(where, [data])
            try:
                os.link(new, where)  # atomic; fails when the file exists
            finally:
                os.unlink(new)
            self._touch(where)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file atomically."""
        self.write(path, [data])

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from chunks atomically; an existing file's permissions are kept."""
        with translate_errors(path):
            where = self._at(path)
            self._make_folder(os.path.dirname(where))
            os.replace(self._temporary(where, chunks), where)
            self._touch(where)

    def move(self, source: str, target: str) -> None:
        """Move a file; do nothing if it is already moved."""
        with translate_errors(source):
            before, after = self._at(source), self._at(target)
            if not os.path.lexists(before):
                if not os.path.lexists(after):
                    raise CheckpointError(f"{source} has vanished: another process changes this checkpoint.")
                return
            if os.path.lexists(after):
                raise CheckpointError(f"{source} cannot be moved to {target}: both exist.")
            mode = os.lstat(before).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise UnreadableFileError(source, f"cannot be moved: it is {_kind(mode)}; expected a regular file")
            self._make_folder(os.path.dirname(after))
            os.rename(before, after)
            self._touch(before, after)

    def delete(self, path: str) -> None:
        """Delete a file if it exists; of a link, the link itself."""
        with translate_errors(path), suppress(FileNotFoundError):
            where = self._at(path)
            os.unlink(where)
            self._touch(where)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files that exist."""
        for path in paths:
            self.delete(path)

    def copy_inside(self, source: FolderReader, path: str, target: str) -> bool:
        """Return False: a disk copies no files on its own."""
        return False

    def prune(self, folder: str) -> None:
        """Delete the empty folders in a folder, and the folder itself if it is then empty."""
        pending, order = [folder], []
        while pending:
            order.append(pending.pop())
            pending += [f"{order[-1]}/{name}" if order[-1] else name for name in self.folders(order[-1])]
        with translate_errors(folder):
            for here in reversed(order):  # what is inside a folder is after it in `order`
                where = self._folder_at(here)
                with suppress(FileNotFoundError), os.scandir(where) as entries:
                    if next(entries, None) is None:
                        os.rmdir(where)
                        self._touch(where)

    def sync(self, everything: bool = False) -> None:
        """Write the changed folders to the disk."""
        if everything:
            os.sync()
        for folder in sorted({above for place in self._touched for above in self._up_from(place)}):
            # Deleted since: its parent is in the list. Or this account cannot read the folder above the root.
            with suppress(FileNotFoundError, PermissionError):
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        self._touched.clear()

    def _temporary(self, where: str, chunks: Iterable[bytes]) -> str:
        """Write a temporary file in the folder of its final path; return the temporary path."""
        new = os.path.join(os.path.dirname(where), f".{os.path.basename(where)}.{os.getpid()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(new, flags, 0o600)
        except FileExistsError:  # left by an earlier process with the same id
            os.unlink(new)
            handle = os.open(new, flags, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                with suppress(FileNotFoundError):
                    mode = os.lstat(where).st_mode
                    if stat.S_ISREG(mode) and stat.S_IMODE(mode) != 0o600:
                        os.fchmod(handle, stat.S_IMODE(mode))
                for piece in chunks:
                    file.write(piece)
                file.flush()
                os.fsync(handle)
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise
        return new

    def _make_folder(self, where: str) -> None:
        """Create a folder and its missing parents, each accessible by its owner only."""
        missing = []
        while not os.path.isdir(where):
            missing.append(where)
            where = os.path.dirname(os.path.abspath(where))
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another thread was faster
                os.mkdir(folder, 0o700)
            self._touch(folder)

    def _up_from(self, folder: str) -> Iterator[str]:
        """Yield a folder and its parents up to the root's parent: the process that created them may not have synced."""
        top = os.path.dirname(os.path.abspath(self.root))
        folder = os.path.abspath(folder)
        while folder.strip("/") and folder.startswith(f"{top.rstrip('/')}/"):
            yield folder
            folder = os.path.dirname(folder)
        yield folder

    def _touch(self, *places: str) -> None:
        self._touched.update(os.path.dirname(place) or "." for place in places)


def _irregular(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return _LINK
    return f"it is {_kind(entry.stat(follow_symlinks=False).st_mode)}, not a regular file"


def _unsafe(names: Sequence[str]) -> list[str]:
    return [name for name in names if _UNSAFE.search(name)] if _UNSAFE.search("".join(names)) else []


def _kind(mode: int) -> str:
    for test, kind in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return kind
    return "a special file"
