"""From the words of `reprocess` and `audit` to a plan; and how a plan and its progress look."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from respool.cli.commands.run import parameter_values
from respool.cli.options import connect
from respool.cli.render.output import print_note, print_result, size
from respool.errors import BrokerError, SettingsError
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.archive.reader import ArchiveReader
    from respool.kafka.cluster import KafkaCluster
    from respool.reprocess.job import ReprocessJob
    from respool.reprocess.live import LiveQuery
    from respool.reprocess.plan import Plan, ReprocessRequest
    from respool.reprocess.runs import ReprocessManifest, Runs

PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A name of `respool pipelines`, or module:object.")
]
StartArgument = Annotated[str, typer.Argument(metavar="START", help="The span's first moment, in ISO 8601.")]
EndArgument = Annotated[str, typer.Argument(metavar="END", help="The moment behind the span.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The archive's table.  [default: the pipeline's, under the home's archive]"),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The live query's checkpoint.  [default: the pipeline's, under the home]"),
]
Slice = Annotated[str, typer.Option("--slice", metavar="TIME", help="How much event time is computed at once, about.")]
AllowPartial = Annotated[
    bool, typer.Option("--allow-partial", help="Go on though the archive lacks records that the live query has read.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipeline, as the live query has it."),
]
Timezone = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Zone of times that name none, and of results, as for the live query."),
]
Master = Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]; RESPOOL_MASTER]")]


@dataclass(frozen=True)
class Inputs:
    """What a command was given, found and checked without Spark.

    Attributes:
        settings: The settings.
        request: What is asked for.
        table: The archive.
        live: What the live query has done.
        kafka: The cluster; None when none answers.
        plan: The plan, by the archive's newest version.
    """

    settings: Settings
    request: "ReprocessRequest"
    table: str
    live: "LiveQuery | None"
    kafka: "KafkaCluster | None"
    plan: "Plan"

    def replan(self, version: int | None = None) -> "tuple[Plan, ArchiveReader]":
        """Return the plan by a version of the archive, the newest by default."""
        from respool.archive.reader import ArchiveReader
        from respool.reprocess.plan import make_plan

        reader = ArchiveReader(self.table, version)
        return make_plan(self.request, reader, self.live, datetime.now(timezone.utc)), reader

    def settled(self, spark: "SparkSession") -> "tuple[Plan, ArchiveReader]":
        """Return the plan once the archive has what the live query has read."""
        from respool.reprocess.completeness import check_beginning, wait_until_archived

        if self.request.allow_partial:
            return self.replan()
        if self.live is not None:
            topic = self.request.pipeline.topic
            wait_until_archived(spark, self.kafka, self.table, topic, self.live, print_note)
        plan, reader = self.replan()
        check_beginning(spark, reader, plan)
        return plan, reader

    def begin(
        self, spark: "SparkSession", runs: "Runs", output: str | None, run: str | None
    ) -> "tuple[ReprocessJob, ReprocessManifest]":
        """Return the run that does what is asked for, and what it needs: a new one, or one to go on with.

        Args:
            spark: The application's session.
            runs: The runs of the home.
            output: A folder to write to, in place of the pipeline's sink.
            run: Its id; None to derive one.
        """
        from dataclasses import replace

        from respool.reprocess.job import ReprocessJob

        plan, reader = self.settled(spark)
        job = ReprocessJob(spark, self.kafka, self.settings, plan, reader, output)
        manifest = runs.begin(plan, job.destination, run)
        if manifest.version != plan.version:  # more was archived since it began
            plan, reader = self.replan(manifest.version)
            job = replace(job, plan=plan, reader=reader)
        return job, manifest


def find_inputs(
    settings: Settings,
    name: str,
    span: tuple[str, str],
    *,
    values: list[str],
    archive: str | None,
    checkpoint: str | None,
    slice_: str,
    allow_open: bool,
    allow_partial: bool,
    needs_kafka: bool,
) -> Inputs:
    """Return the inputs of a command; whatever can be refused without Spark is refused here."""
    from dataclasses import replace

    from respool.archive.reader import ArchiveReader
    from respool.archive.table import locate, require
    from respool.operations.check import require_sound
    from respool.pipeline import registry
    from respool.reprocess.live import read_live
    from respool.reprocess.plan import ReprocessRequest, make_plan, results_of
    from respool.times import parse_duration, parse_span

    one = registry.find_pipeline(name, parameter_values([name], values, settings)[name])
    one = replace(one, timezone=settings.timezone) if settings.timezone else one
    require_sound([one], settings)
    results_of(one)
    with _within_the_calendar(span, slice_):
        asked = parse_span(*span, ZoneInfo(one.timezone))
    request = ReprocessRequest(one, asked, allow_open, allow_partial, parse_duration(slice_))
    table = locate(archive or one.archive or f"{one.topic}_table", settings.home)
    require(table)
    live = read_live(checkpoint or str(settings.checkpoints / one.name), one)
    with _within_the_calendar(span, slice_):
        plan = make_plan(request, ArchiveReader(table), live, datetime.now(timezone.utc))
    try:
        kafka = connect(settings)
    except BrokerError:
        if needs_kafka:
            raise
        kafka = None
    return Inputs(settings, request, table, live, kafka, plan)


@contextmanager
def _within_the_calendar(span: tuple[str, str], slice_: str) -> Iterator[None]:
    """Tell of a time before the year 1 or after 9999, which Python does not have, as of any other wrong time."""
    try:
        yield
    except OverflowError as error:
        raise SettingsError(
            f"The span from {span[0]} to {span[1]}, in slices of {slice_}, needs times outside the years 1 to 9999. "
            "Give a span within them, or a shorter --slice."
        ) from error


def show_plan(plan: "Plan", to: str | None) -> None:
    """Print a plan for people.

    Args:
        plan: The plan.
        to: Where results go; None when nothing is written.
    """
    from respool.reprocess.plan import results_of
    from respool.times import time_text

    results = results_of(plan.pipeline)
    zone = plan.zone
    lines = [
        ("pipeline", f"{plan.pipeline.name}, {results.describe()}"),
        ("asked", f"{plan.request.asked.text(zone)} ({plan.pipeline.timezone})"),
        ("computed", _computed(plan)),
        (
            "archive",
            f"{plan.table}, version {plan.version}: {plan.reads.files:,} of {plan.size.files:,} files, "
            f"{size(plan.reads.bytes)} of {size(plan.size.bytes)}",
        ),
    ]
    if plan.live is not None:
        closed = "nothing yet" if plan.closed is None else f"up to {time_text(plan.closed.astimezone(zone))}"
        lines.append(("live query", f"batch {plan.live.batch:,}; closed {closed}"))
    if to is not None:
        lines.append(("to", to))
    if len(plan.slices) > 1:
        lines.append(("slices", f"{len(plan.slices):,}"))
    lines += [("note", note) for note in plan.notes()]
    print_result("\n".join(f"{name:<11}{text}" for name, text in lines))


def _computed(plan: "Plan") -> str:
    from respool.pipeline.results import Sessions

    if isinstance(plan.pipeline.results, Sessions):
        return "every session that touches it, whole"
    if plan.computed == plan.request.asked:
        return "the same"
    return f"{plan.computed.text(plan.zone)}, to have whole windows"


def plan_json(plan: "Plan") -> dict[str, Any]:
    """Return a plan for programs."""
    from dataclasses import asdict

    def span(one: Any) -> dict[str, str]:
        return {"start": one.start.isoformat(), "end": one.end.isoformat()}

    live = plan.live
    return {
        "pipeline": plan.pipeline.name,
        "asked": span(plan.request.asked),
        "computed": span(plan.computed),
        "slices": len(plan.slices),
        "archive": {"table": plan.table, "version": plan.version, **asdict(plan.size)},
        "reads": asdict(plan.reads),
        "live": live and {"batch": live.batch, "watermark": live.watermark and live.watermark.isoformat()},
        "notes": plan.notes(),
    }


@contextmanager
def slices_bar(total: int) -> "Iterator[Callable[[int, int], None]]":
    """Show how many slices are done, when there are several: a bar on a terminal, else a line now and then."""
    if total == 1:
        yield lambda done, count: None
        return
    if not sys.stderr.isatty():
        step = max(total // 20, 1)

        def tell(done: int, count: int) -> None:
            if done % step == 0 or done == total:
                print_note(f"slice {done:,} of {total:,}")

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, count: bar.update(task, completed=done)
