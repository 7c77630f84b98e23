"""The steps that change a checkpoint, as plain data, and the journal that holds them."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from typing_extensions import assert_never

from respool.checkpoint.sink import RestoreTable
from respool.errors import CheckpointError


@dataclass(frozen=True)
class Move:
    """Move a file.

    Attributes:
        source: Where it is.
        target: Where it goes.
        size: Its size in bytes.
        sink: The folder of a file sink that both paths are in; None for the checkpoint itself.
    """

    source: str
    target: str
    size: int
    sink: str | None = None


@dataclass(frozen=True)
class Replace:
    """Write a small file anew: `old` is its text before, `new` after; None where there is no file."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Prune:
    """Delete empty folders: Spark takes a `state` with folders in it for one that is in use."""

    folder: str


@dataclass(frozen=True)
class Restore:
    """Put a Delta table back to the version of an earlier batch; `back` takes that back."""

    table: RestoreTable
    back: bool = False


Step = Move | Replace | Prune | Restore


Operation = Literal["rewind", "restore", "fork", "promote", "undo"]


@dataclass(frozen=True)
class Left:
    """The newest batch in each log once a rewind is done, -1 for none: more means that the query has run since."""

    offsets: int
    commits: int


@dataclass(frozen=True)
class Journal:
    """A change of a checkpoint, or the undoing of one: written down before its first step, history after the last.

    Attributes:
        id: Its name; what is moved aside lies in a folder of that name.
        operation: What it is.
        of: The change that is undone.
        request: What was asked for, in the words of the command line: for a rewind its options, for what comes from
            elsewhere the place that it comes from.
        reason: Why, in the user's words.
        started: When.
        batch: The batch that is to run next.
        same_range: Whether that batch reads the very records that it had.
        newest: The newest batch in each log before.
        left: The newest batch in each log after.
        steps: What is done, in order.
        query_ids: All ids that the query had until then, the newest last.
        undone: When it was undone.
        purged: When what it moved aside was deleted.
    """

    id: str
    operation: Operation
    of: str | None
    request: str
    reason: str | None
    started: datetime
    batch: int
    same_range: bool
    newest: Left
    left: Left
    steps: tuple[Step, ...]
    query_ids: tuple[str, ...] = ()
    undone: datetime | None = None
    purged: datetime | None = None

    @property
    def moves(self) -> list[Move]:
        """Its moves of files of the checkpoint and of a file sink."""
        return [step for step in self.steps if isinstance(step, Move)]

    def command(self, path: str) -> str:
        """Return the command that was cut off, by which it is finished."""
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
        """Return what to do about it when it was cut off."""
        way_back = {
            "undo": "",
            "fork": ", or delete the folder: nothing but the fork is in it",
        }.get(self.operation, f", or take it back with: respool checkpoint undo {path}")
        return f"Finish it with: {self.command(path)}{way_back}"

    def cut_off(self, path: str) -> str:
        """Return what to tell of it when it was cut off."""
        return (
            f"A {self.operation} of the checkpoint {path} was cut off; the query cannot start until that is settled. "
            f"{self.way_out(path)}."
        )

    @property
    def fence(self) -> str:
        """The file that keeps Spark from starting while the steps run.

        It is newer than any batch, and no batch: a query that starts refuses it, and one that runs stops at it.
        """
        return f"offsets/{max(self.newest.offsets, self.left.offsets) + 1}"


def backwards(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps that take these back, in their order."""
    return tuple(_back(step) for step in reversed(steps))


def _back(step: Step) -> Step:
    match step:
        case Move():
            return replace(step, source=step.target, target=step.source)
        case Replace():
            return Replace(step.path, step.new, step.old)
        case Prune():
            return step  # folders come back with their files
        case Restore():
            return replace(step, back=not step.back)
        case _:
            assert_never(step)


def to_json(journal: Journal) -> dict[str, Any]:
    """Return a journal as JSON."""
    facts = asdict(journal)
    for name in ("started", "undone", "purged"):
        value = facts[name]
        facts[name] = value.isoformat() if value else None
    facts["steps"] = [{"step": type(step).__name__, **asdict(step)} for step in journal.steps]
    return {"version": 1, **facts}


def from_json(where: str, facts: dict[str, Any]) -> Journal:
    """Return a journal from JSON; `where` is for messages."""
    if facts.get("version") != 1:
        raise CheckpointError(f"{where} is of version {facts.get('version')}; this respool knows 1. Use a newer one.")
    try:
        found = {name: value for name, value in facts.items() if name != "version"}
        for name in ("started", "undone", "purged"):
            found[name] = datetime.fromisoformat(found[name]) if found[name] else None
        found["newest"], found["left"] = Left(**found["newest"]), Left(**found["left"])
        found["steps"] = tuple(_step(one) for one in found["steps"])
        found["query_ids"] = tuple(found["query_ids"])
        return Journal(**found)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{where} is damaged: {error}. Ask for help before you change this checkpoint."
        ) from error


def _step(facts: dict[str, Any]) -> Step:
    values = {name: value for name, value in facts.items() if name != "step"}
    match facts["step"]:
        case "Move":
            return Move(**values)
        case "Replace":
            return Replace(**values)
        case "Prune":
            return Prune(**values)
        case "Restore":
            return Restore(RestoreTable(**values["table"]), values["back"])
        case other:
            raise ValueError(f"an unknown step {other}")
