"""Show an interrupted change step by step, and ask before it is resumed or undone: the only way to either."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.options import require_answer
from respool.cli.render.output import print_note, size
from respool.errors import CheckpointError

if TYPE_CHECKING:
    from respool.checkpoint.journal.steps import Journal, Move, Step
    from respool.storage.folder import FolderWriter

AcceptForeign = Annotated[
    bool,
    typer.Option(
        "--accept-foreign-journal",
        help="Carry out a journal in the checkpoint that this installation did not write: by another host or user, or "
        "for another folder that this one is a copy of. You have read its steps, and trust who wrote them.",
    ),
]

_SHOWN = 5  # steps of each kind; --json has all


def confirm(
    journal: "Journal",
    where: str,
    question: str,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
    accept_foreign: bool,
) -> None:
    """Show a pending journal, and ask whether to resume it.

    Args:
        journal: What is pending.
        where: The checkpoint's folder or URL.
        question: What to ask.
        dry_run: Only show it.
        yes: Do not ask.
        json: Show nothing: `facts` are printed at the end.
        accept_foreign: Accept a journal that this installation did not write.

    Raises:
        CheckpointError: This installation did not write it, and that is not accepted.
    """
    from respool.checkpoint.journal import installation

    if not json:
        for line in _lines(journal, where):
            print_note(line)
    why = installation.foreign(journal, where)
    if why is not None:
        print_note(f"warning: This installation did not write the journal of this {journal.operation}: {why}.")
    if dry_run:
        return
    if why is not None and not accept_foreign:
        raise CheckpointError(
            f"The journal in {where}/_respool was not written by this installation: {why}. Its steps could do harm. "
            "Read them (--dry-run, or --dry-run --json for all). If you trust who wrote them, run this again with "
            "--accept-foreign-journal. Nothing was changed."
        )
    if not yes:
        require_answer(json, yes, dry_run)
        typer.confirm(question, abort=True)


def own(journal: "Journal", where: str, files: "FolderWriter") -> "Journal":
    """Return a pending journal that was confirmed as one of this installation; the checkpoint must be held."""
    from respool.checkpoint.journal import apply, installation

    return journal if installation.foreign(journal, where) is None else apply.adopt(journal, files)


def require_trusted(journal: "Journal", where: str, accept_foreign: bool) -> None:
    """Warn when a finished change that is to be undone was not made by this installation.

    Raises:
        CheckpointError: Its undoing also changes a sink, which any journal could name, and that is not accepted.
    """
    from respool.checkpoint.journal import installation
    from respool.checkpoint.journal.steps import Move, Restore

    why = installation.foreign(journal, where)
    if why is None:
        return
    print_note(f"warning: This installation did not make the {journal.operation} {journal.id}: {why}.")
    places = {step.sink for step in journal.steps if isinstance(step, Move) and step.sink is not None}
    places |= {step.table.table for step in journal.steps if isinstance(step, Restore)}
    if places and not accept_foreign:
        raise CheckpointError(
            f"The journal of the {journal.operation} {journal.id} was not written by this installation: {why}. Its "
            f"undoing would change {', '.join(map(ascii, sorted(places)))}, too. If that is right, run this again "
            "with --accept-foreign-journal. Nothing was changed."
        )


def facts(journal: "Journal", where: str) -> dict[str, Any]:
    """Return a journal with all its steps, and whether it is foreign, for programs."""
    from respool.checkpoint.journal import installation
    from respool.cli.render import checkpoint as text

    origin = journal.origin
    return {
        **text.journal_json(journal),
        "host": origin.host if origin else None,
        "user": origin.user if origin else None,
        "location": origin.location if origin else None,
        "foreign": installation.foreign(journal, where),
        "steps": [{"step": type(step).__name__, **asdict(step)} for step in journal.steps],
    }


def _lines(journal: "Journal", where: str) -> Iterator[str]:
    origin = journal.origin
    by = f" by {_shown(origin.user)} on {_shown(origin.host)}" if origin else ""
    yield (
        f"The {journal.operation} {_shown(journal.id)} of {where}, started "
        f"{journal.started:%Y-%m-%d %H:%M:%S %Z}{by}, was cut off. Its steps:"
    )
    kinds: dict[str, list[Step]] = {}
    for step in journal.steps:
        kinds.setdefault(_kind(step), []).append(step)
    for kind, steps in kinds.items():
        total = sum(getattr(step, "size", 0) for step in steps)
        yield f"  {kind}: {len(steps):,}" + (f", {size(total)}" if total else "")
        yield from (f"    {_shown(_text(step))}" for step in steps[:_SHOWN])
        if len(steps) > _SHOWN:
            yield f"    … and {len(steps) - _SHOWN:,} more"


def _kind(step: "Step") -> str:
    from respool.checkpoint.journal.steps import Move, Prune, Replace

    match step:
        case Move(sink=None):
            return f"move {_direction(step)}"
        case Move(sink=sink):
            return f"move in the sink's folder {_shown(str(sink))}, {_direction(step)}"
        case Replace():
            return "write anew"
        case Prune():
            return "delete empty folders in"
        case _:
            return "restore the Delta table"


def _direction(move: "Move") -> str:
    from respool.checkpoint.journal import history

    for folder in (history.ASIDE, history.STAGED):
        if move.target.startswith(f"{folder}/"):
            return f"to {folder}"
        if move.source.startswith(f"{folder}/"):
            return f"from {folder}"
    return "inside the checkpoint"


def _text(step: "Step") -> str:
    from respool.checkpoint.journal.steps import Move, Prune, Replace

    match step:
        case Move(source=source, target=target):
            return f"{source} → {target}"
        case Replace(path=path):
            return path
        case Prune(folder=folder):
            return folder
        case _:
            return str(step.table.table)


def _shown(text: str) -> str:
    """Return a text of a file as a terminal can take it."""
    return text if text.isprintable() else ascii(text)
