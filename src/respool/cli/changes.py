"""Show a plan that brings a checkpoint in from elsewhere, ask, and carry it out: for restore, fork and promote."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from respool.cli.commands.checkpoint import held
from respool.cli.render.output import out_json, print_note, print_result, throttled
from respool.cli.resuming import confirm, facts, own
from respool.errors import ChangeRefusedError, UnfinishedChangeError
from respool.operations.savepoints import occupied, world_for
from respool.settings import Settings

if TYPE_CHECKING:
    from respool.checkpoint.journal.steps import Journal, Operation
    from respool.savepoint.copying import ProgressCallback
    from respool.savepoint.install import InstallSet
    from respool.savepoint.planning import InstallPlan
    from respool.savepoint.store import Savepoint
    from respool.storage.folder import FolderWriter

    Work = Callable[[Journal, InstallSet, FolderWriter, ProgressCallback], None]


@dataclass(frozen=True)
class Change:
    """A change of a checkpoint that a user asks for.

    Attributes:
        where: The checkpoint's folder or URL.
        path: The same as the user gave it.
        dry_run: Only show the plan.
        yes: Do not ask.
        json: Show it as JSON.
        tell: Takes what is shown otherwise.
        accept_foreign: Resume a change whose journal this installation did not write.
    """

    where: str
    path: str
    dry_run: bool = False
    yes: bool = False
    json: bool = False
    tell: Callable[[str], None] = print_result
    accept_foreign: bool = False

    def confirm(self, journal: "Journal") -> None:
        """Show a change that was cut off, and ask whether to finish it; raise CheckpointError when it is foreign."""
        confirm(
            journal,
            self.where,
            f"Finish this {journal.operation}?",
            dry_run=self.dry_run,
            yes=self.yes,
            json=self.json,
            accept_foreign=self.accept_foreign,
        )
        if not self.dry_run:
            print_note(f"The {journal.operation} was cut off; it is finished now.")


def show_confirm_apply(change: Change, plan: "InstallPlan", title: str, question: str, work: "Work") -> None:
    """Show a plan, ask, and carry it out; raise CheckpointError when it is refused."""
    from respool.cli.render import savepoint as text

    if not change.json:
        change.tell(title)
        for line in text.plan_lines(plan):
            change.tell(line)
    if plan.refusals:
        if change.json:
            out_json(text.plan_json(plan, done=False))
        raise ChangeRefusedError(plan.refusals)
    if not change.dry_run:
        if question and not change.yes:  # a fork changes nothing, and is not asked about
            typer.confirm(question, abort=True)
        _carry_out(change, plan, work)
    if change.json:
        out_json(text.plan_json(plan, done=not change.dry_run))
    elif not change.dry_run:
        way_back = "" if plan.journal.operation == "fork" else _way_back(change)
        change.tell(f"Batch {plan.batch:,} is the next to run.{way_back}")


def _carry_out(change: Change, plan: "InstallPlan", work: "Work") -> None:
    from respool.checkpoint.journal import history
    from respool.storage.open import new_writer

    files = new_writer(change.where)
    try:
        with held(change.where, change.path) as lease:
            tell = throttled("files copied")

            def told(done: int, total: int) -> None:
                lease.require()
                tell(done, total)

            work(plan.journal, plan.install_set, files, told)
    except BaseException:
        if plan.journal.operation == "fork" and history.pending(files) is None:  # nothing stays of it
            files.delete("_respool/lock")
            files.prune("")
        raise


def finish(change: Change, journal: "Journal", operation: "Operation", origin: str, words: str) -> None:
    """Finish a change that was cut off, if it is the one that is asked for again; raise CheckpointError if not.

    Args:
        change: What the user asks for.
        journal: What was cut off.
        operation: The kind of change that is asked for.
        origin: The location that it copies from.
        words: The same as the user gave it.
    """
    from respool.checkpoint.journal import apply
    from respool.checkpoint.planning.request import copy_identity, is_requested
    from respool.storage.open import open_writer

    if not is_requested(journal, copy_identity(operation, origin), words):
        raise UnfinishedChangeError(change.path, journal)
    change.confirm(journal)
    if not change.dry_run:
        with held(change.where, change.path):
            files = open_writer(change.where)
            apply.resume(own(journal, change.where, files), files)
    if change.json:
        out_json({**facts(journal, change.where), "done": not change.dry_run})
    elif not change.dry_run:
        print_result(f"Batch {journal.batch:,} is the next to run.{_way_back(change)}")


def make_fork(change: Change, found: "Savepoint", name: str, settings: Settings, allow_data_loss: bool = False) -> None:
    """Fork a savepoint into a new folder, or finish a fork of it that was cut off there.

    Args:
        change: Where to, and how.
        found: The savepoint.
        name: Its name as the user gave it.
        settings: Where Kafka is.
        allow_data_loss: Go on though the source has lost records.
    """
    from respool.checkpoint.journal import history
    from respool.checkpoint.planning.request import RewindRequest, ToBatch
    from respool.savepoint import install
    from respool.savepoint.fork import plan_fork
    from respool.savepoint.planning import savepoint_files

    files = require_free(change.where, change.path, found.location, name)
    cut_off = history.pending(files)
    if cut_off is not None:
        change.confirm(cut_off)
        if not change.dry_run:
            with held(change.where, change.path):
                cut_off = own(cut_off, change.where, files)
                brought = savepoint_files(found, change.where, cut_off.query_ids[-1])
                install.carry_out_fork(cut_off, brought, files, throttled("files copied"))
        if change.json:
            out_json({**facts(cut_off, change.where), "done": not change.dry_run})
        return
    request = RewindRequest(ToBatch(found.manifest.next_batch), allow_data_loss=allow_data_loss, words=name)
    world = world_for(found.manifest, None, change.where, settings, None, request)
    plan = plan_fork(found, change.where, request, world)
    show_confirm_apply(change, plan, f"Fork of the savepoint {name} to {change.where}", "", install.carry_out_fork)


def require_free(where: str, path: str, origin: str, name: str) -> "FolderWriter":
    """Return a folder that a fork can go to; raise CheckpointError when anything but the same fork is there.

    Args:
        where: The folder.
        path: The same as the user gave it.
        origin: The savepoint's location.
        name: The savepoint's name as the user gave it.
    """
    from respool.checkpoint.journal import history
    from respool.checkpoint.planning.request import copy_identity, is_requested
    from respool.locations import OWN
    from respool.savepoint.fork import require_new

    files, _ = occupied(where)
    cut_off = history.pending(files)
    if cut_off is None:
        require_new(where, [*files.names(""), *(one for one in files.folders("") if one != OWN)])
    elif not is_requested(cut_off, copy_identity("fork", origin), name):
        raise UnfinishedChangeError(path, cut_off)
    return files


def _way_back(change: Change) -> str:
    return f" Take this back with: respool checkpoint undo {change.path}"
