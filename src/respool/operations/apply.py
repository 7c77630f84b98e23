"""Apply a plan to its checkpoint: hold it, compare it with the plan, apply the journal."""

from collections.abc import Callable

from respool.checkpoint.journal import apply, history, installation
from respool.checkpoint.journal.steps import Journal, LogEnds
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import ChangeRefusedError, CheckpointChangedError, UnfinishedChangeError
from respool.locations import OWN
from respool.operations.context import OnNote, OnProgress, hold, note, sink_position
from respool.operations.plans import InstallPlan, Plan, Promotion, ResumePlan, RewindPlan, UndoPlan
from respool.savepoint import install
from respool.savepoint.create import SavepointRequest, create
from respool.savepoint.store import SavepointStore
from respool.settings import Settings
from respool.storage.folder import FolderWriter
from respool.storage.open import new_writer, open_writer

_SHOWN_FILES = 3


def apply_plan(
    plan: Plan,
    name: str,
    settings: Settings,
    *,
    accept_foreign_journal: bool = False,
    on_progress: OnProgress | None = None,
    on_note: OnNote | None = None,
) -> Journal:
    """Apply a plan and return its journal.

    Args:
        plan: The plan.
        name: The checkpoint as the user named it, for messages.
        settings: Where savepoints and Kafka are.
        accept_foreign_journal: Resume an interrupted change whose journal another installation wrote.
        on_progress: Called with how many files were copied, or steps done, of how many.
        on_note: Called with notes on what happens.

    Raises:
        ChangeRefusedError: The plan has reasons against it.
        CheckpointChangedError: The checkpoint has changed since the plan was made.
        CheckpointInUseError: Another process holds the checkpoint.
        ForeignJournalError: Another installation wrote the journal, and that is not accepted.
    """
    if plan.refusals:
        raise ChangeRefusedError(plan.refusals)
    if isinstance(plan, ResumePlan | UndoPlan):
        plan.require_accepted(accept_foreign_journal)
    files = new_writer(plan.location)
    held = False
    try:
        with hold(plan.location, name) as lease:
            held = True

            def report(done: int, total: int) -> None:
                lease.require()
                if on_progress is not None:
                    on_progress(done, total)

            _carry_out(plan, name, settings, files, report, on_note)
    except BaseException:
        if held and _is_new_fork(plan) and history.pending(files) is None:  # nothing of the fork stays
            files.delete(f"{OWN}/lock")
            files.prune("")
        raise
    return plan.journal


def _carry_out(
    plan: Plan, name: str, settings: Settings, files: FolderWriter, report: OnProgress, on_note: OnNote | None
) -> None:
    on_step = _counted(report, len(plan.journal.steps))
    match plan:
        case RewindPlan():
            _require_unchanged(plan, name, files)
            apply.apply(plan.journal, files, on_step)
        case InstallPlan(promotion=Promotion() as promotion):
            _require_unchanged(plan, name, files)
            _promote(plan, promotion, settings, files, report, on_note)
        case InstallPlan():
            _require_unchanged(plan, name, files)
            carry_out = install.carry_out_fork if plan.operation == "fork" else install.carry_out
            carry_out(plan.journal, plan.contents.install_set, files, report)
        case ResumePlan(install_set=None):
            apply.resume(_own_journal(plan, name, files), files, on_step)
        case ResumePlan(install_set=install_set):
            assert install_set is not None
            install.carry_out_fork(_own_journal(plan, name, files), install_set, files, report)
        case UndoPlan(interrupted=None):
            _require_unchanged(plan, name, files)
            apply.apply(plan.journal, files, on_step)
        case UndoPlan(interrupted=interrupted):
            assert interrupted is not None
            journal = _own_journal(interrupted, name, files)
            if journal.id == plan.journal.id:
                apply.resume(journal, files, on_step)
            else:
                apply.apply_undo(plan.journal, files, on_step)


def _promote(
    plan: InstallPlan,
    promotion: Promotion,
    settings: Settings,
    files: FolderWriter,
    report: OnProgress,
    on_note: OnNote | None,
) -> None:
    with hold(promotion.fork, promotion.fork_name):
        if promotion.keep_as is not None:
            reason = f"before {promotion.fork_name} was promoted"
            request = SavepointRequest(plan.location, promotion.keep_as, reason=reason)
            create(request, SavepointStore(settings.savepoint_store), sink_position(settings, promotion.sink))
            note(f"The old checkpoint is kept as the savepoint {promotion.keep_as}.", on_note)
        install.promote(plan.journal, plan.contents.install_set, files, open_writer(promotion.fork), report)


def _own_journal(plan: ResumePlan, name: str, files: FolderWriter) -> Journal:
    """Return the pending journal as one of this installation; raise CheckpointChangedError when it is another now."""
    pending = history.pending(files)
    if pending is None:
        was = f"the interrupted {plan.journal.operation} {plan.journal.id} was finished or undone"
        raise CheckpointChangedError(name, [was])
    if pending != plan.journal:
        raise UnfinishedChangeError(name, pending)
    return pending if installation.foreign(pending, plan.location) is None else apply.adopt(pending, files)


def _require_unchanged(plan: RewindPlan | InstallPlan | UndoPlan, name: str, files: FolderWriter) -> None:
    """Raise CheckpointChangedError unless the checkpoint is as it was planned from; it must be held."""
    pending = history.pending(files)
    if pending is not None:
        raise CheckpointChangedError(name, [f"the {pending.operation} {pending.id} was started and interrupted"])
    checkpoint = CheckpointSnapshot(files)
    changes = [*_log_changes(plan.journal.newest, checkpoint), *_missing_files(plan.journal, checkpoint)]
    if isinstance(plan, UndoPlan):
        changes += _history_changes(plan, files)
    if _is_new_fork(plan):
        names = sorted(path for folder in checkpoint.folders for path in (folder,) if path and path != OWN)
        names += sorted(checkpoint.folders[""])
        changes += [f"the folder is not empty any more: it holds {names[0]}"] if names else []
    if changes:
        raise CheckpointChangedError(name, changes)


def _log_changes(before: LogEnds, checkpoint: CheckpointSnapshot) -> list[str]:
    changes = []
    for log, then, batches in (
        ("planned", before.offsets, checkpoint.offsets),
        ("committed", before.commits, checkpoint.commits),
    ):
        now = batches[-1] if batches else -1
        if now != then:
            changes.append(f"its newest {log} batch is {_batch(now)}, not {_batch(then)}")
    return changes


def _missing_files(journal: Journal, checkpoint: CheckpointSnapshot) -> list[str]:
    """Return which files of the checkpoint a journal would move that no longer exist."""
    names = {folder: set(files) for folder, files in checkpoint.folders.items()}
    missing = []
    for move in journal.moves:
        folder, _, file = move.source.rpartition("/")
        if move.sink is None and not folder.startswith(f"{OWN}/") and file not in names.get(folder, ()):
            missing.append(move.source)
    if not missing:
        return []
    more = len(missing) - _SHOWN_FILES
    return [f"files are gone: {', '.join(missing[:_SHOWN_FILES])}" + (f" and {more:,} more" if more > 0 else "")]


def _history_changes(plan: UndoPlan, files: FolderWriter) -> list[str]:
    last = history.last_change(history.past(files))
    if last is None or last.id != plan.journal.of:
        return [f"{plan.journal.of} is not the last change any more"]
    return [f"what {last.id} moved aside was purged"] if last.purged is not None else []


def _is_new_fork(plan: Plan) -> bool:
    return isinstance(plan, InstallPlan) and plan.operation == "fork"


def _batch(number: int) -> str:
    return "none" if number < 0 else f"{number:,}"


def _counted(report: OnProgress, total: int) -> Callable[[int], None]:
    return lambda done: report(done, total)
