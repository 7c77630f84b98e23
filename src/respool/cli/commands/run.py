"""`respool run`: pipelines, live, until they are stopped."""

from dataclasses import asdict, replace
from typing import Annotated

import typer

from respool.cli.options import BootstrapServers, Home, Json, Savepoints, cluster, load
from respool.cli.render.output import out_json, print_note
from respool.errors import UsageError
from respool.operations.run import start_from
from respool.running.progress import BatchProgress
from respool.settings import Settings


def run(
    pipelines: Annotated[
        list[str],
        typer.Argument(metavar="PIPELINE", help="Names of `respool pipelines`, or module:object of your own."),
    ],
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is there now, then stop.")
    ] = False,
    trigger: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from batch to batch, such as 20s; 0s for at once.")
    ] = None,
    max_offsets_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most records that a batch takes.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PATH", help="The checkpoint's folder or URL, for a single pipeline.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Print the results, in place of the pipeline's sink.")
    ] = False,
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Fork this savepoint to the folder of --checkpoint, and go on from there. What has changed in the "
            "pipeline since, and whether Spark can start, is told first.",
        ),
    ] = None,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="With --from-savepoint: go on though the source has lost records.")
    ] = False,
    sink_suffix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Write to a topic or table of its own, whose name ends with this, as -v2."),
    ] = None,
    dead_letter: Annotated[
        bool, typer.Option(help="Keep records that do not decode in the topic TOPIC-rejected.")
    ] = True,
    give_up_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long to wait for a Kafka that does not answer, and for other causes that may pass, such as 10m. "
            "[default: for ever; 5m with --available-now]",
        ),
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop all pipelines when one has failed; else the others continue.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipelines; see `respool pipelines NAME`."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Zone of event times that name none, and of results.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]; RESPOOL_MASTER]")] = None,
    savepoints: Savepoints = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Run pipelines until Ctrl-C, with a line for every batch.

    Ctrl-C and SIGTERM stop after the running batch; a second Ctrl-C stops at once. Run again, every pipeline goes on
    from its last finished batch. Batch lines go to standard error; with --json, to standard output.

    While Kafka does not answer, the run waits, and resumes when it does. A pipeline that has failed for another reason
    ends alone, and the exit code is 1 when the run ends.
    """
    from respool.operations.check import require_sound
    from respool.pipeline import registry
    from respool.times import parse_duration

    settings = load(
        home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master, savepoints=savepoints
    )
    values = parameter_values(pipelines, set_ or [], settings)
    found = [registry.find_pipeline(name, values[name]) for name in pipelines]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise UsageError(f"a pipeline is named twice: {', '.join(names)}")
    if checkpoint and len(found) > 1:
        raise UsageError("--checkpoint is for a single pipeline; each of several has its own under the home")
    if console and sink_suffix:
        raise UsageError("--console writes to no sink: leave --sink-suffix out")
    if from_savepoint and checkpoint is None:
        raise UsageError("--from-savepoint needs a folder for the fork: name it with --checkpoint")
    if from_savepoint and not (sink_suffix or console):
        raise UsageError(
            "--from-savepoint starts a second query: give it an output of its own with --sink-suffix, or --console"
        )
    if allow_data_loss and not from_savepoint:
        raise UsageError("--allow-data-loss is about a savepoint's records: it goes with --from-savepoint")
    every = parse_duration(trigger) if trigger is not None else None
    require_sound(found, settings)
    patience = parse_duration(give_up_after) if give_up_after is not None else None
    kafka = cluster(settings)

    from respool.kafka import outage, topics
    from respool.running.claim import check, holding
    from respool.running.options import RunOptions
    from respool.running.runner import Runner
    from respool.running.stopping import stopping_on_signals
    from respool.spark.session import spark_session

    options = RunOptions(
        available_now=available_now,
        trigger=every,
        max_offsets_per_trigger=max_offsets_per_trigger,
        checkpoint=checkpoint,
        console=console,
        dead_letter=dead_letter,
        timezone=settings.timezone,
        sink_suffix=sink_suffix,
        give_up_after=patience,
        fail_fast=fail_fast,
    )
    try:
        outage.wait_until_answers(kafka, options.patience, print_note)
        wanted = [options.apply(one) for one in found]
        start = (
            start_from(from_savepoint, checkpoint, wanted[0], kafka, settings, allow_data_loss)
            if from_savepoint and checkpoint
            else None
        )
        for one in wanted:  # what can be refused at once is refused before Spark takes its time to start
            topics.require_topic(kafka, one.topic)
            if start is None:
                check(options.checkpoint_of(one, settings), one)
        show = show_json if json else show_line
        with holding(wanted if start is None else (), options, settings) as held:
            print_note(f"Starting Spark ({settings.master}) for {', '.join(names)} …")
            with (
                spark_session(settings) as spark,
                Runner(spark, kafka, settings, options, show, print_note, held) as runner,
                stopping_on_signals(runner.request_stop),
            ):
                if start is not None:
                    start(spark, replace(options, sink_suffix=None, console=False).apply(found[0]))
                runner.start(found)
                for one in wanted:
                    print_note(f"{one.name}: {one.topic} → {one.sink.describe()}")
                runner.wait()
    except KeyboardInterrupt:
        pass  # a signal before the queries ran, or another while they stopped
    print_note("Stopped.")


def parameter_values(names: list[str], assignments: list[str], settings: Settings) -> dict[str, dict[str, object]]:
    """Return the parameters that are set for each pipeline: in respool.toml, then by --set for all that have them."""
    from respool.pipeline.registry import parameters, section_values

    values = section_values(names, settings.pipelines)
    known = {name: {one.name for one in parameters(name)} for name in names}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not (key and equals):
            raise UsageError(f"--set {assignment} is not NAME=VALUE")
        having = [name for name in names if key in known[name]]
        for name in having or names[:1]:  # a parameter that none has is told by the first pipeline
            values[name][key] = value
    return values


def show_json(progress: BatchProgress) -> None:
    """Print a batch as a line of JSON."""
    out_json({name: value for name, value in asdict(progress).items()})


def show_line(progress: BatchProgress) -> None:
    """Print a batch as a line for people."""
    if progress.pipeline.startswith("rejected-"):
        return
    parts = [
        f"{progress.pipeline} batch {progress.batch}",
        f"{progress.rows:,} rows",
        f"{progress.rows_per_second:,.0f} rows/s",
    ]
    if progress.watermark:
        parts.append(f"watermark {progress.watermark:%Y-%m-%d %H:%M:%S}Z")
    if progress.state_rows is not None:
        parts += [
            f"state {progress.state_rows:,} rows",
            f"late {progress.late_rows:,} ({progress.late_rows_total:,} in all)",
        ]
    parts += [f"rejected {progress.rejected:,}", f"{progress.seconds:.1f} s"]
    print_note("  ".join(parts))
