"""`Checkpoint`: everything that can be done with the checkpoint of a query, without a JVM unless its state is read."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.checkpoint import snapshot as snapshots
from respool.checkpoint.journal import apply, history, installation
from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.ownership import RunRecord, fork_of, read_run_record
from respool.checkpoint.planning import rewind, undo
from respool.checkpoint.planning.request import (
    Offsets,
    RewindRequest,
    ToBatch,
    copy_identity,
    is_requested,
    target_of,
)
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state.selection import StateSelection
from respool.checkpoint.summary import CheckpointSummary, summarize
from respool.checkpoint.verify import run as verification
from respool.errors import UnfinishedChangeError, UsageError
from respool.format.model import InclusiveRange
from respool.identity import Identity
from respool.operations import context
from respool.operations.apply import apply_plan
from respool.operations.checkpoint_results import (
    CheckpointReport,
    CheckpointStatus,
    PurgeResult,
    StateChoices,
    StateQuery,
    query_state,
    state_choices,
)
from respool.operations.context import OnNote, OnProgress, settings_of
from respool.operations.plans import InstallPlan, Plan, Promotion, ResumePlan, RewindPlan, UndoPlan
from respool.savepoint.promote import plan_promote
from respool.savepoint.restore import plan_restore
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.settings import Settings
from respool.storage import lease
from respool.storage.folder import FolderReader
from respool.storage.open import open_reader, open_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.checkpoint.state.reader import StateRows


class Checkpoint:
    """The checkpoint of a streaming query, on any filesystem.

    Planning reads; only `apply`, `rewind` and `purge` write. No method prints or asks.

    Example:
        >>> checkpoint = respool.Checkpoint(folder / "query")
        >>> checkpoint.summary().next_batch
        14
        >>> plan = checkpoint.plan_rewind(to_batch=4)
        >>> if not plan.refusals:
        ...     change = checkpoint.apply(plan)
        >>> checkpoint.summary().next_batch
        4
    """

    def __init__(self, location: str | Path, *, settings: Settings | None = None) -> None:
        """Name a checkpoint, which need not exist yet; none of its files is read.

        Args:
            location: A pipeline's name, a folder, or a URL such as s3://bucket/checkpoints/orders.
            settings: Where pipelines, savepoints and Kafka are; by default from respool.toml and the environment.
        """
        self.name = str(location)
        self.settings = settings_of(settings)
        self.location = context.location_of(self.name, self.settings)

    def __repr__(self) -> str:
        """Return the checkpoint in one line.

        >>> respool.Checkpoint("s3://bucket/orders")
        Checkpoint('s3://bucket/orders')
        """
        return f"Checkpoint({self.location!r})"

    def __eq__(self, other: object) -> bool:
        """Return whether both name the same folder or URL."""
        return isinstance(other, Checkpoint) and self.location == other.location

    def __hash__(self) -> int:
        """Return a hash of the location."""
        return hash(self.location)

    def summary(self, *, batches: int | None = 100) -> CheckpointSummary:
        """Return the batches, offsets, watermark and state, and which batches can be rewound to.

        Args:
            batches: How many of the newest batches to list; None for all.

        Example:
            >>> summary = checkpoint.summary(batches=2)
            >>> [batch.batch for batch in summary.batches], summary.earliest.batch
            ([12, 13], 0)
        """
        return summarize(self._snapshot(), _positive(batches))

    def status(self, *, batches: int | None = 100, on_note: OnNote | None = None) -> CheckpointStatus:
        """Return the summary with what respool records: the pipeline, changes, savepoints, who holds it.

        Example:
            >>> status = checkpoint.status()
            >>> status.holder, status.history, status.summary.next_batch
            (None, (), 14)
        """
        checkpoint = self._snapshot()
        files = checkpoint.files
        holder = lease.holder(self.location)
        return CheckpointStatus(
            summary=summarize(checkpoint, _positive(batches)),
            run=read_run_record(files),
            holder=holder,
            history=tuple(history.past(files)),
            pending=history.pending(files),
            fork=fork_of(files),
            savepoints=tuple(context.savepoints_of(checkpoint, self.settings, on_note)),
            # A change that is being made has staged files of its own.
            leftovers=() if holder is not None else tuple(apply.leftovers(files)),
        )

    def verify(self, *, deep: bool = True, on_progress: OnProgress | None = None) -> CheckpointReport:
        """Check everything that a restart and a rewind rely on; nothing is changed.

        Args:
            deep: Also read the bytes of all state files.
            on_progress: Called with how many files were read, of how many.

        Example:
            >>> checkpoint.verify().ok
            True
        """
        checks = verification.verify(self._snapshot(), deep, on_progress or _ignore)
        return CheckpointReport(self.location, checks)

    def plan_rewind(
        self,
        *,
        to_batch: int | None = None,
        to_time: datetime | None = None,
        to_offsets: Offsets | None = None,
        last: int | None = None,
        same_range: bool = False,
        sink: str | None = None,
        restore_sink: bool = False,
        new_query_id: bool = False,
        allow_data_loss: bool = False,
        assume_stopped: bool = False,
        reason: str | None = None,
    ) -> RewindPlan | ResumePlan:
        """Plan to make an earlier batch the next to run; name one of the first four arguments.

        Args:
            to_batch: The batch to run next.
            to_time: The first batch planned at this time or later; it needs a time zone.
            to_offsets: The first batch that read at or beyond any of these offsets, by topic and partition.
            last: So that this many of the newest batches run again.
            same_range: Run that batch on exactly the records that it had.
            sink: Where the query writes, as `delta:PATH`; needed unless respool ran the query.
            restore_sink: Also roll back a Delta or file sink.
            new_query_id: Give the query a new id.
            allow_data_loss: Do not refuse when the source has lost records.
            assume_stopped: Do not refuse when the checkpoint looks as if the query ran.
            reason: Why, for the history.

        Returns:
            The plan; a ResumePlan when the same rewind was interrupted.

        Raises:
            UsageError: Not exactly one target is named, or it is not valid.
            UnfinishedChangeError: Another change was interrupted.
            CheckpointError: The batch cannot be reached.

        Example:
            >>> plan = checkpoint.plan_rewind(last=2, reason="a bad deploy")
            >>> plan.batch, plan.journal.reason
            (12, 'a bad deploy')
        """
        target, words = target_of(to_batch, to_time, to_offsets, last)
        flags = (("--same-range", same_range), ("--restore-sink", restore_sink), ("--new-query-id", new_query_id))
        words = " ".join([words, *(flag for flag, given in flags if given)])
        request = RewindRequest(
            target, same_range, restore_sink, new_query_id, allow_data_loss, assume_stopped, reason, words
        )
        self._require_exists()
        lease.wait_for_jvm(self.location)
        files = open_writer(self.location)
        pending = history.pending(files)
        if pending is not None:
            return self._resumed(pending, request.identity(), words)
        checkpoint = CheckpointSnapshot(files)
        known = context.rewind_context(checkpoint, self.location, self.settings, sink, request)
        return RewindPlan(self.location, rewind.plan_rewind(checkpoint, request, known))

    def plan_restore(
        self,
        savepoint: StoredSavepoint,
        *,
        sink: str | None = None,
        restore_sink: bool = False,
        allow_data_loss: bool = False,
        assume_stopped: bool = False,
        other_query: bool = False,
        reason: str | None = None,
    ) -> InstallPlan | ResumePlan:
        """Plan to put the checkpoint back to a savepoint; the checkpoint itself may be lost.

        Args:
            savepoint: The savepoint.
            sink: As for `plan_rewind`.
            restore_sink: As for `plan_rewind`.
            allow_data_loss: As for `plan_rewind`.
            assume_stopped: As for `plan_rewind`.
            other_query: Allow a savepoint of another query.
            reason: Why, for the history.

        Raises:
            UnfinishedChangeError: Another change was interrupted.

        Example:
            >>> plan = checkpoint.plan_restore(savepoint, allow_data_loss=True)
            >>> plan.operation, plan.batch
            ('restore', 14)
        """
        words = savepoint.reference or savepoint.location
        request = RewindRequest(
            ToBatch(savepoint.manifest.next_batch),
            restore_sink=restore_sink,
            allow_data_loss=allow_data_loss,
            stopped=assume_stopped,
            reason=reason,
            words=words,
        )
        files, checkpoint = context.open_target(self.location)
        pending = history.pending(files)
        if pending is not None:
            return self._resumed(pending, copy_identity("restore", savepoint.location), words)
        known = context.install_context(savepoint.manifest, checkpoint, self.location, self.settings, sink, request)
        contents = plan_restore(savepoint, checkpoint, self.location, request, known, other_query)
        return InstallPlan(self.location, contents)

    def plan_promote(
        self,
        fork: "Checkpoint",
        *,
        keep_as: str | None = None,
        sink: str | None = None,
        restore_sink: bool = False,
        allow_data_loss: bool = False,
        assume_stopped: bool = False,
        reason: str | None = None,
    ) -> InstallPlan | ResumePlan:
        """Plan to make a fork the checkpoint of this pipeline; both queries must have stopped.

        Args:
            fork: The fork's checkpoint.
            keep_as: The name of the savepoint that keeps the old checkpoint; by default it is made of the time.
            sink: As for `plan_rewind`.
            restore_sink: Move a file sink's output of the replayed batches aside.
            allow_data_loss: As for `plan_rewind`.
            assume_stopped: As for `plan_rewind`.
            reason: Why, for the history.

        Raises:
            UsageError: The fork is this checkpoint.
            UnfinishedChangeError: Another change was interrupted, of this checkpoint or of the fork.

        Example:
            >>> fork = savepoint.fork(folder / "second")
            >>> plan = checkpoint.plan_promote(fork, keep_as="before-second", assume_stopped=True)
            >>> plan.operation, plan.refusals
            ('promote', ())
        """
        if fork.location == self.location:
            raise UsageError("FORK and PATH are the same checkpoint")
        fork._require_exists()
        self._require_exists()
        files, checkpoint = context.open_target(self.location)
        pending = history.pending(files)
        if pending is not None:
            return self._resumed(pending, copy_identity("promote", fork.location), fork.name)
        forked = CheckpointSnapshot(open_writer(fork.location))
        unfinished = history.pending(forked.files)
        if unfinished is not None:
            raise UnfinishedChangeError(fork.name, unfinished)
        kept = SavepointStore(self.settings.savepoint_store).name_to_keep(checkpoint, keep_as)
        request = RewindRequest(
            ToBatch(forked.next_batch),
            restore_sink=restore_sink,
            new_query_id=True,  # the pipeline continues under the fork's id
            allow_data_loss=allow_data_loss,
            stopped=assume_stopped,
            reason=reason,
            words=fork.name,
        )
        run = read_run_record(checkpoint.files) if checkpoint else None
        ids = history.query_ids(checkpoint) if checkpoint else ()
        topics = snapshots.topics(forked)
        known = context.change_context(self.location, self.settings, sink, request, run, forked.next_batch, ids, topics)
        holder, processes = lease.holder(fork.location), context.processes_using(fork.location)
        contents = plan_promote(forked, checkpoint, self.location, request, known, holder, processes)
        return InstallPlan(self.location, contents, Promotion(fork.location, fork.name, kept, sink))

    def plan_undo(self, *, reason: str | None = None) -> UndoPlan:
        """Plan to undo the last rewind, restore or promotion, whether it was finished or interrupted.

        Raises:
            CheckpointError: Nothing can be undone, or the query has run since.

        Example:
            >>> _ = checkpoint.rewind(to_batch=4)
            >>> checkpoint.plan_undo().batch
            14
        """
        self._require_exists()
        lease.wait_for_jvm(self.location)
        files = open_writer(self.location)
        journal = undo.plan_undo(CheckpointSnapshot(files), datetime.now(timezone.utc), reason)
        pending = history.pending(files)
        if pending is not None:
            return UndoPlan(self.location, journal, interrupted=self._resume_plan(pending))
        change = next(earlier for earlier in history.past(files) if earlier.id == journal.of)
        return UndoPlan(self.location, journal, change, foreign=installation.foreign(change, self.location))

    def apply(
        self,
        plan: Plan,
        *,
        accept_foreign_journal: bool = False,
        on_progress: OnProgress | None = None,
        on_note: OnNote | None = None,
    ) -> Journal:
        """Apply a plan: hold the checkpoint, write the journal, move the files. Return the journal.

        Interrupted anywhere, the checkpoint is as before, or no query starts on it until the same change is planned
        and applied again, or undone.

        Args:
            plan: A plan of this checkpoint.
            accept_foreign_journal: Resume an interrupted change whose journal another installation wrote.
            on_progress: Called with how many files were copied, or steps done, of how many.
            on_note: Called with notes on what happens, such as the savepoint that a promotion makes.

        Raises:
            UsageError: The plan is of another checkpoint.
            ChangeRefusedError: The plan has reasons against it.
            CheckpointChangedError: The checkpoint has changed since the plan was made.
            CheckpointInUseError: Another process holds the checkpoint.
            ForeignJournalError: Another installation wrote the journal, and that is not accepted.

        Example:
            >>> change = checkpoint.apply(checkpoint.plan_rewind(to_batch=4))
            >>> change.operation, change.batch
            ('rewind', 4)
        """
        if plan.location != self.location:
            raise UsageError(f"The plan is of the checkpoint {plan.location}; expected one of {self.location}.")
        return apply_plan(
            plan,
            self.name,
            self.settings,
            accept_foreign_journal=accept_foreign_journal,
            on_progress=on_progress,
            on_note=on_note,
        )

    def rewind(self, *, on_progress: OnProgress | None = None, **arguments: Any) -> Journal:
        """Plan a rewind and apply it; the arguments are those of `plan_rewind`.

        Raises:
            ChangeRefusedError: There are reasons against it.

        Example:
            >>> checkpoint.rewind(last=2).batch
            12
        """
        return self.apply(self.plan_rewind(**arguments), on_progress=on_progress)

    def history(self) -> tuple[Journal, ...]:
        """Return what respool changed, the oldest first.

        Example:
            >>> _ = checkpoint.rewind(last=2, reason="a bad deploy")
            >>> [(change.operation, change.reason) for change in checkpoint.history()]
            [('rewind', 'a bad deploy')]
        """
        return tuple(history.past(self._reader()))

    def pending(self) -> Journal | None:
        """Return the change that was interrupted; None for none.

        Example:
            >>> checkpoint.pending() is None
            True
        """
        return history.pending(self._reader())

    def run_record(self) -> RunRecord | None:
        """Return the pipeline that respool runs on the checkpoint; None when another program runs the query.

        Example:
            >>> checkpoint.run_record() is None
            True
        """
        return read_run_record(self._reader())

    def purge(
        self, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False, now: datetime | None = None
    ) -> PurgeResult:
        """Delete what old changes moved aside, and what interrupted commands left.

        Args:
            older_than: How old a change must be; it cannot be undone any more.
            dry_run: Only return what would be deleted.
            now: The time from which the age counts; by default the current time.

        Raises:
            CheckpointInUseError: Another process holds the checkpoint.

        Example:
            >>> _ = checkpoint.rewind(last=2)
            >>> checkpoint.purge(older_than=timedelta(0))
            PurgeResult(1 change, 0 leftovers)
        """
        self._require_exists()
        now = now or datetime.now(timezone.utc)
        files = open_writer(self.location)
        old = tuple(
            change
            for change in history.past(files)
            if history.undoable(change) and not change.purged and now - change.started >= older_than
        )
        left = tuple(apply.leftovers(files)) if lease.holder(self.location) is None else ()
        if dry_run or not (old or left):
            return PurgeResult(old, left)
        with context.hold(self.location, self.name):
            for change in old:
                apply.purge(change, files, now)
            return PurgeResult(old, tuple(apply.clear_leftovers(files)))

    def state(
        self,
        *,
        batch: int | None = None,
        operator: int | None = None,
        store: str | None = None,
        variable: str | None = None,
        timers: bool = False,
        changes: tuple[int, int] | None = None,
        where: Mapping[str, str] | None = None,
        timezone: str | None = None,
        limit: int | None = None,
        spark: "SparkSession | None" = None,
    ) -> "StateRows":
        """Read the state of the query as a table; the query may run meanwhile.

        Args:
            batch: The state after this batch; by default after the newest that is finished.
            operator: The number of the stateful operator; by default the only one.
            store: A store; of a join also `left` or `right`.
            variable: A variable of transformWithState.
            timers: Read its timers.
            changes: Read what these batches changed instead: the first and the last.
            where: Only rows with these values, as `{"window.start": "2024-01-01T01:00Z"}`.
            timezone: The zone of times in `where` that name no offset.
            limit: How many rows to return at most; None for all.
            spark: A session; without one, Spark is started and stopped.

        Raises:
            CheckpointError: There is no such table, or it cannot be read.

        Example:
            >>> checkpoint.state(batch=99)
            Traceback (most recent call last):
            respool.errors.CheckpointError: The state after batch 99 cannot be read: ...
        """
        query = self.state_query(
            batch=batch,
            operator=operator,
            store=store,
            variable=variable,
            timers=timers,
            changes=changes,
            where=where,
            timezone=timezone,
        )
        return query.rows(limit, spark=spark)

    def state_query(
        self,
        *,
        batch: int | None = None,
        operator: int | None = None,
        store: str | None = None,
        variable: str | None = None,
        timers: bool = False,
        changes: tuple[int, int] | None = None,
        where: Mapping[str, str] | None = None,
        timezone: str | None = None,
    ) -> StateQuery:
        """Return a query of the state, checked without Spark; the arguments are those of `state`.

        Example:
            >>> query = checkpoint.state_query(batch=12)
            >>> query.reading.operator.kind
            'aggregation'
        """
        span = None if changes is None else InclusiveRange(*changes)
        selection = StateSelection(batch, operator, store, variable, timers, span)
        return query_state(self._snapshot(), self.settings, selection, where or {}, timezone)

    def state_choices(self) -> StateChoices:
        """Return which tables of the state can be read, after which batches.

        Example:
            >>> [choice.operator.kind for choice in checkpoint.state_choices().choices]
            ['aggregation']
        """
        return state_choices(self._snapshot())

    def _require_exists(self) -> None:
        """Raise CheckpointNotFoundError, which names the pipelines that exist, when nothing is at the location."""
        context.locate(self.name, self.settings)

    def _reader(self) -> FolderReader:
        self._require_exists()
        return open_reader(self.location)

    def _snapshot(self) -> CheckpointSnapshot:
        return CheckpointSnapshot(self._reader())

    def _resumed(self, pending: Journal, identity: Identity, words: str) -> ResumePlan:
        if not is_requested(pending, identity, words):
            raise UnfinishedChangeError(self.name, pending)
        return self._resume_plan(pending)

    def _resume_plan(self, pending: Journal) -> ResumePlan:
        return ResumePlan(self.location, pending, installation.foreign(pending, self.location))


def _positive(batches: int | None) -> int | None:
    if batches is not None and batches < 1:
        raise UsageError(f"batches={batches}: expected a number above 0, or None for all")
    return batches


def _ignore(done: int, total: int) -> None:
    pass
