"""Operations on pipelines: rewind, undo, savepoint, restore, fork, reprocess, purge; and interrupted commands."""

import hashlib
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from chaos.commands import Done
from chaos.events import START
from chaos.schedule import Fault
from chaos.supervisor import Group
from chaos.world import SESSIONS_TOPIC, Outcome, Rewind, World

_ATTEMPTS = 4  # to finish an interrupted command


def operate(world: World, fault: Fault) -> Outcome:
    """Do what a fault asks for. The process of the pipeline is stopped first where that is required."""
    if fault.kind == "savepoint":
        return _savepoint(world, fault)
    if fault.kind == "fork":
        return _fork(world, fault)
    if fault.kind == "reprocess":
        return _reprocess(world, fault)
    group = world.groups[fault.group]
    if fault.kind in ("restore", "cut-restore") and not world.savepoints.get(fault.pipeline):
        outcome, text = _savepoint(world, fault)
        if outcome != "done":
            return outcome, text
    with group.held():
        group.stop(fault.stop)
        try:
            return _STOPPED[fault.kind](world, fault, group)
        finally:
            group.start()


def _rewind(world: World, fault: Fault, group: Group) -> Outcome:
    words, text = _rewind_words(world, fault)
    if words is None:
        return "refused", text
    _note_rewind(world, fault)
    done = _insist(world, words)
    return ("done" if done.ok else "refused"), text if done.ok else f"{text}: {done.reason}"


def _undo(world: World, fault: Fault, group: Group) -> Outcome:
    """Rewind or restore, undo it, and compare all files with the original files."""
    checkpoint = world.place.home / "checkpoints" / fault.pipeline
    before = _contents(checkpoint)
    names = world.savepoints.get(fault.pipeline, [])
    if names and fault.chances[1] > 0.5:
        words, text = _restore_words(fault, names), "restore and undo"
    else:
        rewind, text = _rewind_words(world, fault)
        if rewind is None:
            return "refused", text
        words, text = rewind, f"{text} and undo"
    _note_rewind(world, fault)
    done = _insist(world, words)
    if not done.ok:
        return "refused", f"{text}: {done.reason}"
    undone = world.respool("checkpoint", "undo", fault.pipeline, "--yes")
    if not undone.ok:
        return "refused", f"{text}: {undone.reason}"
    if fault.pipeline == "sessions":
        world.rewinds.pop()
    after = _contents(checkpoint)
    if before != after:
        changed = sorted({path for path in before.keys() | after.keys() if before.get(path) != after.get(path)})
        world.timeline.violate(f"{text} of {fault.pipeline} left {len(changed)} files changed: {changed[:5]}")
    return "done", text


def _restore(world: World, fault: Fault, group: Group) -> Outcome:
    words = _restore_words(fault, world.savepoints[fault.pipeline])
    _note_rewind(world, fault)
    done = _insist(world, words)
    return ("done" if done.ok else "refused"), words[2] if done.ok else f"{words[2]}: {done.reason}"


def _cut_rewind(world: World, fault: Fault, group: Group) -> Outcome:
    words, text = _rewind_words(world, fault)
    if words is None:
        return "refused", text
    return _cut(world, fault, words, text)


def _cut_restore(world: World, fault: Fault, group: Group) -> Outcome:
    words = _restore_words(fault, world.savepoints[fault.pipeline])
    return _cut(world, fault, words, f"to {words[2]}")


def _cut(world: World, fault: Fault, words: tuple[str, ...], text: str) -> Outcome:
    """Kill a command while it runs, then run it again until it succeeds."""
    _note_rewind(world, fault)
    seconds = 0.2 + fault.chances[2] * 1.3
    cut = world.respool(*words, kill_after=seconds)
    if cut.ok:
        return "done", f"{text}: ended before it was interrupted"
    if cut.code is not None:
        cut = _insist(world, words)
        return ("done" if cut.ok else "refused"), f"{text}: {'ended after a refusal' if cut.ok else cut.reason}"
    for _ in range(_ATTEMPTS):
        done = _insist(world, words)
        if done.ok:
            return "done", f"{text}: killed after {seconds:.1f} s, then finished"
    return "refused", f"{text}: killed after {seconds:.1f} s, then {done.reason}"


def _purge(world: World, fault: Fault, group: Group) -> Outcome:
    done = world.respool("checkpoint", "purge", fault.pipeline, "--older-than", "0s", "--yes")
    return ("done" if done.ok else "refused"), "" if done.ok else done.reason


_STOPPED: dict[str, Callable[[World, Fault, Group], Outcome]] = {
    "rewind": _rewind,
    "undo": _undo,
    "restore": _restore,
    "cut-rewind": _cut_rewind,
    "cut-restore": _cut_restore,
    "purge": _purge,
}


def _savepoint(world: World, fault: Fault) -> Outcome:
    """Create a savepoint while the pipeline runs, and check its bytes."""
    name = f"point-{fault.number}"
    done = world.respool("savepoint", "create", fault.pipeline, name, "--json")
    if not done.ok:
        return "refused", done.reason
    world.savepoints.setdefault(fault.pipeline, []).append(name)
    checked = world.respool("savepoint", "verify", name)
    if not checked.ok:
        world.timeline.violate(f"savepoint {name} of {fault.pipeline} is damaged: {checked.output[-500:]}")
    return "done", f"{name} at batch {json.loads(done.output)['batch']}"


def _fork(world: World, fault: Fault) -> Outcome:
    """Fork a savepoint, and let the fork process all records since."""
    if not world.savepoints.get(fault.pipeline):
        outcome, text = _savepoint(world, fault)
        if outcome != "done":
            return outcome, text
    names = world.savepoints[fault.pipeline]
    name, suffix = names[int(fault.chances[0] * len(names))], f"-fork-{fault.number}"
    checkpoint = str(world.place.home / "checkpoints" / f"{fault.pipeline}{suffix}")
    done = world.respool(
        *("run", fault.pipeline, "--from-savepoint", name, "--checkpoint", checkpoint),
        *("--sink-suffix", suffix, "--available-now", "--no-dead-letter"),
        limit=300,
    )
    if Path(checkpoint, "metadata").exists():
        world.forks[checkpoint] = (fault.pipeline, suffix)
    return ("done" if done.ok else "refused"), f"of {name}" if done.ok else f"of {name}: {done.reason}"


def _reprocess(world: World, fault: Fault) -> Outcome:
    """Reprocess a span of event time that the watermark passed some time ago."""
    produced = len(world.producer.sent) * world.step
    closed = produced - timedelta(minutes=60)
    if closed <= timedelta(0):
        return "skipped", "less than an hour of event time has passed"
    start = START + fault.chances[0] * closed
    end = start + timedelta(minutes=10 + 30 * fault.chances[1])
    words = (fault.pipeline, f"{start:%Y-%m-%dT%H:%M:%SZ}", f"{end:%Y-%m-%dT%H:%M:%SZ}")
    done = world.respool("reprocess", *words, limit=300)
    return ("done" if done.ok else "refused"), words[1] if done.ok else f"{words[1]}: {done.reason}"


def _rewind_words(world: World, fault: Fault) -> tuple[tuple[str, ...] | None, str]:
    """Return the command of a rewind to a reachable batch, and a description."""
    shown = world.respool("checkpoint", "show", fault.pipeline, "--json")
    if not shown.ok:
        return None, shown.reason
    batches = [
        batch
        for span in json.loads(shown.output)["reachable"]
        for batch in range(int(span["first"]), int(span["last"]) + 1)
    ]
    if not batches:
        return None, "no batch is reachable"
    # Most rewinds are short, some go back as far as possible.
    batch = batches[int((1 - fault.chances[0] ** 2) * (len(batches) - 1))]
    same = ("--same-range",) if fault.chances[1] < 0.3 and batch < max(batches) else ()
    words = ("checkpoint", "rewind", fault.pipeline, "--to-batch", str(batch), *same, "--yes")
    return words, " ".join(("to batch", str(batch), *same))


def _restore_words(fault: Fault, names: list[str]) -> tuple[str, ...]:
    name = names[int(fault.chances[0] * len(names))]
    return ("savepoint", "restore", name, fault.pipeline, "--yes")


def _insist(world: World, words: tuple[str, ...]) -> Done:
    """Run a command; if it is refused, repeat it with `--stopped`, as the caller has stopped the query."""
    done = world.respool(*words)
    return done if done.ok or done.code is None else world.respool(*words, "--stopped")


def _note_rewind(world: World, fault: Fault) -> None:
    if fault.pipeline == "sessions":
        world.rewinds.append(Rewind(world.topics.ends(SESSIONS_TOPIC)))


def _contents(folder: Path) -> dict[str, str]:
    """Return a digest of every file of a checkpoint that Spark reads; checksum files and leftovers do not count."""
    digests = {}
    for here, folders, names in os.walk(folder):
        if Path(here) == folder:
            folders[:] = [name for name in folders if name != "_respool"]
        for name in names:
            if not name.startswith("."):
                path = Path(here, name)
                digests[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests
