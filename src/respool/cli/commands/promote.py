"""`respool promote`: a fork becomes the checkpoint of its pipeline."""

from typing import Annotated

import typer

from respool.cli.changes import Confirmation, show_confirm_apply
from respool.cli.options import (
    AcceptForeign,
    AllowDataLoss,
    BootstrapServers,
    DryRun,
    Home,
    Json,
    Reason,
    Savepoints,
    SinkOption,
    Stopped,
    Storage,
    Yes,
    load,
    require_answer,
)
from respool.cli.render.output import print_result


def promote(
    fork: Annotated[str, typer.Argument(metavar="FORK", help="The fork's checkpoint: a folder or URL.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The pipeline's checkpoint: its name, a folder or URL.")],
    keep_as: Annotated[
        str | None,
        typer.Option("--keep-as", metavar="NAME", help="The savepoint that keeps the old one.  [default: by the time]"),
    ] = None,
    sink: SinkOption = None,
    restore_sink: Annotated[
        bool, typer.Option("--restore-sink", help="Move aside what a file sink has of the batches that come.")
    ] = False,
    allow_data_loss: AllowDataLoss = False,
    stopped: Stopped = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    savepoints: Savepoints = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make a fork the pipeline's checkpoint from now on. The old one is kept as a savepoint; `undo` takes this back.

    Both queries must have stopped. The pipeline continues from the fork's position, and writes to its own output.
    """
    from respool.operations.checkpoint import Checkpoint
    from respool.operations.plans import ResumePlan

    require_answer(json, yes, dry_run)
    settings = load(storage=storage, home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    checkpoint = Checkpoint(path, settings=settings)
    plan = checkpoint.plan_promote(
        Checkpoint(fork, settings=settings),
        keep_as=keep_as,
        sink=sink,
        restore_sink=restore_sink,
        allow_data_loss=allow_data_loss,
        assume_stopped=stopped,
        reason=reason,
    )
    run = checkpoint.run_record()
    show_confirm_apply(checkpoint, plan, Confirmation(dry_run, yes, json, accept_foreign_journal))
    if not (json or dry_run or isinstance(plan, ResumePlan) or run is None):
        print_result(f"Run it with: respool run {run.pipeline}" + ("" if "/" not in path else f" --checkpoint {path}"))
