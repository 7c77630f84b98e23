"""What a run has done so far, kept so that it can go on after a stop, however it was stopped.

HOME/reprocess/RUN/run.json   what the run computes, and how many of its slices are done
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timezone
from pathlib import Path

from respool.checkpoint import lease
from respool.errors import ReprocessError
from respool.reprocess.plan import Plan
from respool.untrusted import Fields, Malformed, parse_json

_FILE = "run.json"


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
        results: How results relate to event time.
        timezone: The zone in which they are rendered.
    """

    pipeline: str
    start: str
    end: str
    slice: float
    table: str
    to: str
    results: str
    timezone: str

    @staticmethod
    def of(plan: Plan, to: str) -> "Task":
        """Return the task of a plan."""
        pipeline, asked = plan.pipeline, plan.request.asked
        return Task(
            pipeline=pipeline.name,
            start=asked.start.astimezone(timezone.utc).isoformat(),
            end=asked.end.astimezone(timezone.utc).isoformat(),
            slice=plan.request.slice.total_seconds(),
            table=plan.table,
            to=to,
            results=pipeline.results.describe() if pipeline.results else "",
            timezone=pipeline.timezone,
        )


@dataclass(frozen=True)
class Manifest:
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

    def after(self, results: int, withdrawn: int) -> "Manifest":
        """Return it after one more slice."""
        return replace(self, done=self.done + 1, results=self.results + results, withdrawn=self.withdrawn + withdrawn)


class Runs:
    """The runs of a home."""

    def __init__(self, home: Path) -> None:
        """Take the home."""
        self._folder = home / "reprocess"

    def unfinished(self, task: Task) -> Manifest | None:
        """Return a run of this task that was stopped before its end."""
        for file in sorted(self._folder.glob(f"*/{_FILE}")):
            found = self.read(file.parent.name)
            if found is not None and found.task == task and not found.complete:
                return found
        return None

    def begin(self, plan: Plan, to: str, run: str | None) -> Manifest:
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
            if found is not None and found.task != task:
                raise ReprocessError(
                    f"The run {run} is of {found.task.pipeline}, {found.task.start} to {found.task.end}, to the "
                    f"{found.task.to}: {_difference(found.task, task)}. Choose another --run-id."
                )
        # One that has published nothing yet may as well read what the archive has by now.
        if found is not None and not found.complete and found.done:
            return found
        return Manifest(run, task, plan.version, len(plan.slices))

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Keep other processes from the same run for the length of a `with` block."""
        held = lease.hold(str(self._folder / run), lease.JVM_PATIENCE)
        if held is None:
            raise ReprocessError(f"The run {run} goes on in {lease.holder(str(self._folder / run))}. Wait for it.")
        with held:
            yield

    def read(self, run: str) -> Manifest | None:
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

    def write(self, manifest: Manifest) -> None:
        """Keep how far a run is."""
        folder = self._folder / manifest.run
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{_FILE}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(manifest), indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / _FILE)


def _manifest(facts: Fields) -> Manifest:
    task = facts.nested("task")
    texts = ("pipeline", "start", "end", "table", "to", "results", "timezone")
    numbers = ("version", "slices", "done", "results", "withdrawn")
    return Manifest(
        run=facts.file_name("run"),
        task=Task(slice=task.number("slice"), **{name: task.text(name) for name in texts}),
        complete=facts.flag("complete"),
        **{name: facts.whole(name) for name in numbers},
    )


def check_run_id(run: str) -> None:
    """Raise ReprocessError when a run cannot have this id."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", run):
        raise ReprocessError(f"'{run}' is no name for a run. Use letters, digits, dots, dashes, underscores.")


def _difference(kept: Task, asked: Task) -> str:
    for name, value in asdict(kept).items():
        if value != getattr(asked, name):
            return f"its {name} is {value}, here it is {getattr(asked, name)}"
    return ""
