"""The errors that respool raises deliberately.

RespoolError
├── UsageError         a call or a command line contradicts itself; the command exits with 2
├── SettingsError      respool.toml, a RESPOOL_* variable or a flag cannot be read
├── MachineError       something the machine lacks: Java, a jar, disk space
├── BrokerError        Kafka cannot be started, reached or stopped
│   └── BrokerUnreachable   no broker of the cluster answered; waiting may help
├── TopicError         a topic is missing, vanished or cannot be created
├── PipelineError      a pipeline is unknown or badly defined
├── CheckpointError    a checkpoint or a savepoint cannot be used, or not as requested
│   ├── CheckpointNotFoundError    there is no checkpoint at a location
│   ├── CheckpointInUseError       a run or another command holds it: `holder`
│   ├── UnfinishedChangeError      an interrupted change must be finished or undone first: `pending`
│   ├── ChangeRefusedError         a plan must not be applied: `refusals`
│   ├── CheckpointChangedError     the checkpoint has changed since a plan was made: `changes`
│   ├── ForeignJournalError        another installation wrote the journal of a change: `problem`
│   ├── BatchUnavailableError      files that a start at a batch needs are missing or damaged: `reason`
│   └── FileError                  a file cannot be used: `path`, `problem`, `remedy`
│       ├── DamagedFileError           its content is not what Spark or respool wrote
│       ├── UnknownFormatVersionError  its format is newer than this respool: `version`, `supported`
│       └── UnreadableFileError        it is missing, not a regular file, or the filesystem refuses it
│           └── StoreError                 an object store cannot be reached, or refuses this account
├── QueryError         a streaming query failed while it ran
├── ReprocessError     a span cannot be computed again, or not now
└── DiffError          two outputs cannot be compared

A class with fields makes its message from them, so that no caller needs to parse a message: catch the class and read
its fields. All errors can be pickled. Every message states what was found, what was expected and the next step. The
command line prints it without a stack trace and exits with 1; a UsageError exits with 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class RespoolError(Exception):
    """The root of all errors that respool raises deliberately.

    >>> try:
    ...     respool.find_pipeline("visit-count")
    ... except respool.RespoolError as error:
    ...     print(type(error).__name__)
    PipelineError
    """


class UsageError(RespoolError):
    """Raised when arguments of a call or options of a command contradict each other or cannot be read.

    >>> checkpoint.plan_rewind()
    Traceback (most recent call last):
    respool.errors.UsageError: name exactly one of to_batch, to_time, to_offsets and last

    Attributes:
        message: What is wrong, and what was expected.
        option: The option or argument that is wrong; None when it is in the message.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        """Keep the fields."""
        super().__init__(message, option)
        self.message = message
        self.option = option

    def __str__(self) -> str:
        """Return the message."""
        return f"{self.option}: {self.message}" if self.option else self.message


class SettingsError(RespoolError):
    """respool.toml, a RESPOOL_* variable or a flag cannot be read.

    >>> respool.load_settings(colour="red")
    Traceback (most recent call last):
    respool.errors.SettingsError: Unknown setting 'colour'. ...
    """


class MachineError(RespoolError):
    """The machine lacks something: Java, a jar, disk space.

    >>> str(respool.MachineError("No Java was found."))
    'No Java was found.'
    """


class BrokerError(RespoolError):
    """Kafka cannot be started, reached or stopped.

    >>> str(respool.BrokerError("The broker did not answer within 30 s."))
    'The broker did not answer within 30 s.'
    """


class BrokerUnreachable(BrokerError):
    """No broker of the cluster answered: waiting may help.

    >>> issubclass(respool.BrokerUnreachable, respool.BrokerError)
    True
    """


class TopicError(RespoolError):
    """A topic is missing, vanished or cannot be created.

    >>> str(respool.TopicError("There is no topic 'visits'."))
    "There is no topic 'visits'."
    """


class PipelineError(RespoolError):
    """A pipeline is unknown or badly defined.

    >>> respool.find_pipeline("visit-count")
    Traceback (most recent call last):
    respool.errors.PipelineError: There is no pipeline 'visit-count'. Did you mean 'visit-counts'? ...
    """


class CheckpointError(RespoolError):
    """A checkpoint or a savepoint cannot be used, or not as requested.

    >>> checkpoint.plan_undo()
    Traceback (most recent call last):
    respool.errors.CheckpointError: ... has no change to undo. See: respool checkpoint history.
    """

    @property
    def summary(self) -> str:
        """What is wrong, as part of a sentence: without a full stop and without advice, where known."""
        return str(self)


class CheckpointNotFoundError(CheckpointError):
    """Raised when a location holds no checkpoint: nothing exists there, or it is something else.

    >>> try:
    ...     respool.Checkpoint(folder / "nowhere").summary()
    ... except respool.CheckpointNotFoundError as error:
    ...     print(error.path == str(folder / "nowhere"))
    True

    Attributes:
        path: The location, as the caller named it.
        problem: What exists there instead; empty when that is unknown.
        remedy: What to do about it.
    """

    def __init__(self, path: str, problem: str = "", remedy: str = "") -> None:
        """Keep the fields."""
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    @property
    def summary(self) -> str:
        """What is wrong, without a full stop and without advice."""
        return f"There is no checkpoint {self.path}{': ' if self.problem else ''}{self.problem}"

    def __str__(self) -> str:
        """Return the message."""
        return _sentences(self.summary, self.remedy)


class CheckpointInUseError(CheckpointError):
    """Raised when a checkpoint is held by a running query or by another command.

    >>> error = respool.CheckpointInUseError("/data/orders", "process 17")
    >>> error.holder, error.summary
    ('process 17', '/data/orders is in use by process 17')

    Attributes:
        path: The checkpoint.
        holder: The process that holds it, with its machine if that is another; None if it has just ended.
        remedy: What to do about it.
    """

    def __init__(self, path: str, holder: str | None, remedy: str = "Stop that first. Nothing was changed.") -> None:
        """Keep the fields."""
        super().__init__(path, holder, remedy)
        self.path = path
        self.holder = holder
        self.remedy = remedy

    @property
    def summary(self) -> str:
        """What is wrong, without a full stop and without advice."""
        return f"{self.path} is in use by {self.holder or 'a process that has just ended'}"

    def __str__(self) -> str:
        """Return the message."""
        return _sentences(self.summary, self.remedy)


class PendingChange(Protocol):
    """A change that was interrupted, as its journal describes it."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def operation(self) -> str:
        """Its kind: rewind, restore, fork, promote or undo."""

    def interruption(self, path: str) -> str:
        """Return the message about it, with the commands that finish or undo it."""


class UnfinishedChangeError(CheckpointError):
    """Raised when a change of a checkpoint was interrupted and must be finished or undone before anything else.

    >>> try:
    ...     interrupted.plan_rewind(last=1)
    ... except respool.UnfinishedChangeError as error:
    ...     print(error.pending.operation)
    rewind

    Attributes:
        path: The checkpoint.
        pending: The journal of the change.
    """

    def __init__(self, path: str, pending: PendingChange) -> None:
        """Keep the fields."""
        super().__init__(path, pending)
        self.path = path
        self.pending = pending

    def __str__(self) -> str:
        """Return the message."""
        return self.pending.interruption(self.path)


@dataclass(frozen=True)
class Refusal:
    """Why a change is refused, and what to do about it.

    >>> print(respool.Refusal("The query runs: process 17.", "Stop it first.").way_out)
    Stop it first.
    """

    why: str
    way_out: str


class ChangeRefusedError(CheckpointError):
    """Raised when a refused plan is applied.

    >>> error = respool.ChangeRefusedError([respool.Refusal("The query runs: process 17.", "Stop it first.")])
    >>> str(error)
    'The change is refused. The query runs: process 17. Stop it first. Nothing was changed.'

    Attributes:
        refusals: The reasons, each with what to do about it.
    """

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        """Keep the reasons."""
        self.refusals = tuple(refusals)
        super().__init__(self.refusals)

    def __str__(self) -> str:
        """Return the message."""
        reasons = " ".join(f"{refusal.why} {refusal.way_out}" for refusal in self.refusals)
        return f"The change is refused. {reasons} Nothing was changed."


class CheckpointChangedError(CheckpointError):
    """Raised when a plan is applied to a checkpoint that has changed since the plan was made.

    >>> plan = checkpoint.plan_rewind(last=1)
    >>> _ = checkpoint.rewind(last=2)
    >>> try:
    ...     checkpoint.apply(plan)
    ... except respool.CheckpointChangedError as error:
    ...     print(error.changes[0])
    its newest ... batch is 11, not 13

    Attributes:
        path: The checkpoint.
        changes: What has changed, each as a clause without a full stop.
    """

    def __init__(self, path: str, changes: Iterable[str]) -> None:
        """Keep the fields."""
        self.path = path
        self.changes = tuple(changes)
        super().__init__(path, self.changes)

    @property
    def summary(self) -> str:
        """What is wrong, without a full stop and without advice."""
        return f"The checkpoint {self.path} has changed since the plan was made: {'; '.join(self.changes)}"

    def __str__(self) -> str:
        """Return the message."""
        return _sentences(self.summary, "Make a new plan. Nothing was changed.")


class ForeignJournalError(CheckpointError):
    """Raised when another installation wrote the journal of a change that is to be resumed or undone.

    >>> error = respool.ForeignJournalError("/data/orders", "rewind", "20250904T073000Z-4", "its seal does not match")
    >>> error.operation, error.sinks
    ('rewind', ())

    Attributes:
        path: The checkpoint.
        operation: What the change is: rewind, restore, fork, promote or undo.
        change: Its id.
        problem: Why the journal is not of this installation, without a full stop.
        sinks: Folders and tables outside the checkpoint that undoing a finished change would change.
    """

    def __init__(self, path: str, operation: str, change: str, problem: str, sinks: Iterable[str] = ()) -> None:
        """Keep the fields."""
        self.path = path
        self.operation = operation
        self.change = change
        self.problem = problem
        self.sinks = tuple(sinks)
        super().__init__(path, operation, change, problem, self.sinks)

    def __str__(self) -> str:
        """Return the message."""
        if self.sinks:
            return (
                f"The journal of the {self.operation} {self.change} was not written by this installation: "
                f"{self.problem}. Its undoing would change {', '.join(map(ascii, self.sinks))}, too. If that is right, "
                "run this again with --accept-foreign-journal. Nothing was changed."
            )
        return (
            f"The journal in {self.path}/_respool was not written by this installation: {self.problem}. Its steps "
            "could do harm. Read them (--dry-run, or --dry-run --json for all). If you trust who wrote them, run this "
            "again with --accept-foreign-journal. Nothing was changed."
        )


class BatchUnavailableError(CheckpointError):
    """Raised when files that a start at a batch needs are no longer kept, are missing or are damaged.

    >>> respool.BatchUnavailableError("offsets/3 is not kept").reason
    'offsets/3 is not kept'

    Attributes:
        reason: Which files, and what is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason, which has no full stop at its end."""
        super().__init__(reason)
        self.reason = reason

    @property
    def summary(self) -> str:
        """What is wrong, without a full stop."""
        return self.reason

    def __str__(self) -> str:
        """Return the message."""
        return _sentences(self.reason)


class FileError(CheckpointError):
    """Raised, as one of its subclasses, when a file of a checkpoint, a savepoint or a table cannot be used.

    >>> try:
    ...     raise respool.DamagedFileError("offsets/3", "it is empty", "Restore it from a copy.")
    ... except respool.FileError as error:
    ...     print(error.path, error.predicate)
    offsets/3 is damaged: it is empty

    Attributes:
        path: The file, relative to its checkpoint where that is known from the context.
        problem: The problem, without a full stop.
        remedy: What to do about it; empty where that depends on the context.
    """

    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        """Keep the fields."""
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    @property
    def predicate(self) -> str:
        """What is wrong, as a predicate that follows the path."""
        return self.problem

    @property
    def summary(self) -> str:
        """What is wrong, without a full stop and without advice."""
        return f"{self.path} {self.predicate}"

    def __str__(self) -> str:
        """Return the message."""
        return _sentences(self.summary, self.remedy)


class DamagedFileError(FileError):
    """Raised when the content of a file is not what Spark or respool wrote, or could have written.

    >>> str(respool.DamagedFileError("offsets/3", "it is empty", "Restore it from a copy."))
    'offsets/3 is damaged: it is empty. Restore it from a copy.'
    """

    @property
    def predicate(self) -> str:
        """What is wrong, as a predicate that follows the path."""
        return f"is damaged: {self.problem}"


class UnknownFormatVersionError(FileError):
    """Raised when a file has a format version that this respool does not support: the file need not be damaged.

    >>> error = respool.UnknownFormatVersionError("commits/3", "v9", ["v1", "v2"])
    >>> error.version, error.supported
    ('v9', ('v1', 'v2'))

    Attributes:
        version: The version that the file states.
        supported: The versions that this respool reads.
    """

    def __init__(self, path: str, version: str, supported: Iterable[str], remedy: str = "") -> None:
        """Keep the fields."""
        self.version = version
        self.supported = tuple(supported)
        super().__init__(
            path, f"has format version {version}; this respool supports {', '.join(self.supported)}", remedy
        )
        self.args = (path, version, self.supported, remedy)


class UnreadableFileError(FileError):
    """Raised when a file or folder is missing, is not a regular file, or the filesystem refuses access to it.

    >>> str(respool.UnreadableFileError("commits/3", "is missing"))
    'commits/3 is missing.'

    The `problem` is a predicate that follows the path, such as "is missing".
    """


class StoreError(UnreadableFileError):
    """Raised when an object store cannot be reached, has no such bucket, or refuses this account.

    >>> respool.StoreError("s3://bucket/orders", "the bucket bucket does not exist").predicate
    'cannot be used: the bucket bucket does not exist'

    Attributes:
        is_permission: Whether the account is known and only lacks a permission: it may have others.
    """

    def __init__(self, path: str, problem: str, remedy: str = "", is_permission: bool = False) -> None:
        """Keep the fields."""
        super().__init__(path, problem, remedy)
        self.is_permission = is_permission
        self.args = (path, problem, remedy, is_permission)

    @property
    def predicate(self) -> str:
        """What is wrong, as a predicate that follows the path."""
        return f"cannot be used: {self.problem}"


class QueryError(RespoolError):
    """A streaming query failed while it ran.

    >>> str(respool.QueryError("The pipeline orders has failed."))
    'The pipeline orders has failed.'
    """


class ReprocessError(RespoolError):
    """A span cannot be computed again, or not now.

    >>> str(respool.ReprocessError("The archive visits_table has no events yet."))
    'The archive visits_table has no events yet.'
    """


class DiffError(RespoolError):
    """Two outputs cannot be compared.

    >>> str(respool.DiffError("A and B are both the topic totals."))
    'A and B are both the topic totals.'
    """


def _sentences(summary: str, remedy: str = "") -> str:
    return f"{summary}. {remedy}" if remedy else f"{summary}."
