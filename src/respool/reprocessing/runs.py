"""The progress of runs, stored so that a run can be resumed after any interruption.

HOME/reprocess/RUN/run.json   the run's task, and how many of its slices are done
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
from respool.reprocessing.plan import ReprocessPlan
from respool.sinks import protocol
from respool.storage import lease
from respool.untrusted import Fields, Malformed, parse_json, read_regular_file

_FILE = "run.json"
_FORMAT = 2  # 1, of earlier versions of respool, has sentences for `to` and `results`, and no field `format`


@dataclass(frozen=True)
class ReprocessTask:
    """What a run computes: runs with the same task compute the same.

    Attributes:
        pipeline: The pipeline's name.
        start: The start of the requested span, in ISO 8601.
        end: The end of the span.
        slice: The seconds of event time that are computed at a time.
        table: The archive.
        to: Where results go.
        results: How results relate to event time; None when it is not known.
        timezone: The zone in which results are rendered.
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
    def of(plan: ReprocessPlan, to: Identity) -> "ReprocessTask":
        """Return the task of a plan."""
        pipeline, asked = plan.pipeline, plan.request.asked
        return ReprocessTask(
            pipeline=pipeline.name,
            start=asked.start.astimezone(timezone.utc).isoformat(),
            end=asked.end.astimezone(timezone.utc).isoformat(),
            slice=plan.request.slice.total_seconds(),
            table=plan.table,
            to=to,
            results=pipeline.results.identity() if pipeline.results else None,
            timezone=pipeline.timezone,
        )

    def is_same(self, current: "ReprocessTask") -> bool:
        """Return whether `current` computes the same as this recorded task."""
        return _differing(self, current) is None


@dataclass(frozen=True)
class ReprocessManifest:
    """A run and its progress.

    Attributes:
        run: The run's id.
        task: What it computes.
        version: The version of the archive that all its slices read.
        slices: The number of slices.
        done: The number of slices that are published or staged.
        results: The number of results in these slices.
        withdrawn: The number of withdrawn results.
        complete: Whether all is published.
    """

    run: str
    task: ReprocessTask
    version: int
    slices: int
    done: int = 0
    results: int = 0
    withdrawn: int = 0
    complete: bool = False

    def after(self, results: int, withdrawn: int) -> "ReprocessManifest":
        """Return the manifest after another slice."""
        return replace(self, done=self.done + 1, results=self.results + results, withdrawn=self.withdrawn + withdrawn)


class Runs:
    """The runs under a home."""

    def __init__(self, home: Path) -> None:
        """Name the home."""
        self._folder = home / "reprocess"

    def unfinished(self, task: ReprocessTask) -> ReprocessManifest | None:
        """Return an unfinished run of this task; None when there is none."""
        for file in sorted(self._folder.glob(f"*/{_FILE}")):
            manifest = self.read(file.parent.name)
            if manifest is not None and manifest.task.is_same(task) and not manifest.complete:
                return manifest
        return None

    def begin(self, plan: ReprocessPlan, to: Identity, run: str | None) -> ReprocessManifest:
        """Return the run for a plan: an unfinished run to resume, or a new run. Nothing is written yet.

        Args:
            plan: The plan.
            to: Where results go.
            run: Its id; None to resume an unfinished run of the same task, or else to derive an id.
        """
        task = ReprocessTask.of(plan, to)
        if run is None:
            existing = self.unfinished(task)
            asked = plan.request.asked
            times = (f"{time.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}" for time in (asked.start, asked.end))
            run = f"{plan.pipeline.name}-{'-'.join(times)}-v{plan.version}"
        else:
            check_run_id(run)
            existing = self.read(run)
            if existing is not None and not existing.task.is_same(task):
                recorded = existing.task
                raise ReprocessError(
                    f"The run {run} computes {recorded.pipeline}, {recorded.start} to {recorded.end}, to the "
                    f"{protocol.text_of(recorded.to)}: {_difference(recorded, task)}. Choose another --run-id."
                )
        # A run that has published nothing yet may read the archive's current version.
        if existing is not None and not existing.complete and existing.done:
            return replace(existing, task=task)
        return ReprocessManifest(run, task, plan.version, len(plan.slices))

    @contextmanager
    def hold(self, run: str) -> Iterator[None]:
        """Keep other processes from the same run for the length of a `with` block."""
        held = lease.hold(str(self._folder / run), lease.JVM_PATIENCE)
        if held is None:
            raise ReprocessError(f"The run {run} is running in {lease.holder(str(self._folder / run))}. Wait for it.")
        with held:
            yield

    def read(self, run: str) -> ReprocessManifest | None:
        """Return a run by id; None when there is no such run."""
        file = self._folder / run / _FILE
        try:
            manifest = _manifest(Fields(parse_json(read_regular_file(file))))
            if manifest.run != run:
                raise Malformed(f"it is of the run {manifest.run!a:.80}")
        except FileNotFoundError:
            return None
        except (Malformed, OSError) as error:
            raise ReprocessError(
                f"{file} is damaged. Move the folder away; the run then starts again. Problem: {error}."
            ) from error
        return manifest

    def write(self, manifest: ReprocessManifest) -> None:
        """Store the progress of a run."""
        folder = self._folder / manifest.run
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{_FILE}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / _FILE)


def _manifest(fields: Fields) -> ReprocessManifest:
    form = fields.whole("format") if "format" in fields else 1
    if form > _FORMAT:
        raise Malformed(f"it has format {form}; this respool supports {_FORMAT}: use a newer respool")
    task = fields.nested("task")
    texts = ("pipeline", "start", "end", "table", "timezone")
    to, relation = _identities(task) if form > 1 else _identities_from_text(task)
    numbers = ("version", "slices", "done", "results", "withdrawn")
    return ReprocessManifest(
        run=fields.file_name("run"),
        task=ReprocessTask(
            slice=task.number("slice"), to=to, results=relation, **{name: task.text(name) for name in texts}
        ),
        complete=fields.flag("complete"),
        **{name: fields.whole(name) for name in numbers},
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
        raise ReprocessError(f"Invalid run id '{run}'. Use letters, digits, '.', '-' and '_'.")


def _differing(kept: ReprocessTask, asked: ReprocessTask) -> str | None:
    """Return the name of the first field in which a task differs from a recorded task; None if they are equal."""
    for entry in fields(ReprocessTask):
        value, current = getattr(kept, entry.name), getattr(asked, entry.name)
        if isinstance(value, Identity) and isinstance(current, Identity):
            same = value.is_same(current)
        else:
            same = value == current
        if not same:
            return entry.name
    return None


def _difference(kept: ReprocessTask, asked: ReprocessTask) -> str:
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
