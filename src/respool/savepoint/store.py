"""Where savepoints are kept: a folder, or a URL of any filesystem that fsspec knows.

    <store>/<name>/manifest.json     what the savepoint is of; without it, it is not there
    <store>/<name>/<data>/<path>     the files of the checkpoint

The manifest is written last and deleted first. Whatever was cut off leaves files that count for nothing, and that go
with the next savepoint of that name, or with `delete`.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from uuid import uuid4

from respool.checkpoint.files import Reader, Writer, absolute, new_writer, open_reader
from respool.checkpoint.read import Checkpoint
from respool.diff.model import Since
from respool.errors import CheckpointError, did_you_mean
from respool.savepoint.manifest import Manifest, parse, text_of

MANIFEST = "manifest.json"
_LONGEST = 100  # letters of a name


@dataclass(frozen=True)
class Savepoint:
    """A savepoint that is there.

    Attributes:
        location: Its folder or URL.
        manifest: What it is of.
    """

    location: str
    manifest: Manifest

    @property
    def data(self) -> str:
        """The folder or URL of its files: a checkpoint with nothing but what a start at its next batch needs."""
        return f"{self.location}/{self.manifest.data}"

    def files(self) -> Reader:
        """Return a reader of its files."""
        return open_reader(self.data)

    def checkpoint(self) -> Checkpoint:
        """Return its files as a checkpoint."""
        return Checkpoint(self.files(), is_copy=True)


class Store:
    """The savepoints in one place."""

    def __init__(self, location: str) -> None:
        """Take the folder or URL; it need not be there yet."""
        self.location = absolute(location)

    def writer(self) -> Writer:
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
            return read(f"{self.location}/{name}")
        except FileNotFoundError:
            names = self.names()
            known = f"Savepoints there: {', '.join(names)}." if names else "There is none."
            raise CheckpointError(
                f"There is no savepoint {name} in {self.location}. {known}{did_you_mean(name, names)}"
            ) from None

    def has(self, name: str) -> bool:
        """Return whether a name is taken."""
        return bool(self.writer().facts([f"{name}/{MANIFEST}"]))

    def add(self, manifest: Manifest) -> Savepoint:
        """Make a savepoint count, whose files are there; raise CheckpointError when the name was taken meanwhile."""
        files = self.writer()
        files.sync()
        try:
            files.create(f"{manifest.name}/{MANIFEST}", text_of(manifest))
        except FileExistsError:
            raise taken(manifest.name) from None
        files.sync()
        self._clear(manifest.name, but=manifest.data)
        return Savepoint(f"{self.location}/{manifest.name}", manifest)

    def delete(self, name: str) -> None:
        """Delete a savepoint, or what is left of one that was cut off."""
        check_name(name)
        files = self.writer()
        files.delete(f"{name}/{MANIFEST}")
        files.sync()
        self._clear(name)

    def discard(self, name: str, data: str) -> None:
        """Delete the files of a savepoint that was not finished; one that counts is left as it is."""
        if self.has(name) and read(f"{self.location}/{name}").manifest.data == data:
            return
        _empty(self.writer(), f"{name}/{data}")
        self.writer().prune(name)

    def leftovers(self, name: str) -> bool:
        """Return whether there are files of a savepoint that was cut off."""
        return not self.has(name) and bool(self.writer().below(name))

    def _clear(self, name: str, but: str | None = None) -> None:
        files = self.writer()
        for folder in files.folders(name):
            if folder != but:
                _empty(files, f"{name}/{folder}")
        if but is None:
            _empty(files, name)

    def _read(self) -> tuple[list[Savepoint], list[str]]:
        files = self.writer()
        paths = {f"{name}/{MANIFEST}": name for name in files.folders("")}
        found, damaged = [], []
        for path, data in files.read_many(sorted(paths)).items():
            if isinstance(data, FileNotFoundError):
                continue  # being made, or cut off while it was
            where = f"{self.location}/{path}"
            try:
                if isinstance(data, Exception):
                    raise CheckpointError(f"{where} cannot be read: {data}")
                found.append(Savepoint(f"{self.location}/{paths[path]}", parse(where, data)))
            except CheckpointError as error:
                damaged.append(str(error))
        return found, damaged


def find(name: str, store: Store) -> Savepoint:
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
    data = new_writer(location).read(MANIFEST)
    return Savepoint(location, parse(f"{location}/{MANIFEST}", data))


def since(manifest: Manifest) -> Since:
    """Return which rows of an output count as written after a savepoint."""
    sink = manifest.sink
    offsets = {int(one): end for one, end in sink.offsets.items()} if sink.offsets is not None else None
    return Since(manifest.batch, manifest.created, offsets, sink.version, sink.output)


def check_name(name: str) -> None:
    """Raise CheckpointError for what cannot be the name of a savepoint."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or len(name) > _LONGEST:
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


def _empty(files: Writer, folder: str) -> None:
    for path in files.below(folder):
        files.delete(path)
    files.prune(folder)
