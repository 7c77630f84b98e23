"""`Savepoints` and `Savepoint`: named copies of a checkpoint, to restore, or to start a second query from."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from respool.checkpoint.journal import history, installation
from respool.checkpoint.planning.request import RewindRequest, ToBatch, copy_identity, is_requested
from respool.errors import UnfinishedChangeError
from respool.locations import OWN, absolute
from respool.operations.checkpoint import Checkpoint
from respool.operations.context import (
    OnNote,
    OnProgress,
    install_context,
    locate,
    note,
    note_of,
    open_target,
    session,
    settings_of,
    sink_position,
)
from respool.operations.plans import InstallPlan, ResumePlan
from respool.savepoint import copying, create, planning
from respool.savepoint import store as stores
from respool.savepoint.restore import plan_fork, require_new
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.settings import Settings, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.storage.folder import FolderWriter


@dataclass(frozen=True)
class SavepointReport:
    """The result of `Savepoint.verify`.

    Attributes:
        name: The savepoint's name.
        wrong: What is broken; empty when a query can start from it.
        notes: Other remarks for the user.
        loaded: How many rows Spark loaded of each table of the state; None when it was not asked to.

    Example:
        >>> report = savepoint.verify()
        >>> report.ok, report.wrong, report.loaded
        (True, (), None)
    """

    name: str
    wrong: tuple[str, ...]
    notes: tuple[str, ...]
    loaded: dict[str, int] | None = None

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"SavepointReport({self.name!r}, ok={self.ok})"

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.wrong


@dataclass(frozen=True, repr=False)
class Savepoint(StoredSavepoint):
    """A consistent copy of a checkpoint after a committed batch.

    Attributes:
        location: Its folder or URL.
        manifest: The checkpoint, batch, offsets, files and output that it records.
        settings: Where Kafka and other savepoints are.

    Example:
        >>> savepoint = savepoints["monday"]
        >>> savepoint.manifest.batch, savepoint.verify().ok
        (13, True)
        >>> savepoint.fork(folder / "second").summary().next_batch
        14
    """

    settings: Settings = field(default_factory=load, compare=False)

    def __repr__(self) -> str:
        """Return the savepoint in one line."""
        return f"Savepoint({self.location!r}, batch={self.manifest.batch})"

    @property
    def name(self) -> str:
        """The savepoint's name."""
        return self.manifest.name

    def verify(
        self,
        *,
        load_state: bool = False,
        spark: "SparkSession | None" = None,
        on_progress: OnProgress | None = None,
        on_note: OnNote | None = None,
    ) -> SavepointReport:
        """Compare every byte with the manifest, and check that a query could start from it.

        Args:
            load_state: Also let Spark load the whole state.
            spark: A session for that; without one, Spark is started and stopped.
            on_progress: Called with how many files were read, of how many.
            on_note: Called when Spark is started.

        Example:
            >>> savepoint.verify()
            SavepointReport('monday', ok=True)
        """
        from respool.savepoint import verify as verification  # it imports pyarrow

        checked = verification.verify(self, on_progress or _ignore)
        if not load_state or checked.wrong:
            return SavepointReport(self.name, checked.wrong, checked.notes)
        with session(self.settings, spark, note_of(on_note), locations=[self.location], jvm=False) as active:
            rows, failed = verification.load(active, self)
        return SavepointReport(self.name, tuple(failed), checked.notes, rows)

    def plan_fork(self, to: str | Path, *, allow_data_loss: bool = False) -> InstallPlan | ResumePlan:
        """Plan a second query's checkpoint from this savepoint, in a new folder; `Checkpoint(to).apply` makes it.

        Args:
            to: A folder or URL that is empty or does not exist.
            allow_data_loss: Do not refuse when the source has lost records.

        Returns:
            The plan; a ResumePlan when the same fork was interrupted.

        Raises:
            CheckpointError: The folder is not empty, or is inside another checkpoint.
            UnfinishedChangeError: Another change was interrupted there.

        Example:
            >>> plan = savepoint.plan_fork(folder / "second")
            >>> plan.batch, plan.refusals
            (14, ())
        """
        location, words = absolute(str(to)), self.reference or self.location
        pending = history.pending(require_free(location, str(to), self))
        if pending is not None:
            foreign = installation.foreign(pending, location)
            files = planning.savepoint_files(self, location, pending.query_ids[-1])
            return ResumePlan(location, pending, foreign, files)
        request = RewindRequest(ToBatch(self.manifest.next_batch), allow_data_loss=allow_data_loss, words=words)
        known = install_context(self.manifest, None, location, self.settings, None, request, forks=True)
        return InstallPlan(location, plan_fork(self, location, request, known))

    def fork(
        self,
        to: str | Path,
        *,
        allow_data_loss: bool = False,
        on_progress: OnProgress | None = None,
        on_note: OnNote | None = None,
    ) -> Checkpoint:
        """Create a second query's checkpoint from this savepoint, with its own query id, and return it.

        An interrupted fork is finished by the same call.

        Raises:
            ChangeRefusedError: There are reasons against it.
            CheckpointError: The folder is not empty, or is inside another checkpoint.

        Example:
            >>> savepoint.fork(folder / "second").summary().next_batch
            14
        """
        plan = self.plan_fork(to, allow_data_loss=allow_data_loss)
        fork = Checkpoint(plan.location, settings=self.settings)
        fork.apply(plan, on_progress=on_progress, on_note=on_note)
        return fork


class Savepoints:
    """The savepoints in a folder or at a URL.

    Example:
        >>> savepoints = respool.Savepoints(folder / "savepoints")
        >>> saved = savepoints.create(checkpoint, "tuesday", reason="before the upgrade")
        >>> [savepoint.name for savepoint in savepoints]
        ['monday', 'tuesday']
        >>> checkpoint.plan_restore(savepoints["tuesday"], allow_data_loss=True).batch
        14
    """

    def __init__(self, location: str | Path | None = None, *, settings: Settings | None = None) -> None:
        """Name a folder or URL, which need not exist yet; None for that of the settings.

        Args:
            location: The folder or URL.
            settings: By default from respool.toml and the environment.
        """
        settings = settings_of(settings)
        self.settings = settings if location is None else replace(settings, savepoints=str(location))
        self._store = SavepointStore(self.settings.savepoint_store)

    def __repr__(self) -> str:
        """Return the location in one line.

        >>> respool.Savepoints("s3://bucket/savepoints")
        Savepoints('s3://bucket/savepoints')
        """
        return f"Savepoints({self.location!r})"

    @property
    def location(self) -> str:
        """The folder or URL."""
        return self._store.location

    def create(
        self,
        checkpoint: Checkpoint,
        name: str,
        *,
        batch: int | None = None,
        sink: str | None = None,
        reason: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Savepoint:
        """Copy what a start after a batch needs; the query may run meanwhile.

        Args:
            checkpoint: The checkpoint.
            name: A name of letters, digits, dots, dashes and underscores.
            batch: The newest batch in it; by default the newest that is committed.
            sink: Where the query writes, as `delta:PATH`, if respool did not run it.
            reason: Why, for the manifest.
            on_progress: Called with how many files were copied, of how many.

        Raises:
            CheckpointError: The name is taken or not valid, or the batch cannot be kept. Nothing stays then.

        Example:
            >>> savepoints.create(checkpoint, "tuesday", batch=12).manifest.next_batch
            13
        """
        locate(checkpoint.name, checkpoint.settings)
        request = create.SavepointRequest(checkpoint.location, name, batch, reason)
        position = sink_position(self.settings, sink)
        return self._savepoint(create.create(request, self._store, position, on_progress or _ignore))

    def list(self, *, on_note: OnNote | None = None) -> tuple[Savepoint, ...]:
        """Return the savepoints, the oldest first; those with a damaged manifest are reported and left out.

        Example:
            >>> [savepoint.name for savepoint in savepoints.list()]
            ['monday']
        """
        valid, damaged = self._store.read_all()
        for problem in damaged:
            note(f"warning: {problem}", on_note, logging.WARNING)
        return tuple(self._savepoint(savepoint) for savepoint in valid)

    def __iter__(self) -> Iterator[Savepoint]:
        """Iterate over the savepoints, the oldest first."""
        return iter(self.list())

    def __getitem__(self, name: str) -> Savepoint:
        """Return a savepoint by its name, or by its own folder or URL.

        Raises:
            CheckpointError: There is no such savepoint; the message names the nearest.

        Example:
            >>> savepoints["munday"]
            Traceback (most recent call last):
            respool.errors.CheckpointError: There is no savepoint munday in ... Did you mean 'monday'?
        """
        return self._savepoint(stores.find(name, self._store), name)

    def has_leftovers(self, name: str) -> bool:
        """Return whether only files of a savepoint whose creation or deletion was interrupted exist.

        Example:
            >>> savepoints.has_leftovers("monday")
            False
        """
        return "/" not in name and self._store.leftovers(name)

    def delete(self, name: str) -> None:
        """Delete a savepoint, or what is left of one; its forks stay.

        Raises:
            CheckpointError: There is no such savepoint.

        Example:
            >>> savepoints.delete("monday")
            >>> savepoints.list()
            ()
        """
        if not self.has_leftovers(name):
            self._store.get(name)
        self._store.delete(name)

    def copy(
        self,
        name: str,
        to: "Savepoints",
        *,
        new_name: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Savepoint:
        """Copy a savepoint to another folder or URL, comparing every byte with the manifest.

        Args:
            name: The savepoint.
            to: Where it is copied to.
            new_name: The name of the copy; by default the same.
            on_progress: Called with how many files were copied, of how many.

        Raises:
            CheckpointError: The name is taken there, or a file is damaged. Nothing stays then.

        Example:
            >>> savepoints.copy("monday", respool.Savepoints(folder / "elsewhere")).name
            'monday'
        """
        copy = copying.copy_to(self[name], to._store, new_name, on_progress or _ignore)
        return to._savepoint(copy)

    def _savepoint(self, stored: StoredSavepoint, reference: str = "") -> Savepoint:
        """Return a savepoint of this store; by its name it is found with the settings' own location only."""
        return Savepoint(stored.location, stored.manifest, reference or stored.manifest.name, self.settings)


def find(name: str, settings: Settings) -> Savepoint:
    """Return a savepoint by its name in the settings' location, or by its own folder or URL."""
    return Savepoints(settings=settings)[name]


def require_free(location: str, name: str, savepoint: Savepoint) -> "FolderWriter":
    """Return the folder for a fork; raise CheckpointError when it has anything but the same fork, interrupted.

    Args:
        location: The folder or URL.
        name: The same as the user named it.
        savepoint: The savepoint that is to be forked there.
    """
    files, _ = open_target(location)
    pending = history.pending(files)
    if pending is None:
        require_new(location, [*files.names(""), *(folder for folder in files.folders("") if folder != OWN)])
    elif not is_requested(pending, copy_identity("fork", savepoint.location), savepoint.reference):
        raise UnfinishedChangeError(name, pending)
    return files


def _ignore(done: int, total: int) -> None:
    pass
