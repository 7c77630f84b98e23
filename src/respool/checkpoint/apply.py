"""Carry a journal out: the only code that changes a checkpoint.

1. The journal is written to `_respool/pending.json`.
2. A fence is put behind the newest batch: a file that is no batch, so that Spark will not start here meanwhile.
3. The steps are done. Each can be done again: what is done already is left.
4. The journal becomes history.
5. The fence goes, then `pending.json`.

Cut off anywhere, the checkpoint is as before (until 2), or refuses to start until the same command has finished it, or
`undo` has taken it back.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby

from typing_extensions import assert_never

from respool.checkpoint import history, layout, sink
from respool.checkpoint.files import Reader, Writer, open_writer
from respool.checkpoint.steps import Journal, Move, Prune, Replace, Restore, Step
from respool.errors import CheckpointError

FENCE = b"respool is changing this checkpoint, or was cut off while it did. Run its command again to finish."


def apply(journal: Journal, files: Writer, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Carry out a journal that is planned but not begun; raise CheckpointError when the checkpoint has changed since.

    Args:
        journal: What to do.
        files: The checkpoint.
        on_step: Called with the number of steps done.
    """
    _write_down(journal, files)
    finish(journal, files, on_step)


def begin(journal: Journal, files: Writer) -> None:
    """Write a journal down and put its fence up, for `finish` to carry it out later."""
    _write_down(journal, files)
    _fence(journal, files)


def finish(journal: Journal, files: Writer, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Carry out a journal that is pending, from wherever it was cut off."""
    if not _is_there(files, history.path_of(journal)):
        _fence(journal, files)
        _do_all(journal.steps, files, on_step)
        files.sync()
        _remember(journal, files)
    clear_staged(journal.of or journal.id, files)
    if _is_fence(files, journal.fence):
        files.delete(journal.fence)
        files.sync()
    files.delete(history.PENDING)
    files.sync()


def take_back(undo: Journal, files: Writer, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Take back a change that was cut off: its undoing becomes what is pending in its place."""
    files.replace(history.PENDING, history.text_of(undo))
    files.sync()
    finish(undo, files, on_step)


def purge(journal: Journal, files: Writer, now: datetime) -> None:
    """Delete what a finished journal moved aside; it cannot be undone from then on."""
    files.replace(history.path_of(journal), history.text_of(replace(journal, purged=now)))
    for move in journal.moves:
        if move.target.startswith(f"{history.ASIDE}/"):  # others are what it brought in
            (files if move.sink is None else open_writer(move.sink)).delete(move.target)
    files.prune(f"{history.ASIDE}/{journal.id}")


def clear_staged(name: str, files: Writer) -> None:
    """Delete what a change copied beforehand and did not move in."""
    folder = f"{history.STAGED}/{name}"
    for path in files.below(folder):
        files.delete(path)
    files.prune(history.STAGED)


def begun(steps: Sequence[Step], files: Reader) -> tuple[Step, ...]:
    """Return the steps of a change that was cut off without those that were certainly not begun.

    What is moved in is moved in when all that was there is aside. A step that is taken back before it was done would
    take what was there for what was moved in.
    """
    groups = _groups(steps)
    moves = [at for at, group in enumerate(groups) if isinstance(group[0], Move)]
    for at in moves[1:]:
        if not _any_done(groups[at], files):
            return tuple(step for group in groups[:at] for step in group)
    return tuple(steps)


def _write_down(journal: Journal, files: Writer) -> None:
    try:
        files.create(history.PENDING, history.text_of(journal))
    except FileExistsError as error:
        raise CheckpointError("Another change of this checkpoint is under way, or was cut off. Look again.") from error
    files.sync()


def _fence(journal: Journal, files: Writer) -> None:
    """Put the fence up, unless the query has written a batch since the plan was made."""
    try:
        files.create(journal.fence, FENCE)
    except FileExistsError:
        if not _is_fence(files, journal.fence):
            raise _runs(journal, files) from None
    else:
        # A batch that was running can still have ended since the plan was made.
        offsets, commits = layout.batches(files.names("offsets")), layout.batches(files.names("commits"))
        grown = offsets[-2:-1] > (journal.newest.offsets,) or commits[-1:] > (journal.newest.commits,)
        if grown and not _begun(journal, files):
            files.delete(journal.fence)
            raise _runs(journal, files)


def _runs(journal: Journal, files: Writer) -> CheckpointError:
    if _begun(journal, files):
        return CheckpointError(
            f"{journal.fence} is a batch, though the {journal.operation} of {journal.id} was cut off half-way: "
            f"someone took its fence away and started the query. Compare {history.PENDING} with the checkpoint by hand."
        )
    files.delete(history.PENDING)
    return CheckpointError(
        "The query has written a batch since the plan was made: it runs, or has run. Nothing was changed. "
        "Stop the query, and run this again."
    )


def _begun(journal: Journal, files: Writer) -> bool:
    return any(move.sink is None and _is_there(files, move.target) for move in journal.moves[:1])


def _is_fence(files: Writer, path: str) -> bool:
    try:
        return files.read(path) == FENCE
    except FileNotFoundError:
        return False


def _is_there(files: Writer, path: str) -> bool:
    return bool(files.facts([path]))


def _do_all(steps: Sequence[Step], files: Writer, on_step: Callable[[int], None]) -> None:
    """Do the steps in their order; moves that follow each other several at once, where the store likes that.

    Of a change that was cut off, the steps before the last moves that were begun are done: what they moved away can
    have been replaced since.
    """
    groups = _groups(steps)
    moves = [at for at, group in enumerate(groups) if isinstance(group[0], Move)]
    start = next((at for at in reversed(moves[1:]) if _any_done(groups[at], files)), 0)
    done = sum(len(group) for group in groups[:start])
    with ThreadPoolExecutor(files.at_once) as pool:
        for group in groups[start:]:
            work = pool.map if isinstance(group[0], Move) and files.at_once > 1 else map
            for _ in work(partial(_do, files=files), group):
                done += 1
                on_step(done)


def _groups(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps, with moves that follow each other in one list."""
    return [list(group) for _, group in groupby(steps, key=lambda step: isinstance(step, Move))]


def _any_done(moves: Sequence[Step], files: Reader) -> bool:
    sources = [step.source for step in moves if isinstance(step, Move) and step.sink is None]
    return len(files.facts(sources)) < len(sources)


def _do(step: Step, files: Writer) -> None:
    match step:
        case Move():
            (files if step.sink is None else open_writer(step.sink)).move(step.source, step.target)
        case Replace():
            _replace(step, files)
        case Prune():
            files.prune(step.folder)
        case Restore():
            (sink.undo_restore if step.back else sink.run_restore)(step.table)
        case _:
            assert_never(step)


def _replace(step: Replace, files: Writer) -> None:
    # Hadoop's checksum of the old text would not fit the new one.
    folder, _, name = step.path.rpartition("/")
    files.delete(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
    if step.new is None:
        files.delete(step.path)
    else:
        files.replace(step.path, step.new.encode())


def _remember(journal: Journal, files: Writer) -> None:
    if journal.operation == "undo":
        done = next((one for one in history.past(files) if one.id == journal.of), None)
        if done is not None:
            files.replace(history.path_of(done), history.text_of(replace(done, undone=journal.started)))
    files.replace(history.path_of(journal), history.text_of(journal))
    files.sync()
