"""`respool run`: pipelines, live, until they are stopped."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

import respool
from respool.cli.options import (
    BootstrapServers,
    Home,
    Json,
    Master,
    SavepointsOption,
    Storage,
    configured_pipelines,
    load,
)
from respool.cli.render.log_lines import json_lines, use_json_lines
from respool.cli.render.output import note_width, out_json, print_note

if TYPE_CHECKING:
    from respool.running.progress import BatchProgress
    from respool.settings import Settings


def run(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(metavar="PIPELINE", help="Names of `respool pipelines`, or module:object of your own."),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE:FUNCTION",
            help="A query of your own: a function from a SparkSession to a DataStreamWriter, such as my_job.py:build. "
            "Its checkpoint is the one that it names, or --checkpoint, or the job's under the home.",
        ),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process the available records, then stop.")
    ] = False,
    trigger: Annotated[
        str | None, typer.Option(metavar="TIME", help="Interval between batches, such as 20s; 0s for no pause.")
    ] = None,
    max_offsets_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The maximum number of records in a batch.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PATH", help="The checkpoint's folder or URL, for a single pipeline.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Print the results instead of writing them to the pipeline's sink.")
    ] = False,
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Fork this savepoint to the folder of --checkpoint, and start from it. What has changed in the "
            "pipeline since, and whether Spark can start, is printed first.",
        ),
    ] = None,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", help="With --from-savepoint: continue although the source no longer has all records."
        ),
    ] = False,
    sink_suffix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Write to a separate topic or table, whose name ends with this, such as -v2."
        ),
    ] = None,
    dead_letter: Annotated[
        bool, typer.Option(help="Keep records that do not decode in the topic TOPIC-rejected.")
    ] = True,
    give_up_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long to wait for Kafka, and to retry after other transient failures, such as 10m. "
            "[default: no limit; 5m with --available-now]",
        ),
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop all pipelines when one fails. Without it, the others continue.")
    ] = False,
    stop_within: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the running batch may last after Ctrl-C or SIGTERM; then it is interrupted, and repeated by "
            "the next start.  [default: no limit]",
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /livez and /readyz at this address while the run lasts."),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="What is printed to standard error: text, or json for an object a line.  [default: text; "
            "RESPOOL_LOG_FORMAT]",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipelines; see `respool pipelines NAME`."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of event times without an offset, and of results.")
    ] = None,
    master: Master = None,
    savepoints: SavepointsOption = None,
    bootstrap_servers: BootstrapServers = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Run pipelines until Ctrl-C, with a line for every batch.

    Ctrl-C and SIGTERM stop after the running batch; a second Ctrl-C interrupts it. Run again, every pipeline resumes
    after its last finished batch. Batch lines go to standard error; with --json, to standard output.

    While Kafka does not answer, the run waits, and resumes when it does. A pipeline that has failed for another reason
    ends alone, and the exit code is 1 when the run ends.
    """
    from respool.pipeline.job import find_job

    with suppress(KeyboardInterrupt):  # a signal before the queries ran, or another while they stopped
        place = {"storage": storage, "home": home, "savepoints": savepoints, "bootstrap_servers": bootstrap_servers}
        settings = load(**place, timezone=timezone, master=master, log_format=log_format)
        use_log_format(settings)
        respool.run(
            *(*configured_pipelines(pipelines or [], set_ or [], settings), *map(find_job, job or [])),
            checkpoint=checkpoint,
            available_now=available_now,
            trigger=trigger,
            max_offsets_per_trigger=max_offsets_per_trigger,
            console=console,
            sink_suffix=sink_suffix,
            from_savepoint=from_savepoint,
            allow_data_loss=allow_data_loss,
            dead_letter=dead_letter,
            give_up_after=give_up_after,
            fail_fast=fail_fast,
            stop_within=stop_within,
            settings=settings,
            health=health,
            **_callbacks(json),
        )
    print_note("Stopped.")


def use_log_format(settings: "Settings") -> None:
    """Print to standard error as the settings say: text, or a JSON object for each line."""
    if settings.log_format == "json":
        use_json_lines()


def _callbacks(json: bool) -> dict[str, Any]:
    """Return the callbacks of `respool.run`, which print batches and notes; JSON lines have notes from the log."""
    return {"on_batch": print_json if json else print_line, "on_note": None if json_lines() is not None else print_note}


def print_json(progress: "BatchProgress") -> None:
    """Print a batch as a line of JSON."""
    out_json(progress.to_json())


def print_line(progress: "BatchProgress") -> None:
    """Print a batch as text; those of companions, which keep rejected records, are left out."""
    if progress.is_of_companion:
        return
    if (lines := json_lines()) is not None:
        lines.emit("info", "respool.run", str(progress), progress.to_json())
    else:
        print_note(progress.text(width=note_width()))
