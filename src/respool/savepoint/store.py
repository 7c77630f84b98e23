"""The folder of savepoints, on any filesystem that fsspec supports.

    <store>/<name>/manifest.json     describes the savepoint; without it, the savepoint does not exist
    <store>/<name>/<data>/<path>     the files of the checkpoint

The manifest is written last and deleted first. An interrupted command leaves files that are ignored; the next savepoint
of that name, or `delete`, removes them.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from uuid import uuid4

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, DamagedFileError
from respool.locations import OWN, absolute
from respool.savepoint.manifest import SavepointManifest, parse, text_of
from respool.storage.folder import FolderReader, FolderWriter, read_error
from respool.storage.open import new_writer, open_inside
from respool.text import did_you_mean
from respool.untrusted import Malformed, file_name, relative_path

MANIFEST = "manifest.json"
_LONGEST = 100  # characters of a name
_DATA = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}")  # what `new_folder` returns


@dataclass(frozen=True)
class StoredSavepoint:
    """A savepoint in a store.

    Attributes:
        location: Its folder or URL.
        manifest: Its manifest.
        reference: The name, folder or URL by which a user named it; empty for its location.
    """

    location: str
    manifest: SavepointManifest
    reference: str = field(default="", compare=False)

    @property
    def data(self) -> str:
        """The folder or URL of its files: a checkpoint with only what a start at its next batch needs."""
        return f"{self.location}/{self.manifest.data}"

    def files(self) -> FolderReader:
        """Return a reader of its files."""
        return open_inside(self.location, self.manifest.data)

    def checkpoint(self) -> CheckpointSnapshot:
        """Return its files as a checkpoint."""
        return CheckpointSnapshot(self.files(), is_copy=True)


class SavepointStore:
    """The savepoints in one folder or URL."""

    def __init__(self, location: str) -> None:
        """Name the folder or URL; it need not exist yet."""
        self.location = absolute(location)

    def writer(self) -> FolderWriter:
        """Return a writer of the whole store."""
        return new_writer(self.location)

    def names(self) -> list[str]:
        """Return the names of all savepoints."""
        return [savepoint.manifest.name for savepoint in self.all()]

    def all(self) -> list[StoredSavepoint]:
        """Return all savepoints, the oldest first; those with a damaged manifest are left out."""
        return self.read_all()[0]

    def read_all(self) -> tuple[list[StoredSavepoint], list[str]]:
        """Return all savepoints, the oldest first, and what is wrong with those whose manifest cannot be read."""
        savepoints, damaged = self._read()
        return sorted(savepoints, key=lambda savepoint: (savepoint.manifest.created, savepoint.manifest.name)), damaged

    def get(self, name: str) -> StoredSavepoint:
        """Return a savepoint by name; raise CheckpointError when it does not exist."""
        check_name(name)
        try:
            return _parsed(f"{self.location}/{name}", self.writer().read(f"{name}/{MANIFEST}"))
        except FileNotFoundError:
            names = self.names()
            existing = f"Existing savepoints: {', '.join(names)}." if names else "The store is empty."
            raise CheckpointError(
                f"There is no savepoint {name} in {self.location}. {existing}{did_you_mean(name, names)}"
            ) from None

    def has(self, name: str) -> bool:
        """Return whether a name is taken."""
        return bool(self.writer().facts([f"{name}/{MANIFEST}"]))

    def require_free(self, name: str) -> None:
        """Raise CheckpointError when a name cannot be used: it is taken, or its folder holds other files."""
        check_name(name)
        files = self.writer()
        if self.has(name):
            raise name_taken(name)
        self._require_own(name, files)

    def add(self, manifest: SavepointManifest) -> StoredSavepoint:
        """Write the manifest of a savepoint whose files are complete; raise CheckpointError when the name is taken."""
        files = self.writer()
        try:
            files.create(f"{manifest.name}/{MANIFEST}", text_of(manifest))
        except FileExistsError:
            raise name_taken(manifest.name) from None
        files.sync()
        self._clear(manifest.name, but=manifest.data)
        return StoredSavepoint(f"{self.location}/{manifest.name}", manifest)

    def delete(self, name: str) -> None:
        """Delete a savepoint, or the files of an unfinished savepoint; raise CheckpointError for anything else."""
        check_name(name)
        files = self.writer()
        self._require_own(name, files)
        files.delete(f"{name}/{MANIFEST}")
        files.sync()
        self._clear(name)

    def discard(self, name: str, data: str) -> None:
        """Delete the files of an unfinished savepoint; a savepoint with a manifest is left unchanged."""
        if self.has(name) and self.get(name).manifest.data == data:
            return
        files = self.writer()
        _empty(files, f"{name}/{data}")
        files.prune(name)

    def leftovers(self, name: str) -> bool:
        """Return whether there are files of an unfinished savepoint."""
        return not self.has(name) and bool(self.writer().below(name))

    def _clear(self, name: str, but: str | None = None) -> None:
        files = self.writer()
        for folder in files.folders(name):
            if folder != but and _DATA.fullmatch(folder):
                _empty(files, f"{name}/{folder}")
        files.delete_many(files.temporary(name))
        if but is None:
            files.prune(name)
        files.sync()

    def _require_own(self, name: str, files: FolderWriter) -> None:
        """Raise CheckpointError when a folder contains anything that a savepoint does not."""
        folders, names = files.folders(name), files.names(name)
        own = {MANIFEST, *(path.rpartition("/")[2] for path in files.temporary(name))}
        foreign = [folder for folder in folders if not _DATA.fullmatch(folder)]
        foreign += [file for file in names if file not in own]
        if foreign:
            raise CheckpointError(
                f"{self.location}/{name} is not a savepoint: it contains {sorted(foreign)[0]!a}, which no savepoint "
                "contains. Move it out of the store, or choose another name. Nothing was changed."
            )

    def _read(self) -> tuple[list[StoredSavepoint], list[str]]:
        files = self.writer()
        paths = {f"{name}/{MANIFEST}": name for name in (*files.folders(""), *files.names("")) if is_name(name)}
        savepoints, damaged = [], []
        for path, data in files.read_many(sorted(paths)).items():
            if isinstance(data, FileNotFoundError):
                continue  # being created, or unfinished
            location = f"{self.location}/{path}"
            try:
                if isinstance(data, Exception):
                    raise read_error(location, data)
                savepoints.append(_parsed(f"{self.location}/{paths[path]}", data))
            except CheckpointError as error:
                damaged.append(str(error))
        return savepoints, damaged

    def name_to_keep(self, checkpoint: CheckpointSnapshot | None, keep_as: str | None) -> str | None:
        """Return the name of the savepoint that a promotion makes; None when nothing needs to be kept."""
        name = keep_as or f"before-promote-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
        check_name(name)
        if self.has(name):
            manifest = self.get(name).manifest
            newest = checkpoint.commits[-1] if checkpoint is not None and checkpoint.commits else None
            if checkpoint is None or (manifest.query_id, manifest.batch) != (checkpoint.query_id, newest):
                raise name_taken(name)
            return None  # kept by a promotion that was interrupted before it began
        return name if checkpoint is not None and checkpoint.commits else None


def find(name: str, store: SavepointStore) -> StoredSavepoint:
    """Return a savepoint by name, or by its folder or URL; raise CheckpointError when there is no such savepoint."""
    if "/" not in name:
        return store.get(name)
    location = absolute(name)
    try:
        return read(location)
    except FileNotFoundError:
        raise CheckpointError(
            f"There is no savepoint at {location}: it has no {MANIFEST}. Name a savepoint listed by "
            "`respool savepoint list`, or the folder or URL of a savepoint."
        ) from None


def read(location: str) -> StoredSavepoint:
    """Return the savepoint at a folder or URL; raise FileNotFoundError when there is none."""
    return _parsed(location, new_writer(location).read(MANIFEST))


def _parsed(location: str, data: bytes) -> StoredSavepoint:
    """Return the savepoint with a manifest; raise FileError when it cannot be used."""
    path = f"{location}/{MANIFEST}"
    try:
        manifest = parse(path, data)
        file_name(manifest.data)
        for file in manifest.files:
            if relative_path(file.path).split("/")[0] == OWN:
                raise Malformed(f"{file.path!a} cannot be a file of a savepoint")
    except Malformed as error:
        raise DamagedFileError(path, str(error), "The savepoint cannot be used. Create another savepoint.") from error
    return StoredSavepoint(location, manifest)


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a savepoint."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None and len(name) <= _LONGEST


def check_name(name: str) -> None:
    """Raise CheckpointError when a text cannot be the name of a savepoint."""
    if not is_name(name):
        raise CheckpointError(
            f"Invalid savepoint name {name!r}. Use letters, digits, '.', '-' and '_', at most {_LONGEST} characters, "
            "starting with a letter or a digit. Nothing was changed."
        )


def new_folder() -> str:
    """Return a unique name for the folder of a savepoint's files."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:12]}"


def name_taken(name: str) -> CheckpointError:
    """Return the error for a name that is taken."""
    return CheckpointError(
        f"The savepoint {name} already exists. Choose another name, or delete it with: respool savepoint delete "
        f"{name}. Nothing was changed."
    )


def _empty(files: FolderWriter, folder: str) -> None:
    files.delete_many(files.below(folder))
    files.prune(folder)
