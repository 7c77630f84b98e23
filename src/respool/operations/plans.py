"""Plans: changes of a checkpoint as frozen values, to be printed, compared, converted to JSON and applied."""

from dataclasses import dataclass
from typing import Any

from respool.checkpoint.journal.steps import Journal, Move, Restore
from respool.checkpoint.planning.rewind import PlannedRewind
from respool.errors import ForeignJournalError, Refusal
from respool.operations import plan_text
from respool.savepoint.install import InstallSet
from respool.savepoint.planning import PlannedInstall
from respool.text import UNLIMITED, plural, size


class _PlannedChange:
    """What the plans of a rewind and of an installation have in common."""

    contents: PlannedRewind | PlannedInstall

    def __str__(self) -> str:
        """Return the plan as the command prints it."""
        return self.text()

    @property
    def journal(self) -> Journal:
        """The steps that are applied."""
        return self.contents.journal

    @property
    def batch(self) -> int:
        """The batch that will run next."""
        return self.contents.batch

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why the plan must not be applied as it is."""
        return self.contents.refusals

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""
        return self.contents.notes

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return the plan as text, folded at `width` columns."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class RewindPlan(_PlannedChange):
    """A plan to make an earlier batch the next to run; see `Checkpoint.plan_rewind`.

    Attributes:
        location: The checkpoint's folder or URL.
        contents: What the rewind moves, and what the query then reads again.

    Example:
        >>> plan = checkpoint.plan_rewind(to_batch=4)
        >>> plan.batch, plan.refusals
        (4, ())
        >>> print(plan)
        Rewind of ...
        Next batch   4
        ...
    """

    location: str
    contents: PlannedRewind

    def __repr__(self) -> str:
        """Return the plan in one line."""
        return f"RewindPlan({self.location!r}, batch={self.batch}{_refused(self.refusals)})"

    def text(self, *, width: int = UNLIMITED, files: bool = False) -> str:
        """Return the plan as text, folded at `width` columns; with `files`, it lists every file that moves."""
        return "\n".join([f"Rewind of {self.location}", *plan_text.rewind_lines(self.contents, width, files)])

    def to_json(self, *, done: bool = False) -> dict[str, Any]:
        """Return the plan as `--json` prints it; `done` says whether it was applied."""
        return {**plan_text.rewind_json(self.contents), "done": done}


@dataclass(frozen=True)
class Promotion:
    """What a promotion needs besides the plan to install the fork's files.

    Attributes:
        fork: The fork's folder or URL.
        fork_name: The same as the user named it.
        keep_as: The name of the savepoint that keeps the old checkpoint; None when nothing needs to be kept.
        sink: Where the query writes, if the user named it.
    """

    fork: str
    fork_name: str
    keep_as: str | None
    sink: str | None


@dataclass(frozen=True, repr=False)
class InstallPlan(_PlannedChange):
    """A plan to copy files into a checkpoint: a restore, a fork or a promotion.

    See `Checkpoint.plan_restore`, `Checkpoint.plan_promote` and `Savepoint.plan_fork`.

    Attributes:
        location: The folder or URL of the checkpoint that the files are copied into.
        contents: What is copied, what moves aside, and what the query then reads.
        promotion: What a promotion needs besides; None for a restore and a fork.

    Example:
        >>> plan = savepoint.plan_fork(folder / "second")
        >>> plan.operation, plan.batch
        ('fork', 14)
        >>> plan.to_json()["done"]
        False
    """

    location: str
    contents: PlannedInstall
    promotion: Promotion | None = None

    def __repr__(self) -> str:
        """Return the plan in one line."""
        return f"InstallPlan({self.operation} {self.location!r}, batch={self.batch}{_refused(self.refusals)})"

    @property
    def operation(self) -> str:
        """The operation: restore, fork or promote."""
        return self.contents.journal.operation

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return the plan as text, folded at `width` columns."""
        return "\n".join([self._title(), *plan_text.install_lines(self.contents, width)])

    def to_json(self, *, done: bool = False) -> dict[str, Any]:
        """Return the plan as `--json` prints it; `done` says whether it was applied."""
        return {**plan_text.install_json(self.contents), "done": done}

    def _title(self) -> str:
        if self.promotion is not None:
            return f"Promotion of {self.promotion.fork} to {self.location}"
        if self.operation == "fork":
            return f"Fork of the savepoint {self.journal.request} to {self.location}"
        return f"Restore of {self.location} to the savepoint {self.journal.request}"


@dataclass(frozen=True, repr=False)
class ResumePlan:
    """A plan to finish a change that was interrupted, made when the same change is planned again.

    Attributes:
        location: The checkpoint's folder or URL.
        journal: The interrupted change.
        foreign: Why this installation did not write the journal; None when it did.
        install_set: The files of a fork, which are copied again when the fork was interrupted early.

    Example:
        >>> plan = interrupted.plan_rewind(last=2)
        >>> plan
        ResumePlan(rewind ..., batch=12)
        >>> interrupted.apply(plan).operation
        'rewind'
    """

    location: str
    journal: Journal
    foreign: str | None = None
    install_set: InstallSet | None = None

    def __str__(self) -> str:
        """Return the interrupted change, with the first of its steps."""
        return self.text()

    def __repr__(self) -> str:
        """Return the plan in one line."""
        return f"ResumePlan({self.journal.operation} {self.location!r}, batch={self.batch})"

    @property
    def batch(self) -> int:
        """The batch that will run next."""
        return self.journal.batch

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Nothing refuses it: the checkpoint cannot be used until the change is finished or undone."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning when this installation did not write the journal."""
        if self.foreign is None:
            return ()
        return (f"This installation did not write the journal of this {self.journal.operation}: {self.foreign}.",)

    def text(self, *, width: int = UNLIMITED) -> str:  # paths are not folded
        """Return the plan as text."""
        lines = plan_text.interrupted_lines(self.journal, self.location)
        return "\n".join([*lines, *(f"warning: {note}" for note in self.notes)])

    def to_json(self, *, done: bool = False) -> dict[str, Any]:
        """Return the interrupted change with all its steps, and whether it is foreign."""
        origin = self.journal.origin
        return {
            **plan_text.journal_json(self.journal),
            "host": origin.host if origin else None,
            "user": origin.user if origin else None,
            "location": origin.location if origin else None,
            "foreign": self.foreign,
            "steps": plan_text.steps_json(self.journal),
            "done": done,
        }

    def require_accepted(self, accept_foreign_journal: bool) -> None:
        """Raise ForeignJournalError when this installation did not write the journal, and that is not accepted."""
        if self.foreign is not None and not accept_foreign_journal:
            raise ForeignJournalError(self.location, self.journal.operation, self.journal.id, self.foreign)


@dataclass(frozen=True, repr=False)
class UndoPlan:
    """A plan to undo the last change, whether it was finished or interrupted; see `Checkpoint.plan_undo`.

    Attributes:
        location: The checkpoint's folder or URL.
        journal: The steps that are applied.
        change: The finished change that is undone; None when `interrupted` is undone or resumed.
        interrupted: The interrupted change that is undone, or the interrupted undo that is resumed.
        foreign: Why this installation did not make `change`; None when it did.

    Example:
        >>> _ = checkpoint.rewind(to_batch=4)
        >>> plan = checkpoint.plan_undo()
        >>> print(plan)
        Undo of ...-4 moves back ... files, ...; batch 14 is the next to run then.
        >>> checkpoint.apply(plan).operation
        'undo'
    """

    location: str
    journal: Journal
    change: Journal | None = None
    interrupted: ResumePlan | None = None
    foreign: str | None = None

    def __str__(self) -> str:
        """Return the plan as `respool checkpoint undo` prints it."""
        return self.text()

    def __repr__(self) -> str:
        """Return the plan in one line."""
        return f"UndoPlan({self.location!r}, of={self.journal.of!r}, batch={self.batch})"

    @property
    def batch(self) -> int:
        """The batch that will run next."""
        return self.journal.batch

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Nothing refuses it: what cannot be undone raises CheckpointError when it is planned."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning when another installation made the change."""
        if self.interrupted is not None:
            return self.interrupted.notes
        if self.change is None or self.foreign is None:
            return ()
        return (f"This installation did not make the {self.change.operation} {self.change.id}: {self.foreign}.",)

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return the plan as text."""
        lines = [self.title]
        if self.interrupted is not None:
            lines.append(self.interrupted.text(width=width))
        else:
            lines += [f"warning: {note}" for note in self.notes]
        return "\n".join(lines)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The folders and tables outside the checkpoint that the undo of a finished change changes."""
        steps = self.change.steps if self.change is not None else ()
        folders = {step.sink for step in steps if isinstance(step, Move) and step.sink is not None}
        return tuple(sorted(folders | {step.table.table for step in steps if isinstance(step, Restore)}))

    @property
    def title(self) -> str:
        """What is undone, in one line."""
        moves = self.journal.moves
        moved = f"{plural(len(moves), 'file')}, {size(sum(move.size for move in moves))}"
        return f"Undo of {self.journal.of} moves back {moved}; batch {self.batch:,} is the next to run then."

    def to_json(self, *, done: bool = False) -> dict[str, Any]:
        """Return the undo as `--json` prints it; of an interrupted change with all its steps."""
        if self.interrupted is not None:
            return ResumePlan(self.location, self.journal, self.interrupted.foreign).to_json(done=done)
        return {**plan_text.journal_json(self.journal), "done": done}

    def require_accepted(self, accept_foreign_journal: bool) -> None:
        """Raise ForeignJournalError when another installation wrote what is undone, and that is not accepted.

        For a finished change only when its undo changes a sink, which any journal could name.
        """
        if self.interrupted is not None:
            self.interrupted.require_accepted(accept_foreign_journal)
        elif self.change is not None and self.foreign is not None and self.sinks and not accept_foreign_journal:
            change = self.change
            raise ForeignJournalError(self.location, change.operation, change.id, self.foreign, self.sinks)


Plan = RewindPlan | InstallPlan | ResumePlan | UndoPlan


def _refused(refusals: tuple[Refusal, ...]) -> str:
    return f", {plural(len(refusals), 'refusal')}" if refusals else ""
