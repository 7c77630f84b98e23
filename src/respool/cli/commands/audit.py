"""`respool audit`: what was published, compared with what the archive says."""

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
    Timezone,
    configured_pipeline,
    load,
)
from respool.cli.render.output import out_json, print_note, print_plan, print_result, slices, width
from respool.operations.reprocess import audit as compare
from respool.operations.reprocess import plan_reprocess
from respool.times import parse_duration


def audit(
    pipeline: PipelineArgument,
    start: StartArgument,
    end: EndArgument,
    fix: Annotated[
        bool, typer.Option("--fix", help="Publish every result that differs again, as the archive says.")
    ] = False,
    allow_open: Annotated[
        bool,
        typer.Option("--allow-open", help="The span may reach beyond what is closed; what is open is left out."),
    ] = False,
    allow_partial: AllowPartial = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="How many differences are printed in full.")] = 100,
    slice_: Slice = "1d",
    archive: ArchiveOption = None,
    checkpoint: LiveCheckpoint = None,
    set_: Set = None,
    timezone: Timezone = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare what was published of a span with what the archive says, and print what differs.

    A result can be wrong, missing or unexpected; the late records behind each are printed. Exit code 3 when
    something differs and is not fixed.
    """
    settings = load(home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master)
    plan = plan_reprocess(
        configured_pipeline(pipeline, set_ or [], settings),
        start,
        end,
        archive=archive,
        checkpoint=checkpoint,
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
