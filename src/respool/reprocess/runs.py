"""What a run has done so far, kept so that it can go on after a stop, however it was stopped.

HOME/reprocess/RUN/run.json   what the run computes, and how many of its slices are done
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import timezone
from pathlib import Path

from respool.errors import ReprocessError
from respool.identity import FROM_TEXT, Identity, read_identity, results_from_text
from respool.pipeline import results
from respool.reprocess.plan import ReprocessPlan
from respool.sinks import protocol
from respool.storage import lease
from respool.untrusted import Fields, Malformed, parse_json

_FILE = "run.json"
_FORMAT = 2  # 1, of earlier versions of respool, has sentences for `to` and `results`, and no field `format`


@dataclass(frozen=True)
class Task:
    """What a run computes: two runs with the same task do the same.

    Attributes:
        pipeline: The pipeline's name.
        start: The asked span's start, in ISO 8601.
        end: Its end.
        slice: Seconds of event time computed at once.
        table: The archive.
        to: Where results go.
        results: How results relate to event time; None when nothing is known.
        timezone: The zone in which they are rendered.
    """

    pipeline: str
    start: str
    end: str
    slice: float
    table: str
    to: Identity
    results: Identity | None
    timezone: str

    @staticmethod
    def of(plan: ReprocessPlan, to: Identity) -> "Task":
        """Return the task of a plan."""
        pipeline, asked = plan.pipeline, plan.request.asked
        return Task(
            pipeline=pipeline.name,
            start=asked.start.astimezone(timezone.utc).isoformat(),
            end=asked.end.astimezone(timezone.utc).isoformat(),
            slice=plan.request.slice.total_seconds(),
            table=plan.table,
            to=to,
            results=pipeline.results.identity() if pipeline.results else None,
            timezone=pipeline.timezone,
        )

    def is_same(self, current: "Task") -> bool:
        """Return whether `current` computes the same as this recorded task."""
        return _differing(self, current) is None


@dataclass(frozen=True)
class ReprocessManifest:
    """A run and how far it is.

    Attributes:
        run: Its id.
        task: What it computes.
        version: The version of the archive that it reads, from its first slice to its last.
        slices: How many slices there are.
        done: How many of them are published, or made ready to be.
        results: How many results these had.
        withdrawn: How many results were taken back.
        complete: All is published.
    """

    run: str
    task: Task
    version: int
    slices: int
    done: int = 0
    results: int = 0
    withdrawn: int = 0
    complete: bool = False

    def after(self, results: int, withdrawn: int) -> "ReprocessManifest":
        """Return it after one more slice."""
        return replace(self, done=self.done + 1, results=self.results + results, withdrawn=self.withdrawn + withdrawn)


class Runs:
    """The runs of a home."""

    def __init__(self, home: Path) -> None:
        """Take the home."""
        self._folder = home / "reprocess"

    def unfinished(self, task: Task) -> ReprocessManifest | None:
        """Return a run of this task that was stopped before its end."""
        for file in sorted(self._folder.glob(f"*/{_FILE}")):
            found = self.read(file.parent.name)
            if found is not None and found.task.is_same(task) and not found.complete:
                return found
        return None

    def begin(self, plan: ReprocessPlan, to: Identity, run: str | None) -> ReprocessManifest:
        """Return the run that does a plan: one to go on with, or a new one. Nothing is written yet.

        Args:
            plan: The plan.
            to: Where results go.
            run: Its id; None to go on with an unfinished run of the same task, or else to derive one.
        """
        task = Task.of(plan, to)
        if run is None:
            found = self.unfinished(task)
            asked = plan.request.asked
            times = (f"{one.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}" for one in (asked.start, asked.end))
            run = f"{plan.pipeline.name}-{'-'.join(times)}-v{plan.version}"
        else:
            check_run_id(run)
            found = self.read(run)
            if found is not None and not found.task.is_same(task):
                raise ReprocessError(
                    f"The run {run} is of {found.task.pipeline}, {found.task.start} to {found.task.end}, to the "
                    f"{protocol.text_of(found.task.to)}: {_difference(found.task, task)}. Choose another --run-id."
                )
        # One that has published nothing yet may as well read what the archive has by now.
        if found is not None and not found.complete and found.done:
            return replace(found, task=task)
        return ReprocessManifest(run, task, plan.version, len(plan.slices))

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Keep other processes from the same run for the length of a `with` block."""
        held = lease.hold(str(self._folder / run), lease.JVM_PATIENCE)
        if held is None:
            raise ReprocessError(f"The run {run} goes on in {lease.holder(str(self._folder / run))}. Wait for it.")
        with held:
            yield

    def read(self, run: str) -> ReprocessManifest | None:
        """Return a run; None when there is none of that id."""
        file = self._folder / run / _FILE
        try:
            found = _manifest(Fields(parse_json(file.read_bytes())))
            if found.run != run:
                raise Malformed(f"it is of the run {found.run!a:.80}")
        except FileNotFoundError:
            return None
        except (Malformed, OSError) as error:
            raise ReprocessError(
                f"{file} is damaged. Move the folder away; the run then starts anew. What is wrong: {error}."
            ) from error
        return found

    def write(self, manifest: ReprocessManifest) -> None:
        """Keep how far a run is."""
        folder = self._folder / manifest.run
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{_FILE}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / _FILE)


def _manifest(facts: Fields) -> ReprocessManifest:
    form = facts.whole("format") if "format" in facts else 1
    if form > _FORMAT:
        raise Malformed(f"it is of format {form}; this respool supports {_FORMAT}: use a newer respool")
    task = facts.nested("task")
    texts = ("pipeline", "start", "end", "table", "timezone")
    to, relation = _identities(task) if form > 1 else _identities_from_text(task)
    numbers = ("version", "slices", "done", "results", "withdrawn")
    return ReprocessManifest(
        run=facts.file_name("run"),
        task=Task(slice=task.number("slice"), to=to, results=relation, **{name: task.text(name) for name in texts}),
        complete=facts.flag("complete"),
        **{name: facts.whole(name) for name in numbers},
    )


def _identities(task: Fields) -> tuple[Identity, Identity | None]:
    return read_identity(task.nested("to")), read_identity(task.nested("results")) if "results" in task else None


def _identities_from_text(task: Fields) -> tuple[Identity, Identity | None]:
    """Return where results go, and how they relate to event time, of a task in format 1."""
    text = task.text("to")
    to = protocol.identity_from_text(text) or Identity("described", {"text": text}, FROM_TEXT)
    return to, results_from_text(task.text("results"))


def check_run_id(run: str) -> None:
    """Raise ReprocessError when a run cannot have this id."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", run):
        raise ReprocessError(f"'{run}' is no name for a run. Use letters, digits, dots, dashes, underscores.")


def _differing(kept: Task, asked: Task) -> str | None:
    """Return the name of the first field in which a task differs from a recorded one; None when none does."""
    for entry in fields(Task):
        value, current = getattr(kept, entry.name), getattr(asked, entry.name)
        if isinstance(value, Identity) and isinstance(current, Identity):
            same = value.is_same(current)
        else:
            same = value == current
        if not same:
            return entry.name
    return None


def _difference(kept: Task, asked: Task) -> str:
    match _differing(kept, asked):
        case "to":
            return _unlike("to", protocol.text_of(kept.to), protocol.text_of(asked.to))
        case "results" if kept.results is not None and asked.results is not None:
            before, now = results.text_of(kept.results), results.text_of(asked.results)
            if before == now:
                return f"its results differ: {kept.results.differences(asked.results)}"
            return _unlike("results", before, now)
        case None:
            return ""
        case name:
            return _unlike(name, getattr(kept, name), getattr(asked, name))


def _unlike(name: str, before: object, now: object) -> str:
    return f"its {name} is {before}, here it is {now}"
