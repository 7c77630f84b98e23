"""Where savepoints are kept: a folder, or a URL of any filesystem that fsspec knows.

    <store>/<name>/manifest.json     what the savepoint is of; without it, it is not there
    <store>/<name>/<data>/<path>     the files of the checkpoint

The manifest is written last and deleted first. Whatever was cut off leaves files that count for nothing, and that go
with the next savepoint of that name, or with `delete`.
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
_LONGEST = 100  # letters of a name
_DATA = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}")  # what `new_folder` returns


@dataclass(frozen=True)
class Savepoint:
    """A savepoint that is there.

    Attributes:
        location: Its folder or URL.
        manifest: What it is of.
        reference: The name, folder or URL by which a user named it; empty for its location.
    """

    location: str
    manifest: SavepointManifest
    reference: str = field(default="", compare=False)

    @property
    def data(self) -> str:
        """The folder or URL of its files: a checkpoint with nothing but what a start at its next batch needs."""
        return f"{self.location}/{self.manifest.data}"

    def files(self) -> FolderReader:
        """Return a reader of its files."""
        return open_inside(self.location, self.manifest.data)

    def checkpoint(self) -> CheckpointSnapshot:
        """Return its files as a checkpoint."""
        return CheckpointSnapshot(self.files(), is_copy=True)


class SavepointStore:
    """The savepoints in one place."""

    def __init__(self, location: str) -> None:
        """Take the folder or URL; it need not be there yet."""
        self.location = absolute(location)

    def writer(self) -> FolderWriter:
        """Return a writer of the whole store."""
        return new_writer(self.location)

    def names(self) -> list[str]:
        """Return the names of all savepoints that are there."""
        return [one.manifest.name for one in self.all()]

    def all(self) -> list[Savepoint]:
        """Return all savepoints, the oldest first; those with a damaged manifest are left out."""
        return self.look()[0]

    def look(self) -> tuple[list[Savepoint], list[str]]:
        """Return all savepoints, the oldest first, and what is wrong with those whose manifest cannot be read."""
        found, damaged = self._read()
        return sorted(found, key=lambda one: (one.manifest.created, one.manifest.name)), damaged

    def get(self, name: str) -> Savepoint:
        """Return a savepoint; raise CheckpointError when it is not there."""
        check_name(name)
        try:
            return _parsed(f"{self.location}/{name}", self.writer().read(f"{name}/{MANIFEST}"))
        except FileNotFoundError:
            names = self.names()
            known = f"Savepoints there: {', '.join(names)}." if names else "There is none."
            raise CheckpointError(
                f"There is no savepoint {name} in {self.location}. {known}{did_you_mean(name, names)}"
            ) from None

    def has(self, name: str) -> bool:
        """Return whether a name is taken."""
        return bool(self.writer().facts([f"{name}/{MANIFEST}"]))

    def require_free(self, name: str) -> None:
        """Raise CheckpointError when a savepoint cannot get this name: it is taken, or its folder is something else."""
        check_name(name)
        files = self.writer()
        if self.has(name):
            raise taken(name)
        self._require_own(name, files)

    def add(self, manifest: SavepointManifest) -> Savepoint:
        """Make a savepoint count, whose files are there; raise CheckpointError when the name was taken meanwhile."""
        files = self.writer()
        try:
            files.create(f"{manifest.name}/{MANIFEST}", text_of(manifest))
        except FileExistsError:
            raise taken(manifest.name) from None
        files.sync()
        self._clear(manifest.name, but=manifest.data)
        return Savepoint(f"{self.location}/{manifest.name}", manifest)

    def delete(self, name: str) -> None:
        """Delete a savepoint, or what is left of one that was cut off; raise CheckpointError for anything else."""
        check_name(name)
        files = self.writer()
        self._require_own(name, files)
        files.delete(f"{name}/{MANIFEST}")
        files.sync()
        self._clear(name)

    def discard(self, name: str, data: str) -> None:
        """Delete the files of a savepoint that was not finished; one that counts is left as it is."""
        if self.has(name) and self.get(name).manifest.data == data:
            return
        files = self.writer()
        _empty(files, f"{name}/{data}")
        files.prune(name)

    def leftovers(self, name: str) -> bool:
        """Return whether there are files of a savepoint that was cut off."""
        return not self.has(name) and bool(self.writer().below(name))

    def _clear(self, name: str, but: str | None = None) -> None:
        files = self.writer()
        for folder in files.folders(name):
            if folder != but and _DATA.fullmatch(folder):
                _empty(files, f"{name}/{folder}")
        for path in files.temporary(name):
            files.delete(path)
        if but is None:
            files.prune(name)
        files.sync()

    def _require_own(self, name: str, files: FolderWriter) -> None:
        """Raise CheckpointError when a folder has anything but what a savepoint has."""
        folders, names = files.folders(name), files.names(name)
        known = {MANIFEST, *(path.rpartition("/")[2] for path in files.temporary(name))}
        strange = [one for one in folders if not _DATA.fullmatch(one)] + [one for one in names if one not in known]
        if strange:
            raise CheckpointError(
                f"{self.location}/{name} is not a savepoint: it holds {sorted(strange)[0]!a}, which no savepoint "
                "has. Move it out of the store, or choose another name. Nothing was changed."
            )

    def _read(self) -> tuple[list[Savepoint], list[str]]:
        files = self.writer()
        paths = {f"{name}/{MANIFEST}": name for name in (*files.folders(""), *files.names("")) if is_name(name)}
        found, damaged = [], []
        for path, data in files.read_many(sorted(paths)).items():
            if isinstance(data, FileNotFoundError):
                continue  # being made, or cut off while it was
            where = f"{self.location}/{path}"
            try:
                if isinstance(data, Exception):
                    raise read_error(where, data)
                found.append(_parsed(f"{self.location}/{paths[path]}", data))
            except CheckpointError as error:
                damaged.append(str(error))
        return found, damaged


def find(name: str, store: SavepointStore) -> Savepoint:
    """Return a savepoint by its name in a store, or by its own folder or URL; raise CheckpointError when it is not."""
    if "/" not in name:
        return store.get(name)
    location = absolute(name)
    try:
        return read(location)
    except FileNotFoundError:
        raise CheckpointError(
            f"There is no savepoint at {location}: it has no {MANIFEST}. Name one of: respool savepoint list; "
            "or the folder or URL of a savepoint."
        ) from None


def read(location: str) -> Savepoint:
    """Return the savepoint at a folder or URL; raise FileNotFoundError when there is none."""
    return _parsed(location, new_writer(location).read(MANIFEST))


def _parsed(location: str, data: bytes) -> Savepoint:
    """Return the savepoint with a manifest; raise FileError when it cannot be used."""
    where = f"{location}/{MANIFEST}"
    try:
        manifest = parse(where, data)
        file_name(manifest.data)
        for file in manifest.files:
            if relative_path(file.path).split("/")[0] == OWN:
                raise Malformed(f"{file.path!a} is not a file that a savepoint has")
    except Malformed as error:
        raise DamagedFileError(where, str(error), "The savepoint cannot be used. Create another.") from error
    return Savepoint(location, manifest)


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a savepoint."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None and len(name) <= _LONGEST


def check_name(name: str) -> None:
    """Raise CheckpointError for what cannot be the name of a savepoint."""
    if not is_name(name):
        raise CheckpointError(
            f"{name!r} is no name for a savepoint. Use letters, digits, dots, dashes and underscores, "
            f"at most {_LONGEST}, a letter or a digit first. Nothing was changed."
        )


def new_folder() -> str:
    """Return a name for the folder of a savepoint's files that no other one has."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:12]}"


def taken(name: str) -> CheckpointError:
    """Return the error for a name that is taken."""
    return CheckpointError(
        f"There is a savepoint {name} already. Take another name, or delete it with: respool savepoint delete {name}. "
        "Nothing was changed."
    )


def _empty(files: FolderWriter, folder: str) -> None:
    for path in files.below(folder):
        files.delete(path)
    files.prune(folder)
