"""A span of event time computed again from the archive: plan, preview, reprocess, audit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from respool.archive.table import Size
from respool.errors import BrokerError, SettingsError
from respool.operations.context import OnNote, OnProgress, note_of, session, settings_of, table_of
from respool.reprocessing.plan import SLICE, ReprocessPlan
from respool.settings import Settings
from respool.text import plural, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.archive.reader import ArchiveReader
    from respool.kafka.cluster import KafkaCluster
    from respool.pipeline.definition import Pipeline
    from respool.reprocessing.audit_report import AuditReport
    from respool.reprocessing.job import OnSlice, ReprocessJob
    from respool.reprocessing.runs import ReprocessManifest, Runs

OnPlan = Callable[[ReprocessPlan], None]  # called with the plan that is carried out, before its first slice


@dataclass(frozen=True, repr=False)
class ReprocessPreview:
    """What a reprocessing would publish.

    >>> respool.preview(plan, limit=1)
    ReprocessPreview('visit-counts', results=6)

    Attributes:
        plan: What was computed.
        results: How many results.
        values: The values of the first results.
        read: The files that were read, and their bytes.
    """

    plan: ReprocessPlan
    results: int
    values: tuple[str, ...]
    read: Size

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"ReprocessPreview({self.plan.pipeline.name!r}, results={self.results})"

    def __str__(self) -> str:
        """Return what `respool reprocess --dry-run` prints after the plan."""
        lines = [*self.values]
        if self.results > len(self.values):
            lines.append(f"… and {self.results - len(self.values):,} more")
        read, archive = self.read, self.plan.size
        lines.append(
            f"{plural(self.results, 'result')}, of {read.files:,} of {archive.files:,} files, "
            f"{size(read.bytes)} of {size(archive.bytes)}. Nothing was published."
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool reprocess --dry-run --json` prints."""
        fields = {"results": self.results, "values": self.values}
        return {"plan": self.plan.to_json(), "to": self.plan.to, "read": asdict(self.read), **fields}


@dataclass(frozen=True, repr=False)
class ReprocessRun:
    """A finished reprocessing.

    >>> done = respool.reprocess(plan, output="again.parquet")
    >>> done.results, done.withdrawn
    (6, 0)

    Attributes:
        plan: What was computed.
        run: Its id.
        results: How many results were published.
        withdrawn: How many results were withdrawn.
        read: The files that were read, and their bytes.
    """

    plan: ReprocessPlan
    run: str
    results: int
    withdrawn: int
    read: Size

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"ReprocessRun({self.run!r}, results={self.results}, withdrawn={self.withdrawn})"

    def __str__(self) -> str:
        """Return what `respool reprocess` prints after the plan."""
        withdrawn = f" and {self.withdrawn:,} withdrawn" if self.withdrawn else ""
        return f"run        {self.run}: {plural(self.results, 'result')} published{withdrawn}"

    def to_json(self) -> dict[str, Any]:
        """Return what `respool reprocess --json` prints."""
        fields = {"run": self.run, "results": self.results, "withdrawn": self.withdrawn}
        return {"plan": self.plan.to_json(), "to": self.plan.to, "read": asdict(self.read), **fields}


def plan_reprocess(
    pipeline: "Pipeline",
    start: datetime | str,
    end: datetime | str,
    *,
    archive: str | None = None,
    checkpoint: str | None = None,
    slice: timedelta = SLICE,
    allow_open: bool = False,
    allow_partial: bool = False,
    settings: Settings | None = None,
) -> ReprocessPlan:
    """Plan to compute a span of event time again from the archive. Neither Spark nor Kafka is needed.

    >>> pipeline = respool.find_pipeline("visit-counts")
    >>> plan = respool.plan_reprocess(pipeline, "2025-09-04T07:00Z", "2025-09-04T07:55Z")
    >>> plan.computed.text(plan.zone)
    '2025-09-04T07:00Z – 2025-09-04T08:00Z'

    Args:
        pipeline: The pipeline whose results are computed.
        start: The start of the span; a time without a zone is in the pipeline's.
        end: The end of the span, which is not part of it.
        archive: The archive's table; by default the pipeline's, under the `archive` folder of the home.
        checkpoint: The live query's checkpoint; by default the pipeline's, under the home.
        slice: About how much event time is computed in one step.
        allow_open: Include results that the live query has not closed yet.
        allow_partial: Accept an archive that lacks records that the live query has read.
        settings: The settings; by default those of respool.toml and of the environment.

    Raises:
        ReprocessError: The results of the pipeline cannot be computed again, or the archive does not hold the span.
        CheckpointError: The live query is of another pipeline, or of one with other parameters.
    """
    from respool.archive.reader import ArchiveReader
    from respool.archive.table import locate, require
    from respool.operations.check import require_sound
    from respool.reprocessing.live import read_live
    from respool.reprocessing.plan import ReprocessRequest, make_plan, results_of
    from respool.times import parse_span

    settings = settings_of(settings)
    pipeline = replace(pipeline, timezone=settings.timezone) if settings.timezone else pipeline
    require_sound([pipeline], settings, jvm=False)
    results_of(pipeline)
    first, last = (time if isinstance(time, str) else time.isoformat() for time in (start, end))
    with _within_the_calendar(first, last, slice):
        asked = parse_span(first, last, ZoneInfo(pipeline.timezone))
    request = ReprocessRequest(pipeline, asked, allow_open, allow_partial, slice, settings)
    table = locate(archive or pipeline.archive or f"{pipeline.topic}_table", settings)
    require(table)
    live = read_live(checkpoint or settings.checkpoint_of(pipeline.name), pipeline)
    with _within_the_calendar(first, last, slice):
        return make_plan(request, ArchiveReader(table), live, datetime.now(timezone.utc))


def preview(
    plan: ReprocessPlan,
    *,
    limit: int = 20,
    spark: "SparkSession | None" = None,
    on_plan: OnPlan | None = None,
    on_note: OnNote | None = None,
    on_progress: OnProgress | None = None,
) -> ReprocessPreview:
    """Compute a span, and publish nothing.

    >>> preview = respool.preview(plan, limit=2)
    >>> preview.results, len(preview.values)
    (6, 2)

    Args:
        plan: The plan. If more records are archived meanwhile, they are included.
        limit: How many results are returned with their values.
        spark: The session to use; by default one is started.
        on_plan: Called with the plan by the version of the archive that is read, before the first slice.
        on_note: Called with what happens; by default it is logged.
        on_progress: Called with how many slices are done.
    """
    from respool.reprocessing.job import ReprocessJob
    from respool.reprocessing.job import preview as compute

    note, settings, kafka = note_of(on_note), plan.request.settings, _kafka(plan, required=False)
    with session(settings, spark, note, locations=_places(plan), jvm=False) as active:
        settled, reader = settle(plan, active, kafka, note)
        job = ReprocessJob(active, kafka, settings, settled, reader)
        settled = _announce(settled, job.to, on_plan)
        result = compute(job, limit, _on_slice(on_progress, settled))
        return ReprocessPreview(settled, result.results, result.values, reader.was_read())


def reprocess(
    plan: ReprocessPlan,
    *,
    output: str | None = None,
    run_id: str | None = None,
    spark: "SparkSession | None" = None,
    on_plan: OnPlan | None = None,
    on_note: OnNote | None = None,
    on_progress: OnProgress | None = None,
) -> ReprocessRun:
    """Compute a span again from the archive, and publish the results. The live query keeps running.

    An interrupted call is resumed by the same call: slices that were published are not computed again.

    >>> respool.reprocess(plan, run_id="again")
    ReprocessRun('again', results=6, withdrawn=0)

    Args:
        plan: The plan. If more records are archived meanwhile, they are included.
        output: A new folder or URL to write to in place of the pipeline's sink: Parquet if it ends in .parquet, else
            Delta.
        run_id: The id of the run; by default it is derived from the plan.
        spark: The session to use; by default one is started.
        on_plan: Called with the plan by the version of the archive that is read, before the first slice.
        on_note: Called with what happens; by default it is logged.
        on_progress: Called with how many slices are done.
    """
    from respool.locations import absolute
    from respool.reprocessing.job import reprocess as compute
    from respool.reprocessing.runs import Runs, check_run_id
    from respool.reprocessing.target import check_output

    note, settings = note_of(on_note), plan.request.settings
    if run_id is not None:
        check_run_id(run_id)
    kafka = _kafka(plan, required=output is None)
    if output is not None:
        output = absolute(output)
        if run_id is None:
            check_output(output)
    runs = Runs(settings.home)
    with session(settings, spark, note, locations=_places(plan, output), jvm=False) as active:
        job, manifest = begin(plan, active, kafka, runs, output, run_id, note)
        if manifest.done:
            note(
                f"Resuming the run {manifest.run}, on version {manifest.version} of the archive: "
                f"{manifest.done:,} of {plural(manifest.slices, 'slice')} done. To start another, name it with "
                "--run-id."
            )
        settled = _announce(job.plan, job.to, on_plan)
        try:
            finished = compute(job, manifest, runs, _on_slice(on_progress, settled))
        except KeyboardInterrupt:
            note(f"Stopped. Resume with the same command, or with --run-id {manifest.run}.")
            raise
        return ReprocessRun(settled, finished.run, finished.results, finished.withdrawn, job.reader.was_read())


def audit(
    plan: ReprocessPlan,
    *,
    fix: bool = False,
    limit: int = 100,
    spark: "SparkSession | None" = None,
    on_plan: OnPlan | None = None,
    on_note: OnNote | None = None,
    on_progress: OnProgress | None = None,
) -> "AuditReport":
    """Compare what was published of a span with what the archive says.

    >>> if respool.audit(plan).different:
    ...     respool.audit(plan, fix=True)

    Args:
        plan: The plan. If more records are archived meanwhile, they are included.
        fix: Publish every result that differs again, as the archive says.
        limit: How many differences are returned in full.
        spark: The session to use; by default one is started.
        on_plan: Called with the plan by the version of the archive that is read, before the first slice.
        on_note: Called with what happens; by default it is logged.
        on_progress: Called with how many slices are done.
    """
    from respool.reprocessing.audit import audit as compare
    from respool.reprocessing.job import ReprocessJob

    note, settings, kafka = note_of(on_note), plan.request.settings, _kafka(plan, required=True)
    with session(settings, spark, note, locations=_places(plan), jvm=False) as active:
        settled, reader = settle(plan, active, kafka, note)
        job = ReprocessJob(active, kafka, settings, settled, reader)
        settled = _announce(settled, job.to if fix else None, on_plan)
        times = (settled.computed.start, settled.computed.end)
        span = "-".join(f"{time.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}" for time in times)
        run = f"audit-{settled.pipeline.name}-{span}-v{settled.version}" if fix else None
        return compare(job, limit, run, _on_slice(on_progress, settled))


def _places(plan: ReprocessPlan, output: str | None = None) -> list[str]:
    """Return the folders and URLs that a computation reads and writes."""
    places = (plan.table, output or table_of(plan.pipeline.sink, plan.request.settings))
    return [place for place in places if place]


def settle(
    plan: ReprocessPlan, spark: "SparkSession", kafka: "KafkaCluster | None", note: OnNote
) -> "tuple[ReprocessPlan, ArchiveReader]":
    """Return the plan by the archive's newest version, after the archive has what the live query has read."""
    from respool.reprocessing.completeness import check_beginning, wait_until_archived

    if plan.request.allow_partial:
        return _plan_again(plan)
    if plan.live is not None:
        wait_until_archived(spark, kafka, plan.table, plan.pipeline.topic, plan.live, note)
    settled, reader = _plan_again(plan)
    check_beginning(spark, reader, settled)
    return settled, reader


def begin(
    plan: ReprocessPlan,
    spark: "SparkSession",
    kafka: "KafkaCluster | None",
    runs: "Runs",
    output: str | None,
    run: str | None,
    note: OnNote,
) -> "tuple[ReprocessJob, ReprocessManifest]":
    """Return the run that carries out a plan, a new one or an interrupted one, and what it needs.

    Args:
        plan: The plan.
        spark: The application's session.
        kafka: The cluster; None when none answers.
        runs: The runs of the home.
        output: A folder to write to, in place of the pipeline's sink.
        run: Its id; None to derive one.
        note: Called while the archive is behind the live query.
    """
    from respool.reprocessing.job import ReprocessJob

    settled, reader = settle(plan, spark, kafka, note)
    job = ReprocessJob(spark, kafka, plan.request.settings, settled, reader, output)
    manifest = runs.begin(settled, job.destination, run)
    if manifest.version != settled.version:  # more was archived since the run began
        settled, reader = _plan_again(settled, manifest.version)
        job = replace(job, plan=settled, reader=reader)
    return job, manifest


def _plan_again(plan: ReprocessPlan, version: int | None = None) -> "tuple[ReprocessPlan, ArchiveReader]":
    """Return the plan by a version of the archive, by default the newest."""
    from respool.archive.reader import ArchiveReader
    from respool.reprocessing.plan import make_plan

    reader = ArchiveReader(plan.table, version)
    return make_plan(plan.request, reader, plan.live, datetime.now(timezone.utc)), reader


def _announce(plan: ReprocessPlan, to: str | None, on_plan: OnPlan | None) -> ReprocessPlan:
    plan = replace(plan, to=to)
    if on_plan is not None:
        on_plan(plan)
    return plan


def _on_slice(on_progress: OnProgress | None, plan: ReprocessPlan) -> "OnSlice":
    return lambda done, results: on_progress(done, len(plan.slices)) if on_progress else None


def _kafka(plan: ReprocessPlan, *, required: bool) -> "KafkaCluster | None":
    from respool.kafka.topics import connect

    try:
        return connect(plan.request.settings)
    except BrokerError:
        if required:
            raise
        return None


@contextmanager
def _within_the_calendar(start: str, end: str, slice: timedelta) -> Iterator[None]:
    """Report times before the year 1 or after 9999, which Python does not have, as any other wrong time."""
    from respool.times import duration_text

    try:
        yield
    except OverflowError as error:
        raise SettingsError(
            f"The span from {start} to {end}, in slices of {duration_text(slice)}, needs times outside the years 1 to "
            "9999. Give a span within them, or a shorter --slice."
        ) from error
