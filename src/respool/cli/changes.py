"""Show a plan, ask for confirmation, and apply it: the only place where a command changes a checkpoint."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from respool.cli.options import require_answer
from respool.cli.render.output import out_json, print_note, print_result, throttled, width
from respool.errors import ChangeRefusedError

if TYPE_CHECKING:
    from respool.operations.checkpoint import Checkpoint
    from respool.operations.plans import Plan

_QUESTIONS = {"rewind": "Rewind?", "restore": "Restore?", "promote": "Promote?", "undo": "Undo?"}


@dataclass(frozen=True)
class Confirmation:
    """How a user confirms a change.

    Attributes:
        dry_run: Only show the plan.
        yes: Do not ask for confirmation.
        json: Print JSON in place of text.
        accept_foreign_journal: Resume a change whose journal another installation wrote.
    """

    dry_run: bool = False
    yes: bool = False
    json: bool = False
    accept_foreign_journal: bool = False


def show_confirm_apply(
    checkpoint: "Checkpoint", plan: "Plan", confirmation: Confirmation, *, files_too: bool = False
) -> None:
    """Show a plan, ask, and apply it.

    Args:
        checkpoint: The checkpoint.
        plan: A plan of it.
        confirmation: Whether to ask, apply, and print JSON.
        files_too: List every file that a rewind moves.

    Raises:
        ChangeRefusedError: The plan has reasons against it, which are printed.
        ForeignJournalError: Another installation wrote the journal, and that is not accepted.
    """
    from respool.operations.plans import ResumePlan, RewindPlan, UndoPlan

    _show(plan, confirmation.json, files_too)
    if plan.refusals:
        if confirmation.json:
            out_json(plan.to_json())
        raise ChangeRefusedError(plan.refusals)
    if not confirmation.dry_run:
        if isinstance(plan, ResumePlan | UndoPlan):
            plan.require_accepted(confirmation.accept_foreign_journal)
        _confirm(plan, confirmation)
        steps = isinstance(plan, RewindPlan | UndoPlan) or plan.journal.operation == "rewind"
        checkpoint.apply(
            plan,
            accept_foreign_journal=confirmation.accept_foreign_journal,
            on_progress=throttled("steps done" if steps else "files copied"),
            on_note=print_note,
        )
    if confirmation.json:
        out_json(plan.to_json(done=not confirmation.dry_run))
    elif not confirmation.dry_run:
        print_result(_outcome(plan, checkpoint.name))


def _show(plan: "Plan", json: bool, files_too: bool) -> None:
    """Print a plan: an interrupted change to standard error, where it also belongs before JSON."""
    from respool.operations.plans import ResumePlan, RewindPlan, UndoPlan

    interrupted = plan.interrupted if isinstance(plan, UndoPlan) else plan if isinstance(plan, ResumePlan) else None
    if json:
        if isinstance(plan, ResumePlan | UndoPlan):
            for note in plan.notes:
                print_note(f"warning: {note}")
        return
    if isinstance(plan, UndoPlan):
        print_result(plan.title)
        for note in () if interrupted else plan.notes:
            print_note(f"warning: {note}")
    if interrupted is not None:
        print_note(interrupted.text())
    elif isinstance(plan, RewindPlan):
        print_result(plan.text(width=width(), files=files_too))
    elif not isinstance(plan, UndoPlan):
        print_result(plan.text(width=width()))


def _confirm(plan: "Plan", confirmation: Confirmation) -> None:
    from respool.operations.plans import ResumePlan

    operation = plan.journal.operation
    resumed = isinstance(plan, ResumePlan)
    question = f"Finish this {operation}?" if resumed else _QUESTIONS.get(operation)
    if question is not None and not confirmation.yes:  # a new fork changes nothing, and needs no confirmation
        require_answer(confirmation.json, confirmation.yes, confirmation.dry_run)
        typer.confirm(question, abort=True)
    if resumed:
        print_note(f"The {operation} was interrupted; it is finished now.")


def _outcome(plan: "Plan", name: str) -> str:
    text = f"Batch {plan.batch:,} is the next to run"
    match plan.journal.operation:
        case "undo":
            return f"{text}, as before."
        case "fork":
            return f"{text}."
        case _:
            return f"{text}. Undo it with: respool checkpoint undo {name}"
