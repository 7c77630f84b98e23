"""The steps that change a checkpoint, as plain data, and the journal that holds them."""

from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from typing import Any, Literal, get_args

from typing_extensions import assert_never

from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError, DamagedFileError, UnknownFormatVersionError
from respool.identity import Identity, read_identity
from respool.untrusted import LONG, Fields, Malformed, parse_json

_VERSION = 2  # version 1, of earlier versions of respool, has no `asked`


@dataclass(frozen=True)
class Move:
    """Move a file.

    Attributes:
        source: Its path.
        target: Its new path.
        size: Its size in bytes.
        sink: The folder of a file sink that both paths are in; None for the checkpoint itself.
    """

    source: str
    target: str
    size: int
    sink: str | None = None


@dataclass(frozen=True)
class Replace:
    """Rewrite a small file: `old` is its text before, `new` its text after; None means that there is no file."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Prune:
    """Delete empty folders: Spark treats a `state` folder that has subfolders as in use."""

    folder: str


@dataclass(frozen=True)
class Restore:
    """Restore a Delta table to the version of an earlier batch; `back` undoes that."""

    table: RestoreTable
    back: bool = False


Step = Move | Replace | Prune | Restore


Operation = Literal["rewind", "restore", "fork", "promote", "undo"]


@dataclass(frozen=True)
class LogEnds:
    """The newest batch in each log after a change, -1 for an empty log: a newer batch means that the query has run."""

    offsets: int
    commits: int


@dataclass(frozen=True)
class Origin:
    """Who wrote a journal, and for which checkpoint.

    Attributes:
        host: The name of the machine.
        user: The name of the account.
        location: The absolute path or URL of the checkpoint.
        seal: A keyed digest of the journal, made with the key of the installation; see `installation.py`.
    """

    host: str
    user: str
    location: str
    seal: str


@dataclass(frozen=True)
class Journal:
    """A change of a checkpoint, or an undo: pending from before its first step, in the history after the last step.

    >>> journal = checkpoint.rewind(last=2, reason="a bad deploy")
    >>> journal.operation, journal.batch, journal.reason
    ('rewind', 12, 'a bad deploy')

    Attributes:
        id: Its name, also of the folder of files that it moved aside.
        operation: The kind of change.
        of: The id of the change that is undone; None for other operations.
        request: The request as command-line text, for messages: the options of a rewind; for other changes the location
            that files are copied from.
        reason: The user's reason.
        started: The time at which it started.
        batch: The batch that runs next.
        same_range: Whether that batch reads the same records again.
        newest: The newest batch in each log before.
        left: The newest batch in each log after.
        steps: The steps, in order.
        query_ids: All ids that the query had before, the newest last.
        undone: The time at which it was undone.
        purged: The time at which the files that it moved aside were deleted.
        asked: The identity of the request, which identifies an interrupted change when it is requested again; None for
            an undo, and in a journal of version 1. See `request.is_requested`.
        origin: Who wrote it; None in a plan, and in a journal of a version of respool that did not record it.
    """

    id: str
    operation: Operation
    of: str | None
    request: str
    reason: str | None
    started: datetime
    batch: int
    same_range: bool
    newest: LogEnds
    left: LogEnds
    steps: tuple[Step, ...]
    query_ids: tuple[str, ...] = ()
    undone: datetime | None = None
    purged: datetime | None = None
    asked: Identity | None = None
    origin: Origin | None = field(default=None, compare=False)  # two journals are equal when they make the same change

    def __repr__(self) -> str:
        """Return the change in one line."""
        return f"Journal({self.id!r}, {self.operation!r}, batch={self.batch})"

    @property
    def moves(self) -> list[Move]:
        """Its moves of files of the checkpoint and of a file sink."""
        return [step for step in self.steps if isinstance(step, Move)]

    def command(self, path: str) -> str:
        """Return the interrupted command, which finishes the change."""
        match self.operation:
            case "rewind":
                return f"respool checkpoint rewind {path} {self.request}"
            case "undo":
                return f"respool checkpoint undo {path}"
            case "promote":
                return f"respool promote {self.request} {path}"
            case "restore" | "fork":
                return f"respool savepoint {self.operation} {self.request} {path}"
            case _:
                assert_never(self.operation)

    def way_out(self, path: str) -> str:
        """Return how to finish or undo it after an interruption."""
        way_back = {
            "undo": "",
            "fork": ", or delete the folder, which holds only the fork",
        }.get(self.operation, f", or undo it with: respool checkpoint undo {path}")
        return f"Finish it with: {self.command(path)}{way_back}"

    def interruption(self, path: str) -> str:
        """Return the message about an interrupted change."""
        return (
            f"A {self.operation} of the checkpoint {path} was interrupted; the query cannot start until it is finished "
            f"or undone. {self.way_out(path)}."
        )

    @property
    def fence(self) -> str:
        """The file that keeps Spark from starting while the steps run.

        It is newer than any batch, and not a batch: a query that starts refuses it, and a running query stops at it.
        """
        return f"offsets/{max(self.newest.offsets, self.left.offsets) + 1}"


def backwards(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps that undo these steps, in order."""
    return tuple(_back(step) for step in reversed(steps))


def _back(step: Step) -> Step:
    match step:
        case Move():
            return replace(step, source=step.target, target=step.source)
        case Replace():
            return Replace(step.path, step.new, step.old)
        case Prune():
            return step  # folders are created again with their files
        case Restore():
            return replace(step, back=not step.back)
        case _:
            assert_never(step)


def to_json(journal: Journal) -> dict[str, Any]:
    """Return a journal as JSON; raise CheckpointError when it could not be read again, such as for odd file names."""
    facts = asdict(journal)
    for name in ("started", "undone", "purged"):
        value = facts[name]
        facts[name] = value.isoformat() if value else None
    facts["steps"] = [{"step": type(step).__name__, **asdict(step)} for step in journal.steps]
    written = {"version": _VERSION, **facts, "query_ids": list(journal.query_ids)}
    try:
        _journal(Fields(written, "the journal"))
    except Malformed as error:
        raise CheckpointError(
            f"The {journal.operation} cannot be recorded: {error}. Rename or remove that file, and run this again. "
            "Nothing was changed."
        ) from error
    return written


def from_json(where: str, data: bytes) -> Journal:
    """Return a journal from the bytes of its file; `where` is for messages.

    Every path in it is relative and cannot lead out of its folder, and its id is a single file name.
    """
    try:
        facts = Fields(parse_json(data))
        version = facts.whole("version")
        if version not in (1, _VERSION):
            remedy = "Use a newer respool. Nothing was changed."
            raise UnknownFormatVersionError(where, str(version), [str(_VERSION)], remedy)
        return _journal(facts)
    except Malformed as error:
        raise damaged(where, str(error)) from error


def damaged(path: str, problem: str) -> DamagedFileError:
    """Return the error about a journal that cannot be used."""
    return DamagedFileError(path, problem, "Ask for help before you change this checkpoint. Nothing was changed.")


def _journal(facts: Fields) -> Journal:
    facts.require_known({"version", *(entry.name for entry in fields(Journal))})
    return Journal(
        id=facts.file_name("id"),
        operation=facts.choice("operation", get_args(Operation)),
        of=facts.optional_file_name("of"),
        request=facts.line("request"),
        reason=facts.optional_text("reason"),
        started=facts.time("started"),
        batch=facts.whole("batch", least=-1),
        same_range=facts.flag("same_range"),
        newest=_left(facts.nested("newest")),
        left=_left(facts.nested("left")),
        steps=facts.objects("steps", _step),
        query_ids=facts.lines("query_ids"),
        undone=facts.optional_time("undone"),
        purged=facts.optional_time("purged"),
        asked=read_identity(facts.nested("asked")) if "asked" in facts else None,
        origin=_origin(facts.nested("origin")) if "origin" in facts else None,
    )


def _origin(facts: Fields) -> Origin:
    return Origin(facts.line("host"), facts.line("user"), facts.line("location"), facts.line("seal"))


def _left(facts: Fields) -> LogEnds:
    return LogEnds(facts.whole("offsets", least=-1, most=LONG - 1), facts.whole("commits", least=-1, most=LONG - 1))


def _step(facts: Fields) -> Step:
    match facts.text("step"):
        case "Move":
            return Move(facts.path("source"), facts.path("target"), facts.whole("size"), facts.optional_line("sink"))
        case "Replace":
            return Replace(facts.path("path"), facts.optional_text("old"), facts.optional_text("new"))
        case "Prune":
            return Prune(facts.path("folder"))
        case "Restore":
            return Restore(_table(facts.nested("table")), facts.flag("back"))
        case other:
            raise Malformed(f"it has an unknown step {other!r:.60}")


def _table(facts: Fields) -> RestoreTable:
    return RestoreTable(
        table=facts.line("table"),
        from_version=facts.whole("from_version"),
        to_version=facts.optional_whole("to_version"),
        app_id=facts.line("app_id"),
        from_batch=facts.optional_whole("from_batch", least=-1),
        to_batch=facts.whole("to_batch", least=-1),
    )


def journal_id(now: datetime, batch: int) -> str:
    """Return the id of a change: its time and its target batch."""
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S.%fZ}-{batch}"
