"""Apply a journal: the only code that changes a checkpoint.

1. The journal is written to `_respool/pending.json`, sealed by this installation.
2. A fence is created after the newest batch: a file that is not a batch, so that Spark does not start in the meantime.
3. The steps are applied. Each is idempotent: a step that is already done is skipped.
4. The journal is written to the history.
5. The fence is deleted, then `pending.json`.

Each of these is on the disk before the next starts, and in 3 each group of moves before the next group: a power cut
cannot leave a later step done without an earlier step.

Wherever it is interrupted, the checkpoint is unchanged (before 2), or Spark refuses to start from it until the same
command has finished the change or `undo` has undone it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby

from typing_extensions import assert_never

from respool.checkpoint.journal import history, installation
from respool.checkpoint.journal.steps import Journal, Move, Prune, Replace, Restore, Step
from respool.delta import restore
from respool.errors import CheckpointError
from respool.format import layout
from respool.locations import OWN
from respool.storage.folder import FolderReader, FolderWriter
from respool.storage.open import open_writer

# Files of earlier versions start with this text, too.
FENCE = b"respool is changing this checkpoint, or was cut off while it did. Run its command again to finish."


def apply(journal: Journal, files: FolderWriter, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Apply a planned journal; raise CheckpointError when the checkpoint has changed since the plan.

    Args:
        journal: The change.
        files: The checkpoint.
        on_step: Called with the number of steps done.
    """
    finish(_write(journal, files), files, on_step)


def begin(journal: Journal, files: FolderWriter) -> Journal:
    """Write a journal and create its fence, for `finish` to apply it later; return the journal as written."""
    journal = _write(journal, files)
    _fence(journal, files)
    return journal


def resume(journal: Journal, files: FolderWriter, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Finish a journal that another process started, from where it was interrupted."""
    files.sync(everything=True)  # that process may have been killed before its last sync
    finish(journal, files, on_step)


def finish(journal: Journal, files: FolderWriter, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Apply the remaining steps of a pending journal that is on the disk, as are its applied steps."""
    if not _exists(files, history.path_of(journal)):
        _fence(journal, files)
        _do_all(journal.steps, files, on_step)
        files.sync()
        _write_history(journal, files)
    clear_staged(journal.of or journal.id, files)
    if _is_fence(files, journal.fence):
        files.delete(journal.fence)
        files.sync()
    files.delete(history.PENDING)
    files.sync()


def apply_undo(undo: Journal, files: FolderWriter, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Undo an interrupted change: the undo replaces it as the pending journal."""
    files.sync(everything=True)
    finish(adopt(undo, files), files, on_step)


def adopt(journal: Journal, files: FolderWriter) -> Journal:
    """Replace the pending journal, signed by this installation; return the signed journal."""
    journal = installation.sign(journal, files.root)
    files.replace(history.PENDING, history.text_of(journal))
    files.sync()
    return journal


def purge(journal: Journal, files: FolderWriter, now: datetime) -> None:
    """Delete what a finished journal moved to `_respool/aside/`; afterwards it cannot be undone.

    Files of a file sink are deleted only if this installation wrote the journal: another could name any folder.
    """
    files.replace(history.path_of(journal), history.text_of(replace(journal, purged=now)))
    files.sync()
    own = installation.foreign(journal, files.root) is None
    folder = f"{history.ASIDE}/{journal.id}"
    aside = [move for move in journal.moves if move.target.startswith(f"{folder}/")]  # other moves copied files in
    files.delete_many([move.target for move in aside if move.sink is None])
    sinks: dict[str, FolderWriter] = {}
    for place in sorted({move.sink for move in aside if move.sink is not None}) if own else ():
        sinks[place] = open_writer(place)
        sinks[place].delete_many([move.target for move in aside if move.sink == place])
    for writer in (files, *sinks.values()):
        writer.prune(folder)
        writer.sync()


@dataclass(frozen=True)
class Leftover:
    """Files that an interrupted operation left in `_respool/` and that nothing refers to.

    Attributes:
        path: A staged folder, which may be empty, or a file or link in its place, or a temporary file.
        paths: The files in the folder; the file itself.
        size: Their size in bytes.
    """

    path: str
    paths: tuple[str, ...]
    size: int

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.paths)

    def facts(self) -> dict[str, str | int]:
        """Return it as `--json` prints it."""
        return {"path": self.path, "files": self.files, "size": self.size}


def leftovers(files: FolderReader, but: str | None = None) -> list[Leftover]:
    """Return the files that interrupted operations left: staged copies without a pending journal, and temporary files.

    The caller must hold the checkpoint or know that no change is in progress.

    Args:
        files: The checkpoint.
        but: The id of a journal that is about to start, whose copies are staged.
    """
    interrupted = history.pending(files)
    used = {but, *((interrupted.id, interrupted.of) if interrupted is not None else ())}
    unused = [f"{history.STAGED}/{name}" for name in files.folders(history.STAGED) if name not in used]
    paths = {path: files.below(path) for path in unused}
    paths |= {path: [path] for path in (f"{history.STAGED}/{name}" for name in files.names(history.STAGED))}
    for folder in ("", "offsets", OWN, history.FOLDER):
        paths |= {path: [path] for path in files.temporary(folder)}
    facts = files.facts([path for inside in paths.values() for path in inside])
    return [
        Leftover(path, tuple(inside), sum(facts[file].size for file in inside if file in facts))
        for path, inside in sorted(paths.items())
    ]


def clear_leftovers(files: FolderWriter, but: str | None = None) -> list[Leftover]:
    """Delete the files that interrupted operations left, and return them; the caller must hold the checkpoint."""
    cleared = leftovers(files, but)
    for leftover in cleared:
        files.delete_many(leftover.paths)
        files.prune(leftover.path)
    return cleared


def clear_staged(name: str, files: FolderWriter) -> None:
    """Delete the staged copies of a change that were not moved in."""
    folder = f"{history.STAGED}/{name}"
    files.delete_many(files.below(folder))
    files.prune(history.STAGED)


def started_steps(steps: Sequence[Step], files: FolderReader) -> tuple[Step, ...]:
    """Return the steps of an interrupted change without the groups of moves that certainly had not started.

    Files are moved in after all existing files were moved aside. To undo a move that was not done would mistake the
    existing file for the file that was moved in.
    """
    groups = _groups(steps)
    moves = [at for at, group in enumerate(groups) if isinstance(group[0], Move)]
    for at in moves[1:]:
        if not _any_done(groups[at], files):
            return tuple(step for group in groups[:at] for step in group)
    return tuple(steps)


def _write(journal: Journal, files: FolderWriter) -> Journal:
    journal = installation.sign(journal, files.root)
    try:
        files.create(history.PENDING, history.text_of(journal))
    except FileExistsError as error:
        raise CheckpointError(
            "Another change to this checkpoint is in progress or was interrupted. Run `respool checkpoint show` and "
            "try again."
        ) from error
    files.sync()
    clear_leftovers(files, but=journal.id)
    return journal


def _fence(journal: Journal, files: FolderWriter) -> None:
    """Create the fence, unless the query has written a batch since the plan was made."""
    try:
        files.create(journal.fence, _fence_text(journal.id))
    except FileExistsError:
        if not _is_fence(files, journal.fence):
            raise _running_error(journal, files) from None
        # An undo takes over the fence of its change; earlier versions of respool recorded no change in it.
        own = (FENCE, _fence_text(journal.id), _fence_text(journal.of or journal.id))
        if files.read(journal.fence) not in own:
            raise _other_fence_error(journal, files) from None
    else:
        # A running batch can have finished since the plan was made.
        offsets, commits = layout.batches(files.names("offsets")), layout.batches(files.names("commits"))
        grown = offsets[-2:-1] > (journal.newest.offsets,) or commits[-1:] > (journal.newest.commits,)
        if grown and not _has_started(journal, files):
            files.delete(journal.fence)
            raise _running_error(journal, files)
    files.sync()


def _running_error(journal: Journal, files: FolderWriter) -> CheckpointError:
    if _has_started(journal, files):
        return CheckpointError(
            f"{journal.fence} is a batch, though the {journal.operation} of {journal.id} was interrupted: "
            f"its fence was deleted and the query was started. Compare {history.PENDING} with the checkpoint by hand."
        )
    files.delete(history.PENDING)
    return CheckpointError(
        "The query has written a batch since the plan was made: it runs, or has run. Nothing was changed. "
        "Stop the query, and run this again."
    )


def _other_fence_error(journal: Journal, files: FolderWriter) -> CheckpointError:
    pending = history.pending(files)
    if pending is not None and pending.id == journal.id and not _has_started(journal, files):
        files.delete(history.PENDING)
    return CheckpointError(
        f"{journal.fence} is the fence of another change of this checkpoint; no file or that of {journal.id} was "
        "expected. Wait until the other command has ended. If no command runs, delete that file. Nothing was changed."
    )


def _has_started(journal: Journal, files: FolderWriter) -> bool:
    return any(move.sink is None and _exists(files, move.target) for move in journal.moves[:1])


def _is_fence(files: FolderWriter, path: str) -> bool:
    try:
        return files.read(path).startswith(FENCE)
    except FileNotFoundError:
        return False


def _fence_text(change: str) -> bytes:
    """Return the content of a fence; it names the change, so that two processes never write the same content."""
    return FENCE + f"\nchange: {change}".encode()


def _exists(files: FolderWriter, path: str) -> bool:
    return bool(files.facts([path]))


def _do_all(steps: Sequence[Step], files: FolderWriter, on_step: Callable[[int], None]) -> None:
    """Apply the steps in order; consecutive moves run in parallel where the store supports it.

    On resume, skip every group of steps before the last group of moves that had started: the files that those steps
    moved away can have been replaced since. So each group is on the disk before the next group starts.
    """
    groups = _groups(steps)
    moves = [at for at, group in enumerate(groups) if isinstance(group[0], Move)]
    start = next((at for at in reversed(moves[1:]) if _any_done(groups[at], files)), 0)
    done = sum(len(group) for group in groups[:start])
    sinks: dict[str, FolderWriter] = {}
    with ThreadPoolExecutor(files.at_once) as pool:
        for group in groups[start:]:
            run = pool.map if isinstance(group[0], Move) and files.at_once > 1 else map
            sinks |= {place: open_writer(place) for place in _sinks(group) if place not in sinks}
            for _ in run(partial(_do, files=files, sinks=sinks), group):
                done += 1
                on_step(done)
            for place in (files, *sinks.values()):
                place.sync()


def _groups(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps in groups: consecutive moves in one list."""
    return [list(group) for _, group in groupby(steps, key=lambda step: isinstance(step, Move))]


def _sinks(steps: Iterable[Step]) -> set[str]:
    return {step.sink for step in steps if isinstance(step, Move) and step.sink is not None}


def _any_done(moves: Sequence[Step], files: FolderReader) -> bool:
    sources = [step.source for step in moves if isinstance(step, Move) and step.sink is None]
    return len(files.facts(sources)) < len(sources)


def _do(step: Step, files: FolderWriter, sinks: Mapping[str, FolderWriter]) -> None:
    match step:
        case Move():
            (files if step.sink is None else sinks[step.sink]).move(step.source, step.target)
        case Replace():
            _replace(step, files)
        case Prune():
            files.prune(step.folder)
        case Restore():
            (restore.undo_restore if step.back else restore.run_restore)(step.table)
        case _:
            assert_never(step)


def _replace(step: Replace, files: FolderWriter) -> None:
    # Hadoop's checksum of the old text would not match the new text.
    files.delete(layout.hidden_checksum(step.path))
    if step.new is None:
        files.delete(step.path)
    else:
        files.replace(step.path, step.new.encode())


def _write_history(journal: Journal, files: FolderWriter) -> None:
    if journal.operation == "undo":
        done = next((change for change in history.past(files) if change.id == journal.of), None)
        if done is not None:
            files.replace(history.path_of(done), history.text_of(replace(done, undone=journal.started)))
            files.sync()  # once the undo is in the history, nothing would repeat this
    files.replace(history.path_of(journal), history.text_of(journal))
    files.sync()
