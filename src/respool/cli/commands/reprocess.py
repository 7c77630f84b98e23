"""`respool reprocess`: a span of event time again, from the archive."""

from dataclasses import asdict
from typing import Annotated

import typer

from respool.cli.options import BootstrapServers, Home, Json, load
from respool.cli.render.output import out_json, print_note, print_result, size
from respool.operations.reprocess import (
    AllowPartial,
    ArchiveOption,
    CheckpointOption,
    EndArgument,
    Inputs,
    Master,
    PipelineArgument,
    Set,
    Slice,
    StartArgument,
    Timezone,
    find_inputs,
    plan_json,
    show_plan,
    slices_bar,
)

_SHOWN = 20  # results that a dry run shows


def reprocess(
    pipeline: PipelineArgument,
    start: StartArgument,
    end: EndArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and the results; publish nothing.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write to a new folder in place of the pipeline's sink: Parquet if it ends in .parquet, else Delta.",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Name of the run; to go on with one that was stopped.  [default: derived]"),
    ] = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", help="Take what the live query has not closed yet, too.")
    ] = False,
    allow_partial: AllowPartial = False,
    slice_: Slice = "1d",
    archive: ArchiveOption = None,
    checkpoint: CheckpointOption = None,
    set_: Set = None,
    timezone: Timezone = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compute a span of event time again from the archive, and publish the result; the live query goes on.

    The span is widened to whole windows or sessions. Results have the same keys and values as the live query's, and
    headers that tell them apart; what was published in the span and is not there is withdrawn. A long span runs in
    slices: stopped, the same command goes on where it was.
    """
    from respool.reprocess.runs import check_run_id

    if run_id is not None:
        check_run_id(run_id)
    settings = load(home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master)
    inputs = find_inputs(
        settings,
        pipeline,
        (start, end),
        values=set_ or [],
        archive=archive,
        checkpoint=checkpoint,
        slice_=slice_,
        allow_open=allow_open,
        allow_partial=allow_partial,
        needs_kafka=not dry_run and output is None,
    )
    if dry_run:
        _dry_run(inputs, json)
    else:
        _run(inputs, output, run_id, json)


def _dry_run(inputs: Inputs, json: bool) -> None:
    from respool.reprocess.job import ReprocessJob, preview
    from respool.spark.session import spark_session

    print_note(f"Starting Spark ({inputs.settings.master}) …")
    with spark_session(inputs.settings) as spark:
        plan, reader = inputs.settled(spark)
        job = ReprocessJob(spark, inputs.kafka, inputs.settings, plan, reader)
        if not json:
            show_plan(plan, job.to)
        with slices_bar(len(plan.slices)) as on_slice:
            found = preview(job, _SHOWN, on_slice)
        read = reader.was_read()
    if json:
        out_json({"plan": plan_json(plan), "to": job.to, "read": asdict(read), **asdict(found)})
        return
    for value in found.values:
        print_result(value)
    if found.results > len(found.values):
        print_result(f"… and {found.results - len(found.values):,} more")
    print_result(
        f"{found.results:,} result{'s' * (found.results != 1)}, of {read.files:,} of {plan.size.files:,} files, "
        f"{size(read.bytes)} of {size(plan.size.bytes)}. Nothing was published."
    )


def _run(inputs: Inputs, output: str | None, run_id: str | None, json: bool) -> None:
    from respool.reprocess import job as reprocess_job
    from respool.reprocess.runs import Runs
    from respool.reprocess.target import check_output
    from respool.spark.files import locate_output
    from respool.spark.session import spark_session

    if output is not None:
        output = locate_output(output)
        if run_id is None:
            check_output(output)
    runs = Runs(inputs.settings.home)
    print_note(f"Starting Spark ({inputs.settings.master}) …")
    with spark_session(inputs.settings) as spark:
        job, manifest = inputs.begin(spark, runs, output, run_id)
        plan = job.plan
        if manifest.done:
            print_note(
                f"Going on with the run {manifest.run}, on version {manifest.version} of the archive: "
                f"{manifest.done:,} of {manifest.slices:,} slices are done. To start another, name it with --run-id."
            )
        if not json:
            show_plan(plan, job.to)
        try:
            with slices_bar(len(plan.slices)) as on_slice:
                done = reprocess_job.reprocess(job, manifest, runs, on_slice)
        except KeyboardInterrupt:
            print_note(f"Stopped. The same command goes on; so does --run-id {manifest.run}.")
            raise typer.Exit(130) from None
        read = job.reader.was_read()
    if json:
        facts = {"run": done.run, "results": done.results, "withdrawn": done.withdrawn}
        out_json({"plan": plan_json(plan), "to": job.to, "read": asdict(read), **facts})
        return
    withdrawn = f" and {done.withdrawn:,} withdrawn" if done.withdrawn else ""
    print_result(f"run        {done.run}: {done.results:,} result{'s' * (done.results != 1)} published{withdrawn}")
