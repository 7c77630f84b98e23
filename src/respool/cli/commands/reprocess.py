"""`respool reprocess` and `respool audit`: a span of event time computed again, or compared with what was published."""

from typing import Annotated

import typer

from respool.cli.options import (
    BROKEN,
    AllowPartial,
    ArchiveOption,
    BootstrapServers,
    EndArgument,
    Home,
    Json,
    LiveCheckpoint,
    Master,
    PipelineArgument,
    Set,
    Slice,
    StartArgument,
    Storage,
    Timezone,
    configured_pipeline,
    load,
)
from respool.cli.render.output import out_json, print_note, print_plan, print_result, slices, width

OneSink = Annotated[
    str | None,
    typer.Option("--sink", metavar="ADDRESS", help="One of the pipeline's several sinks, such as kafka:orders."),
]


def reprocess(
    pipeline: PipelineArgument,
    start: StartArgument,
    end: EndArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and the results; publish nothing.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write to a new folder instead of the pipeline's sink: Parquet if it ends in .parquet, else Delta.",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Name of the run; to resume a run that was stopped.  [default: derived]"),
    ] = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", help="Include windows and sessions that the live query has not closed yet.")
    ] = False,
    allow_partial: AllowPartial = False,
    slice_: Slice = "1d",
    archive: ArchiveOption = None,
    checkpoint: LiveCheckpoint = None,
    sink: OneSink = None,
    set_: Set = None,
    timezone: Timezone = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compute a span again from the archive, and publish it.

    The live query keeps running. The span is widened to whole windows or sessions. Results have the same keys and
    values as the live query's, and separate headers. What was published in the span and is not among the results is
    withdrawn. A long span runs in slices: after an interruption, the same command resumes.
    """
    from respool.operations.reprocess import plan_reprocess, preview
    from respool.operations.reprocess import reprocess as run_again
    from respool.times import parse_duration

    settings = load(storage=storage, home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master)
    plan = plan_reprocess(
        configured_pipeline(pipeline, set_ or [], settings),
        start,
        end,
        archive=archive,
        checkpoint=checkpoint,
        sink=sink,
        slice=parse_duration(slice_),
        allow_open=allow_open,
        allow_partial=allow_partial,
        settings=settings,
    )
    on_plan = None if json else print_plan
    with slices() as on_progress:
        result = (
            preview(plan, on_plan=on_plan, on_note=print_note, on_progress=on_progress)
            if dry_run
            else run_again(
                plan, output=output, run_id=run_id, on_plan=on_plan, on_note=print_note, on_progress=on_progress
            )
        )
    if json:
        out_json(result.to_json())
    else:
        print_result(str(result))


def audit(
    pipeline: PipelineArgument,
    start: StartArgument,
    end: EndArgument,
    fix: Annotated[bool, typer.Option("--fix", help="Publish the correct result for each difference.")] = False,
    allow_open: Annotated[
        bool,
        typer.Option("--allow-open", help="Allow a span that includes open windows or sessions; they are left out."),
    ] = False,
    allow_partial: AllowPartial = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="How many differences to print.")] = 100,
    slice_: Slice = "1d",
    archive: ArchiveOption = None,
    checkpoint: LiveCheckpoint = None,
    sink: OneSink = None,
    set_: Set = None,
    timezone: Timezone = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare the published results of a span with the archive.

    The differences are printed. A result can be wrong, missing or unexpected; the late records behind each are printed.
    Exit code 3 if something differs and is not fixed.
    """
    from respool.operations.reprocess import audit as compare
    from respool.operations.reprocess import plan_reprocess
    from respool.times import parse_duration

    settings = load(storage=storage, home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master)
    plan = plan_reprocess(
        configured_pipeline(pipeline, set_ or [], settings),
        start,
        end,
        archive=archive,
        checkpoint=checkpoint,
        sink=sink,
        slice=parse_duration(slice_),
        allow_open=allow_open,
        allow_partial=allow_partial,
        settings=settings,
    )
    with slices() as on_progress:
        on_plan = None if json else print_plan
        report = compare(plan, fix=fix, limit=limit, on_plan=on_plan, on_note=print_note, on_progress=on_progress)
    if json:
        out_json(report.to_json())
    else:
        print_result(f"\n{report.text(width=width())}")
    if report.different and not fix:
        raise typer.Exit(BROKEN)
