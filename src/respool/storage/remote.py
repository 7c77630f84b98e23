"""A folder on a filesystem that fsspec supports.

A file is created with a conditional write (`If-None-Match` on S3) where the store supports it: of several processes
that create the same file at the same time, exactly one succeeds. A store that is compatible with S3 may ignore or
reject the condition, so respool tests it: see `RemoteWriter.exclusive`. Without it, a file is written if it does not
exist, and the process whose content it has a second later has created it. That is not exclusive: a slower process may
overwrite it.

Hadoop marks a folder of an object store by an empty object, the folder's name with a slash (`commits/`). A marker is no
file: it is neither listed nor copied. A folder whose files have gone loses its markers in `prune`.
"""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple
from uuid import uuid4

from respool.errors import CheckpointError, CheckpointNotFoundError, RespoolError, StoreError
from respool.locations import OWN, canonical_location, scheme_of, store_of
from respool.storage import s3
from respool.storage.folder import (
    FileInfo,
    FolderListing,
    FolderReader,
    require_readable_size,
    short_message,
    translate_errors,
)
from respool.storage.object_store import error_code, fsspec_options, store_error
from respool.untrusted import relative_path

_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
_RENAMING = frozenset({"hdfs", "viewfs", "webhdfs", "sftp", "dbfs"})  # where a rename is cheap and atomic
_CONDITIONAL = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
)  # whose libraries support conditional writes
_EXISTS = frozenset({"PreconditionFailed", "412"})  # S3's codes for a condition that is not met
_CONFLICT = frozenset(
    {"ConditionalRequestConflict", "OperationAborted", "409"}
)  # S3's codes for a condition that could not be checked
_REJECTED = frozenset({"NotImplemented", "501", "InvalidArgument", "InvalidRequest", "UnsupportedOperation", "400"})
_PAUSES = (0.1, 0.3, 1.0)  # seconds before a conditional write is repeated after a conflict
_SETTLE = 1.0  # seconds until a process reads whose content a file has, without conditional writes
_PATIENCE = 15.0  # seconds for the first request to a store
_AT_ONCE = 16  # requests: object stores have high latency and serve many requests in parallel
_PROBE = re.compile(r"probe-[0-9a-f-]{36}")

_memory = threading.Lock()  # makes operations on fsspec's memory filesystem atomic


class Versioned(NamedTuple):
    """A file's bytes and its version; None where a write cannot depend on a version."""

    data: bytes
    version: str | None


class _Conditions(NamedTuple):
    """Which conditions of a write a store supports: that the file does not exist; that it has a version."""

    absent: bool
    version: bool


class RemoteReader:
    """Reads a folder on a filesystem that fsspec supports, usually an object store."""

    def __init__(self, url: str) -> None:
        """Open the filesystem of the URL; its own library finds the credentials."""
        self.root = canonical_location(url)
        self._fs, self._path = open_store(self.root)
        protocol = self._fs.protocol
        self._protocols = frozenset((protocol,) if isinstance(protocol, str) else protocol)
        self._renames = bool(_RENAMING & self._protocols)
        self._is_s3 = "s3" in self._protocols
        self._listed: dict[str, FileInfo] = {}

    def walk(self) -> FolderListing:
        """List all files in one pass, with their sizes and modification times."""
        entries = self._entries("")
        paths = self._files(entries)
        if not entries:
            remedy = "Check the URL, and the account's permissions."
            raise CheckpointNotFoundError(self.root, "the folder is missing or empty", remedy)
        folders: dict[str, list[str]] = {"": []}
        for path in paths:
            folder, _, name = path.rpartition("/")
            if folder.split("/", 1)[0] != OWN:
                folders.setdefault(folder, []).append(name)
        return FolderListing(folders, {})

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in one folder; empty when the folder does not exist."""
        return [path.removeprefix(f"{folder}/") for path in self._find(folder, 1) if path.rpartition("/")[0] == folder]

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        info = self._listed.get(path) or self._ask(path)
        if info is None:
            raise FileNotFoundError(path)
        require_readable_size(path, info.size)
        return self._content(path)

    def read_many(self, paths: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return the bytes of each file, or the error that it raised; in parallel where the store supports it."""
        if not paths:
            return {}
        by_path: dict[str, bytes | Exception] = {}
        for path in paths:
            if path in self._listed:
                try:
                    require_readable_size(path, self._listed[path].size)
                except CheckpointError as error:
                    by_path[path] = error
        wanted = [path for path in paths if path not in by_path]
        if wanted:
            places = [self._at(path) for path in wanted]
            with _translate_errors(self.root):
                contents = self._fs.cat_ranges(places, None, None, on_error="return", **self._reading(wanted))
            by_path |= dict(zip(wanted, contents, strict=True))
        return by_path

    def _reading(self, paths: Sequence[str]) -> dict[str, Any]:
        """Return the arguments for reading these files, in parts if one of them is large."""
        listed = (self._listed.get(path) for path in paths)
        is_large = any(info is not None and info.size > s3.LARGE for info in listed)
        return s3.reading_whole(self._fs) if self._is_s3 and not is_large else {}

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes as one chunk: one request is the fastest."""
        yield self._content(path)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its subfolders; empty when the folder does not exist."""
        return self._find(folder)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in one folder; empty when the folder does not exist."""
        with _translate_errors(f"{self.root}/{folder}"):
            if self._is_s3:
                pages = s3.pages(self._fs, self._at(folder), deep=False)
                return [prefix.rstrip("/").rpartition("/")[2] for page in pages for prefix in page.prefixes]
            try:
                entries = self._fs.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return []
        paths = [self._relative(entry["name"]) for entry in entries if entry["type"] == "directory"]
        return [path.rpartition("/")[2] for path in paths if path != folder]

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        """Return size and modification time of each file that exists, from the last listing if it has them."""
        wanted = list(paths)
        unknown = [path for path in wanted if path not in self._listed]
        if len(unknown) > 1:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                asked = dict(zip(unknown, pool.map(self._ask_any, unknown), strict=True))
        else:
            asked = {path: self._ask_any(path) for path in unknown}
        infos = {path: self._listed.get(path) or asked.get(path) for path in wanted}
        return {path: info for path, info in infos.items() if info is not None}

    def _ask_any(self, path: str) -> FileInfo | None:
        try:
            return self._ask(relative_path(path))
        except ValueError:  # nothing inside the folder has such a path
            return None

    def _content(self, path: str) -> bytes:
        with _translate_errors(f"{self.root}/{path}"):
            return bytes(self._fs.cat_file(self._at(path), **self._reading([path])))

    def _find(self, folder: str, depth: int | None = None) -> list[str]:
        return self._files(self._entries(folder, depth))

    def _entries(self, folder: str, depth: int | None = None) -> dict[str, FileInfo]:
        """Return all objects in a folder, by their paths: files, and markers of folders."""
        with _translate_errors(self.root):
            if self._is_s3:
                bucket = self._path.split("/", 1)[0]
                pages = s3.pages(self._fs, self._at(folder), deep=depth is None)
                return {self._relative(f"{bucket}/{key}"): info for page in pages for key, info in page.objects.items()}
            try:
                listed: dict[str, dict[str, Any]] = self._fs.find(self._at(folder), detail=True, maxdepth=depth)
            except FileNotFoundError:
                return {}
        return {self._relative(path): _facts(info) for path, info in listed.items()}

    def _files(self, entries: dict[str, FileInfo]) -> list[str]:
        files = {path: info for path, info in entries.items() if path and not _is_marker(path)}
        self._listed.update(files)
        return list(files)

    def _ask(self, path: str) -> FileInfo | None:
        with _translate_errors(f"{self.root}/{path}"):
            if self._is_s3:
                return s3.info(self._fs, self._at(path))
            try:
                info = self._fs.info(self._at(path))
            except FileNotFoundError:
                return None
        return _facts(info) if info.get("type") not in ("directory", "other") else None  # a FIFO would block

    def _is_file(self, path: str) -> bool:
        return self._ask(path) is not None

    def temporary(self, folder: str) -> list[str]:
        """Return the paths of temporary files and probes in one folder that killed processes left."""
        pattern = _TEMPORARY if self._renames else _PROBE
        if not self._renames and folder != OWN:
            return []
        return [f"{folder}/{name}" for name in self.names(folder) if pattern.fullmatch(name)]

    def _at(self, path: str) -> str:
        """Return the full path of a file or folder; raise CheckpointError for a path that leads out of the folder."""
        if not path:
            return self._path
        try:
            return f"{self._path}/{relative_path(path)}"
        except ValueError as error:
            raise CheckpointError(f"{self.root}: {error}. Nothing was done with it.") from None

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._path).lstrip("/")


class RemoteWriter(RemoteReader):
    """Reads and changes a folder on a filesystem that fsspec supports."""

    at_once = _AT_ONCE

    def __init__(self, url: str) -> None:
        """Open the filesystem of the URL; nothing is written yet."""
        super().__init__(url)
        self._in_memory = "memory" in self._protocols
        self._conditional = bool(_CONDITIONAL & self._protocols)

    def exclusive(self) -> bool:
        """Return whether exactly one of several processes that create the same file at the same time succeeds.

        Where the library supports conditional writes, the store is tested once for each bucket: a small file is created
        twice and deleted. Raise CheckpointError when that is not possible.
        """
        return self._in_memory or self._conditions().absent

    def create(self, path: str, data: bytes) -> None:
        """Create a file; raise FileExistsError when it exists.

        The content must be unique to this process: it identifies a write that was repeated because its response was
        lost.
        """
        if self._is_file(path):
            raise FileExistsError(path)
        if self.exclusive():
            if not self._write_if(path, data, mode="create") and not self._holds(path, data):
                raise FileExistsError(path)
            return
        self.replace(path, data)
        time.sleep(_SETTLE)
        if not self._holds(path, data):
            raise FileExistsError(path)

    def versioned(self, path: str) -> Versioned:
        """Return a file's bytes with its version, for `replace_version`."""
        version = None
        if self._in_memory:
            version = ""  # the bytes are compared
        elif self._is_s3 and self._conditions().version:
            with _translate_errors(f"{self.root}/{path}"):
                version = str(self._fs.info(self._at(path))["ETag"])
        return Versioned(self.read(path), version)  # read last: a change in between makes the write fail

    def replace_version(self, path: str, before: Versioned, data: bytes) -> bool:
        """Replace a version of a file; return False, and write nothing, when the file has changed since.

        This is atomic where the file has a version (`If-Match` on S3). Elsewhere another process can write between the
        read and the write. The content must be unique to this process, as for `create`.
        """
        if before.version is None:
            if not self._holds(path, before.data):
                return False
            self.replace(path, data)
            return True
        if self._in_memory:
            with _memory:
                if not self._holds(path, before.data):
                    return False
                self.replace(path, data)
                return True
        try:
            return self._write_if(path, data, IfMatch=before.version) or self._holds(path, data)
        except FileNotFoundError:
            return False

    def replace(self, path: str, data: bytes) -> None:
        """Write a file atomically: a store shows an object whole or not at all."""
        with _translate_errors(f"{self.root}/{path}"):
            if self._renames:
                folder, _, name = self._at(path).rpartition("/")
                new = f"{folder}/.{name}.{os.getpid()}.tmp"
                self._fs.makedirs(folder, exist_ok=True)
                self._fs.pipe_file(new, data)
                if self._is_file(path):
                    self._fs.rm_file(self._at(path))
                self._fs.mv(new, self._at(path))
            else:
                self._fs.pipe_file(self._at(path), data)
            self._listed.pop(path, None)

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file from chunks, in one request: a store shows an object whole or not at all."""
        self.replace(path, b"".join(chunks))

    def move(self, source: str, target: str) -> None:
        """Move a file unless it is moved already: by a rename, or by a copy that is checked before the deletion."""
        before = self._ask(source)
        with _translate_errors(f"{self.root}/{source}"):
            if before is None:
                if not self._is_file(target):
                    raise CheckpointError(f"{source} has vanished: another process changes this checkpoint.")
                return
            if self._renames:
                if self._is_file(target):
                    raise CheckpointError(f"{source} cannot be moved to {target}: both exist.")
                self._fs.makedirs(os.path.dirname(self._at(target)), exist_ok=True)
                self._fs.mv(self._at(source), self._at(target))
            else:
                self._copy(self._at(source), target, before)
                self._delete(source)
            self._listed.pop(source, None)

    def copy_inside(self, source: FolderReader, path: str, target: str) -> bool:
        """Copy a file of another folder of the same store, in the version that was listed."""
        if not (self._is_s3 and isinstance(source, RemoteReader) and source._fs is self._fs):
            return False
        before = source._listed.get(path) or source._ask(path)
        if before is None:
            return False
        with _translate_errors(f"{self.root}/{target}"):
            try:
                self._copy(source._at(path), target, before)
            except Exception as error:
                if _code(error) in _EXISTS:  # it has changed
                    return False
                raise
        return True

    def _copy(self, source: str, target: str, before: FileInfo) -> None:
        """Copy a file inside the store, and check the copy."""
        self._listed.pop(target, None)
        if self._is_s3:
            version = s3.copy(self._fs, source, self._at(target), before)
            if version is not None and version == before.version:
                return  # the store has computed it from the copy
        else:
            self._fs.cp_file(source, self._at(target))
        copied = self._ask(target)
        if copied is None or copied.size != before.size:
            raise CheckpointError(f"The copy of {source} at {target} is incomplete; the original is kept.")

    def _delete(self, path: str) -> None:
        if self._is_s3:
            s3.delete(self._fs, self._at(path))  # `rm_file` sends the same, and no file is an error
        elif self._ask(path) is not None:
            self._fs.rm_file(self._at(path))

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with _translate_errors(f"{self.root}/{path}"):
            self._delete(path)
            self._listed.pop(path, None)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files that exist, some at a time."""
        with ThreadPoolExecutor(self.at_once) as pool:
            for _ in pool.map(self.delete, paths):
                pass

    def prune(self, folder: str) -> None:
        """Delete empty folders where the filesystem has folders, and on S3 the markers of folders without files."""
        if self._is_s3:
            entries = self._entries(folder)
            files = self._files(entries)
            used = {file[: at + 1] for file in files for at, sign in enumerate(file) if sign == "/"}
            markers = [path for path in entries.keys() - used if path.endswith("/")]
            with ThreadPoolExecutor(self.at_once) as pool:
                for _ in pool.map(self._delete_marker, markers):
                    pass
        if self._renames:
            with _translate_errors(f"{self.root}/{folder}"):
                if self._fs.exists(self._at(folder)) and not self._fs.find(self._at(folder)):
                    self._fs.rm(self._at(folder), recursive=True)

    def _delete_marker(self, path: str) -> None:
        with _translate_errors(f"{self.root}/{path}"):
            s3.delete(self._fs, f"{self._path}/{path}")

    def sync(self, everything: bool = False) -> None:
        """Return immediately: a store confirms a write when it is durable."""

    def _conditions(self) -> _Conditions:
        if not self._conditional:
            return _Conditions(absent=False, version=False)
        # Cached on fsspec's filesystem object, which all folders of a store share: another server has another object.
        known: dict[str, _Conditions] = vars(self._fs).setdefault("_respool_conditions", {})
        bucket = self._path.split("/", 1)[0]
        if bucket not in known:
            known[bucket] = self._try_conditions()
        return known[bucket]

    def _try_conditions(self) -> _Conditions:
        probe = f"{OWN}/probe-{uuid4()}"
        try:
            self._write_if(probe, b"?", mode="create")
            # Twice, as another process may delete the probe in between.
            absent = any(not self._write_if(probe, b"?", mode="create") for _ in range(2))
            return _Conditions(absent, version=absent and self._is_s3 and self._checks_versions(probe))
        except _Rejected:
            return _Conditions(absent=False, version=False)
        except FileNotFoundError as error:  # the bucket
            raise CheckpointError(f"{self.root} cannot be written: {short_message(error)}. Check the URL.") from error
        finally:
            with suppress(CheckpointError):
                self.delete(probe)

    def _checks_versions(self, probe: str) -> bool:
        try:
            return not self._write_if(probe, b"?", IfMatch='"another"')
        except (_Rejected, FileNotFoundError):  # the latter when another process has deleted the probe
            return False

    def _write_if(self, path: str, data: bytes, **condition: str) -> bool:
        """Write a file atomically if a condition is met; return whether it was.

        Libraries repeat a write whose response was lost: then the condition is not met although the file was written.
        """
        with _translate_errors(f"{self.root}/{path}"):
            for pause in (*_PAUSES, None):
                try:
                    with _memory if self._in_memory else nullcontext():
                        self._fs.pipe_file(self._at(path), data, **condition)
                except FileExistsError:
                    return False
                except Exception as error:
                    code = _code(error)
                    if code in _EXISTS:
                        return False
                    if code in _REJECTED:
                        raise _Rejected(
                            f"{self.root} does not support conditional writes: {short_message(error)}"
                        ) from error
                    if code not in _CONFLICT or pause is None:
                        raise
                    time.sleep(pause)
                else:
                    self._listed.pop(path, None)
                    return True
        raise AssertionError("the last attempt returns or raises")

    def _holds(self, path: str, data: bytes) -> bool:
        try:
            return self.read(path) == data
        except FileNotFoundError:
            return False


class _Rejected(CheckpointError):
    """A store does not support the condition of a write."""


def _code(error: BaseException) -> str:
    """Return the code of a store's answer; `NotImplemented` for a library without conditional writes."""
    return "NotImplemented" if isinstance(error, TypeError | NotImplementedError) else error_code(error)


def _is_marker(path: str) -> bool:
    return path.endswith(("/", "_$folder$"))  # of s3a, and of EMR and older versions of Hadoop


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Turn exceptions of a filesystem into a CheckpointError; a missing file stays a FileNotFoundError."""
    with translate_errors(what):
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            known = store_error(what, error)
            if known is None:
                raise
            raise known from error


def open_store(url: str) -> tuple[Any, str]:
    """Return fsspec's filesystem of a URL, with the configured credentials, and the path in it."""
    import fsspec

    scheme = scheme_of(url)
    if not url.lower().startswith(f"{scheme}://"):
        raise CheckpointError(f"{url} cannot be opened: it has one slash. Write it as {scheme}://… with two slashes.")
    try:
        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **fsspec_options(url))
    except RespoolError:
        raise
    except ImportError as error:
        raise CheckpointError(
            f"{scheme}:// needs a package that is not installed: {error}. "
            "Install it in respool's environment, and run this again."
        ) from error
    except Exception as error:  # some filesystems connect now, and have their own errors
        raise CheckpointError(
            f"{url} cannot be opened: {short_message(error).splitlines()[0]}. Check the address and what {scheme}:// "
            "needs on this machine. Name a folder, or a URL of another filesystem, such as s3://."
        ) from error
    path = path.rstrip("/")
    if store_of(url) == "s3":
        fs.retries = 2  # of a request that botocore has repeated
        _require_bucket(fs, url, path)
    return fs, path


def _require_bucket(fs: Any, url: str, path: str) -> None:
    """Raise StoreError when a bucket cannot be used; it is asked once in a process, so that no command half succeeds.

    An account that may not list this folder may still read others.
    """
    reached: set[str] = vars(fs).setdefault("_respool_reached", set())
    bucket, _, folder = path.partition("/")
    if bucket in reached:
        return
    try:
        with _translate_errors(url):
            fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{folder}/", MaxKeys=1, timeout=_PATIENCE)
    except StoreError as error:
        if not error.is_permission:
            raise
    reached.add(bucket)


def _facts(info: dict[str, Any]) -> FileInfo:
    modified: Any = next(
        (info[name] for name in ("LastModified", "mtime", "updated", "last_modified", "created") if name in info), None
    )
    if hasattr(modified, "timestamp"):
        modified = modified.timestamp()
    return FileInfo(int(info.get("size") or 0), float(modified) if isinstance(modified, int | float) else None)
