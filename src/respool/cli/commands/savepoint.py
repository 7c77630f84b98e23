"""`respool savepoint`: keep a moment of a query, go back to it, start a second query from it. Mostly without a JVM."""

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
    SinkOption,
    Stopped,
    Storage,
    Where,
    Yes,
    load,
    require_answer,
)
from respool.cli.options import Savepoints as SavepointsOption
from respool.cli.render.output import out_json, print_note, print_result, size, table, throttled
from respool.errors import DamagedFileError, UnknownFormatVersionError

if TYPE_CHECKING:
    from respool.operations.savepoints import Savepoints

app = typer.Typer(
    cls=Commands,
    help="Keep a moment of a query under a name; go back to it, or start a second query from it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name, or its own folder or URL.")]


@app.command()
def create(
    path: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for it: letters, digits, dots, dashes.")],
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The newest batch in it.  [default: the newest committed]")
    ] = None,
    sink: SinkOption = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the manifest.")] = None,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Copy what a start after a batch needs, while the query runs or not. It is there whole, or not at all."""
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
    """Show a savepoint: its batch, offsets, watermark, state, the position of its output, its pipeline."""
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
        bool, typer.Option("--load", help="Also let Spark load all of the state, in a copy of its own.")
    ] = False,
    savepoints: SavepointsOption = None,
    master: Master = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check every byte of a savepoint against its manifest. Exit code 3 when something is broken."""
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
    """Delete a savepoint for good. Forks of it are checkpoints of their own, and stay."""
    store = _savepoints(storage=storage, home=home, savepoints=savepoints)
    left_over = store.has_leftovers(name)
    if not left_over:
        manifest = store[name].manifest
        print_result(f"Savepoint {name} of {manifest.checkpoint} at batch {manifest.batch:,}")
    if not yes:
        typer.confirm("Delete it for good?", abort=True)
    store.delete(name)
    print_result(f"What was left of a savepoint {name} is deleted." if left_over else f"Savepoint {name} is deleted.")


@app.command()
def copy(
    name: Name,
    target: Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the savepoints that it goes to.")],
    new_name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Another name for the copy.")] = None,
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Copy a savepoint to another place, such as an object store; every byte is checked on the way."""
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
        bool, typer.Option("--restore-sink", help="Bring a Delta or file sink back to where it was, too.")
    ] = False,
    allow_data_loss: AllowDataLoss = False,
    stopped: Stopped = False,
    other_query: Annotated[
        bool, typer.Option("--other-query", help="The checkpoint is that of another query, and that is meant.")
    ] = False,
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
    """Put a checkpoint back to a savepoint. What was there is kept aside: `checkpoint undo` takes this back."""
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
    """Create the checkpoint of a second query from the same position, with its own query id; both queries can run."""
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
        print_result("Start your query on it, and let it write to a place of its own.")


def _savepoints(**flags: Any) -> "Savepoints":
    from respool.operations.savepoints import Savepoints

    return Savepoints(settings=load(**flags))
