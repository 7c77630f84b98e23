"""`respool savepoint`: save the position of a query, restore it, start a second query from it. Mostly without a JVM.

`respool promote` makes that second query, a fork, the checkpoint of its pipeline.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.changes import Confirmation, show_confirm_apply
from respool.cli.options import (
    BROKEN,
    AcceptForeign,
    AllowDataLoss,
    BootstrapServers,
    Commands,
    DryRun,
    Home,
    Json,
    Master,
    Reason,
    SavepointsOption,
    SinkOption,
    Stopped,
    Storage,
    Where,
    Yes,
    load,
    require_answer,
)
from respool.cli.render.output import out_json, print_note, print_result, size, table, throttled
from respool.errors import DamagedFileError, UnknownFormatVersionError

if TYPE_CHECKING:
    from respool.operations.savepoints import Savepoints


app = typer.Typer(
    cls=Commands,
    help="Create, restore, fork, verify and copy savepoints of a query.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name, or its own folder or URL.")]


@app.command()
def create(
    path: Where,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name: letters, digits, dots, dashes and underscores.")
    ],
    batch: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The newest batch to include.  [default: the newest committed]"),
    ] = None,
    sink: SinkOption = None,
    reason: Annotated[str | None, typer.Option(help="The reason, recorded in the manifest.")] = None,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Copy what a start after a batch needs; the query may be running. A savepoint is complete or does not exist."""
    from respool.cli.render import savepoint as render
    from respool.operations.checkpoint import Checkpoint

    store = _savepoints(storage=storage, home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    checkpoint = Checkpoint(path, settings=store.settings)
    progress = throttled("files copied")
    saved = store.create(checkpoint, name, batch=batch, sink=sink, reason=reason, on_progress=progress)
    if json:
        out_json(render.savepoint_json(saved))
    else:
        render.print_created(saved, path)


@app.command(name="list")
def list_(savepoints: SavepointsOption = None, storage: Storage = None, home: Home = None, json: Json = False) -> None:
    """List the savepoints, the oldest first."""
    from respool.cli.render import savepoint as render

    store = _savepoints(storage=storage, home=home, savepoints=savepoints)
    warnings: list[str] = []
    saved = store.list(on_note=warnings.append)
    if json:
        out_json([render.savepoint_json(savepoint) for savepoint in saved])
    else:
        columns = ("name", "pipeline", "batch", "created", "watermark", "files", "size", "checkpoint", "reason")
        table([render.savepoint_row(savepoint) for savepoint in saved], columns, f"No savepoint in {store.location}.")
    for warning in warnings:
        print_note(warning)


@app.command()
def show(
    name: Name, savepoints: SavepointsOption = None, storage: Storage = None, home: Home = None, json: Json = False
) -> None:
    """Show a savepoint: batch, offsets, watermark, state, output."""
    from respool.cli.render import savepoint as render

    savepoint = _savepoints(storage=storage, home=home, savepoints=savepoints)[name]
    if json:
        out_json({**render.savepoint_json(savepoint), "files": [vars(file) for file in savepoint.manifest.files]})
        return
    for line in render.savepoint_lines(savepoint):
        print_result(line)


@app.command()
def verify(
    name: Name,
    load_state: Annotated[
        bool, typer.Option("--load", help="Also let Spark load the whole state, from a temporary copy.")
    ] = False,
    savepoints: SavepointsOption = None,
    master: Master = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check every byte of a savepoint against its manifest. Exit code 3 if something is broken."""
    from respool.cli.render import savepoint as render

    store = _savepoints(storage=storage, home=home, savepoints=savepoints, master=master)
    try:
        savepoint = store[name]
    except (DamagedFileError, UnknownFormatVersionError) as error:
        damaged = {"savepoint": name, "ok": False, "wrong": [str(error)], "notes": []}
        out_json(damaged) if json else print_result(f"✗ {error}")
        raise typer.Exit(BROKEN) from error
    report = savepoint.verify(load_state=load_state, on_progress=throttled("files read"), on_note=print_note)
    if json:
        out_json(render.report_json(report, load_state))
    else:
        render.print_report(report, savepoint)
    if not report.ok:
        raise typer.Exit(BROKEN)


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name.")],
    yes: Yes = False,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
) -> None:
    """Delete a savepoint permanently. Its forks are separate checkpoints, and stay."""
    store = _savepoints(storage=storage, home=home, savepoints=savepoints)
    left_over = store.has_leftovers(name)
    if not left_over:
        manifest = store[name].manifest
        print_result(f"Savepoint {name} of {manifest.checkpoint} at batch {manifest.batch:,}")
    if not yes:
        typer.confirm("Delete it for good?", abort=True)
    store.delete(name)
    print_result(f"The remains of the savepoint {name} are deleted." if left_over else f"Savepoint {name} is deleted.")


@app.command()
def copy(
    name: Name,
    target: Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL to copy it to.")],
    new_name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Another name for the copy.")] = None,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Copy a savepoint to another folder or URL, and verify it."""
    from respool.cli.render import savepoint as render
    from respool.operations.savepoints import Savepoints

    store = _savepoints(storage=storage, home=home, savepoints=savepoints)
    to = Savepoints(target, settings=store.settings)
    copied = store.copy(name, to, new_name=new_name, on_progress=throttled("files copied"))
    if json:
        out_json(render.savepoint_json(copied))
    else:
        print_result(f"Savepoint {copied.name} is at {copied.location}: {size(copied.manifest.size)}.")


@app.command()
def restore(
    name: Name,
    path: Where,
    sink: SinkOption = None,
    restore_sink: Annotated[
        bool, typer.Option("--restore-sink", help="Also roll a Delta or file sink back to its earlier state.")
    ] = False,
    allow_data_loss: AllowDataLoss = False,
    stopped: Stopped = False,
    other_query: Annotated[bool, typer.Option("--other-query", help="Allow a savepoint of another query.")] = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Restore a checkpoint from a savepoint. Its files move to _respool/aside; `checkpoint undo` moves them back."""
    from respool.operations.checkpoint import Checkpoint

    require_answer(json, yes, dry_run)
    store = _savepoints(storage=storage, home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    savepoint, checkpoint = store[name], Checkpoint(path, settings=store.settings)
    plan = checkpoint.plan_restore(
        savepoint,
        sink=sink,
        restore_sink=restore_sink,
        allow_data_loss=allow_data_loss,
        assume_stopped=stopped,
        other_query=other_query,
        reason=reason,
    )
    show_confirm_apply(checkpoint, plan, Confirmation(dry_run, yes, json, accept_foreign_journal))


@app.command()
def fork(
    name: Name,
    new_path: Annotated[str, typer.Argument(metavar="NEWPATH", help="A new folder or URL for the second query.")],
    allow_data_loss: AllowDataLoss = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Finish an interrupted fork without asking.")] = False,
    accept_foreign_journal: AcceptForeign = False,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Create the checkpoint of a second query from a savepoint.

    It has its own query id, so both queries can run.
    """
    from respool.operations.checkpoint import Checkpoint

    store = _savepoints(storage=storage, home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    savepoint = store[name]
    plan = savepoint.plan_fork(new_path, allow_data_loss=allow_data_loss)
    checkpoint = Checkpoint(plan.location, settings=store.settings)
    show_confirm_apply(checkpoint, plan, Confirmation(dry_run, yes, json, accept_foreign_journal))
    if json or dry_run:
        return
    run = savepoint.manifest.run
    if run is not None:
        print_result(f"Run it with: respool run {run.pipeline} --checkpoint {new_path} --sink-suffix -v2")
    else:
        print_result("Start your query on it, and let it write to a separate place.")


def _savepoints(**flags: Any) -> "Savepoints":
    from respool.operations.savepoints import Savepoints

    return Savepoints(settings=load(**flags))


def promote(
    fork: Annotated[str, typer.Argument(metavar="FORK", help="The fork's checkpoint: a folder or URL.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The pipeline's checkpoint: its name, a folder or URL.")],
    keep_as: Annotated[
        str | None,
        typer.Option(
            "--keep-as",
            metavar="NAME",
            help="Name of the savepoint that keeps the old checkpoint.  [default: made from the time]",
        ),
    ] = None,
    sink: SinkOption = None,
    restore_sink: Annotated[
        bool, typer.Option("--restore-sink", help="Move a file sink's output of the replayed batches aside.")
    ] = False,
    allow_data_loss: AllowDataLoss = False,
    stopped: Stopped = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Replace a pipeline's checkpoint by a fork of it.

    The old checkpoint is kept as a savepoint; `checkpoint undo` undoes the promotion. Both queries
    must have stopped. The pipeline continues from the fork's position, and writes to its own output.
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
