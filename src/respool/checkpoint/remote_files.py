"""A folder on a filesystem that fsspec knows."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from respool.checkpoint.files import OWN, Facts, Listing, short, telling
from respool.errors import CheckpointError, CheckpointNotFoundError
from respool.locations import scheme_of
from respool.untrusted import relative_path

_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
_RENAMING = frozenset({"hdfs", "viewfs", "webhdfs", "sftp", "dbfs"})  # where a rename is one cheap step


class RemoteFiles:
    """A folder on a filesystem that fsspec knows: an object store, mostly."""

    at_once = 16  # a store is far away, and serves many

    def __init__(self, url: str) -> None:
        """Take the URL; credentials come from where the filesystem's own library looks for them."""
        self.root = url.rstrip("/")
        self._fs, self._path = _filesystem(self.root)
        protocol = self._fs.protocol
        self._renames = bool(_RENAMING & set((protocol,) if isinstance(protocol, str) else protocol))
        self._listed: dict[str, Facts] = {}

    def walk(self) -> Listing:
        """List all files, in one pass; their facts come with it."""
        found = self._find("")
        if not found:
            remedy = "Check the URL, and the account's permissions."
            raise CheckpointNotFoundError(self.root, "nothing is there", remedy)
        folders: dict[str, list[str]] = {"": []}
        for path in found:
            folder, _, name = path.rpartition("/")
            if folder.split("/", 1)[0] != OWN:
                folders.setdefault(folder, []).append(name)
        return Listing(folders, {})

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in one folder; none when it is not there."""
        return [path.removeprefix(f"{folder}/") for path in self._find(folder, 1) if path.rpartition("/")[0] == folder]

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        with telling(f"{self.root}/{path}"):
            return bytes(self._fs.cat_file(self._at(path)))

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of files, or what went wrong with each; many at a time where the store can."""
        if not paths:
            return {}
        with telling(self.root):
            found = self._fs.cat([self._at(path) for path in paths], on_error="return")
        by_path = {self._relative(path): data for path, data in found.items()}
        return {path: by_path.get(path, FileNotFoundError(path)) for path in paths}

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes: whole, as stores give them best."""
        yield self.read(path)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its folders; none when it is not there."""
        return self._find(folder)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; none when it is not there."""
        with telling(f"{self.root}/{folder}"):
            try:
                found = self._fs.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return []
        return [self._relative(one["name"]).rpartition("/")[2] for one in found if one["type"] == "directory"]

    def facts(self, paths: Iterable[str]) -> dict[str, Facts]:
        """Return the facts of those files that are there, from the listing where it had them."""
        found = {}
        for path in paths:
            known = self._listed.get(path)
            if known is None:
                try:
                    known = self._ask(relative_path(path))
                except ValueError:  # nothing inside the folder has such a path
                    continue
            if known is not None:
                found[path] = known
        return found

    def create(self, path: str, data: bytes) -> None:
        """Write a file that must not exist yet: in one step where the store can, as S3 does with If-None-Match."""
        if self._ask(path) is not None:
            raise FileExistsError(path)
        if not self._renames:
            try:
                self._fs.pipe_file(self._at(path), data, mode="create")
                self._listed.pop(path, None)
                return
            except FileExistsError:
                raise
            except Exception:  # noqa: S110 - a store without this; whatever else is wrong, `replace` reports
                pass
        self.replace(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, in place of what was there; a store shows an object whole or not at all."""
        with telling(f"{self.root}/{path}"):
            if self._renames:
                folder, _, name = self._at(path).rpartition("/")
                new = f"{folder}/.{name}.{os.getpid()}.tmp"
                self._fs.makedirs(folder, exist_ok=True)
                self._fs.pipe_file(new, data)
                if self._ask(path) is not None:
                    self._fs.rm_file(self._at(path))
                self._fs.mv(new, self._at(path))
            else:
                self._fs.pipe_file(self._at(path), data)
            self._listed.pop(path, None)

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from pieces: in one go, so that it is seen whole or not at all."""
        self.replace(path, b"".join(chunks))

    def move(self, source: str, target: str) -> None:
        """Move a file, if that is not done yet: by a rename, or by a copy that is checked before the source goes."""
        before = self._ask(source)
        with telling(f"{self.root}/{source}"):
            if before is None:
                if self._ask(target) is None:
                    raise CheckpointError(f"{source} has vanished: something else changes this checkpoint.")
                return
            if self._renames:
                if self._ask(target) is not None:
                    raise CheckpointError(f"{source} cannot be moved to {target}: both are there.")
                self._fs.makedirs(os.path.dirname(self._at(target)), exist_ok=True)
                self._fs.mv(self._at(source), self._at(target))
            else:
                self._fs.cp_file(self._at(source), self._at(target))
                copied = self._ask(target)
                if copied is None or copied.size != before.size:
                    raise CheckpointError(f"The copy of {source} at {target} is not whole; the original stays.")
                self._fs.rm_file(self._at(source))
            self._listed.pop(source, None)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with telling(f"{self.root}/{path}"):
            if self._ask(path) is not None:
                self._fs.rm_file(self._at(path))
            self._listed.pop(path, None)

    def prune(self, folder: str) -> None:
        """Delete empty folders where the filesystem has such; object stores have none."""
        if self._renames:
            with telling(f"{self.root}/{folder}"):
                if self._fs.exists(self._at(folder)) and not self._fs.find(self._at(folder)):
                    self._fs.rm(self._at(folder), recursive=True)

    def sync(self, everything: bool = False) -> None:
        """Nothing to wait for: a store's answer means that it is safe."""

    def _find(self, folder: str, depth: int | None = None) -> list[str]:
        with telling(self.root):
            try:
                found = self._fs.find(self._at(folder), detail=True, maxdepth=depth)
            except FileNotFoundError:  # of a bucket that is not there
                found = {}
        self._listed.update({self._relative(path): _facts(info) for path, info in found.items()})
        return [self._relative(path) for path in found]

    def _ask(self, path: str) -> Facts | None:
        with telling(f"{self.root}/{path}"):
            try:
                return _facts(self._fs.info(self._at(path)))
            except FileNotFoundError:
                return None

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of files in one folder that `replace` left when its process was killed."""
        if not self._renames:
            return []
        return [f"{folder}/{name}" for name in self.names(folder) if _TEMPORARY.fullmatch(name)]

    def _at(self, path: str) -> str:
        """Return where a file or folder is; raise CheckpointError for a path that leads out of the folder."""
        if not path:
            return self._path
        try:
            return f"{self._path}/{relative_path(path)}"
        except ValueError as error:
            raise CheckpointError(f"{self.root}: {error}. Nothing was done with it.") from None

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._path).lstrip("/")


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec

    scheme = scheme_of(url)
    if not url.lower().startswith(f"{scheme}://"):
        raise CheckpointError(f"{url} cannot be opened: it has one slash. Write it as {scheme}://… with two slashes.")
    try:
        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise CheckpointError(
            f"{scheme}:// needs a package that is not installed: {error}. "
            "Install it beside respool, and run this again."
        ) from error
    except Exception as error:  # some filesystems connect now, and have errors of their own
        raise CheckpointError(
            f"{url} cannot be opened: {short(error).splitlines()[0]}. Check the address and what {scheme}:// "
            "needs on this machine. Name a folder, or a URL of another filesystem, such as s3://."
        ) from error
    return fs, path.rstrip("/")


def _facts(info: dict[str, Any]) -> Facts:
    modified: Any = next(
        (info[name] for name in ("LastModified", "mtime", "updated", "last_modified", "created") if name in info), None
    )
    if hasattr(modified, "timestamp"):
        modified = modified.timestamp()
    return Facts(int(info.get("size") or 0), float(modified) if isinstance(modified, int | float) else None)
