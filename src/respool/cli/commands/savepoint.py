"""`respool savepoint`: keep a moment of a query, go back to it, start a second query from it. Mostly without a JVM."""

from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.changes import Change, finish, make_fork, show_confirm_apply
from respool.cli.commands.checkpoint import DryRun, Reason, Where
from respool.cli.options import BootstrapServers, Commands, Home, Json, Savepoints, Yes, load, require_answer
from respool.cli.render.output import out_json, print_note, print_result, size, table, throttled
from respool.cli.resuming import AcceptForeign
from respool.errors import CheckpointNotFoundError, DamagedFileError, UnknownFormatVersionError
from respool.operations.context import locate
from respool.operations.savepoints import SinkOption, find, occupied, position, world_for
from respool.settings import Settings

if TYPE_CHECKING:
    from respool.savepoint.store import Savepoint

app = typer.Typer(
    cls=Commands,
    help="Keep a moment of a query under a name; go back to it, or start a second query from it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name, or its own folder or URL.")]
Stopped = Annotated[
    bool, typer.Option("--stopped", help="The query has ended, though its checkpoint looks as if it ran.")
]
AllowDataLoss = Annotated[bool, typer.Option("--allow-data-loss", help="Go on though the source has lost records.")]
_BROKEN = 3  # the exit code of `verify` when something is broken, as that of `checkpoint verify`


@app.command()
def create(
    path: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for it: letters, digits, dots, dashes.")],
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The newest batch in it.  [default: the newest committed]")
    ] = None,
    sink: SinkOption = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the manifest.")] = None,
    savepoints: Savepoints = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Copy what a start after a batch needs, while the query runs or not. It is there whole, or not at all."""
    from respool.cli.render import savepoint as text
    from respool.savepoint.create import SavepointRequest
    from respool.savepoint.create import create as make
    from respool.savepoint.store import SavepointStore

    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    where = locate(path, settings)
    wanted = SavepointRequest(where, name, batch, reason)
    tell = throttled("files copied")
    made = make(wanted, SavepointStore(settings.savepoint_store), position(settings, sink), tell)
    if json:
        out_json(text.savepoint_json(made))
        return
    manifest = made.manifest
    print_result(f"Savepoint {name} of {where} at batch {manifest.batch:,}: {_files_text(made)}.")
    if manifest.not_included:
        print_result(f"Not included, as neither Spark nor Delta defines it: {text.left_out_text(made)}.")
    print_result(f"Go back to it with: respool savepoint restore {name} {path}")


@app.command(name="list")
def list_(savepoints: Savepoints = None, home: Home = None, json: Json = False) -> None:
    """List the savepoints, the oldest first."""
    from respool.cli.render import savepoint as text
    from respool.savepoint.store import SavepointStore

    settings = load(home=home, savepoints=savepoints)
    store = SavepointStore(settings.savepoint_store)
    found, damaged = store.read_all()
    if json:
        out_json([text.savepoint_json(one) for one in found])
    else:
        columns = ("name", "pipeline", "batch", "created", "watermark", "files", "size", "checkpoint", "reason")
        table([text.savepoint_row(one) for one in found], columns, f"No savepoint in {store.location}.")
    for one in damaged:
        print_note(f"warning: {one}")


@app.command()
def show(name: Name, savepoints: Savepoints = None, home: Home = None, json: Json = False) -> None:
    """Show a savepoint: its batch, offsets, watermark, state, the position of its output, its pipeline."""
    from respool.cli.render import savepoint as text

    found = find(name, load(home=home, savepoints=savepoints))
    if json:
        out_json({**text.savepoint_json(found), "files": [vars(one) for one in found.manifest.files]})
        return
    for line in text.savepoint_lines(found):
        print_result(line)


@app.command()
def verify(
    name: Name,
    load_state: Annotated[
        bool, typer.Option("--load", help="Also let Spark load all of the state, in a copy of its own.")
    ] = False,
    savepoints: Savepoints = None,
    master: Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]; RESPOOL_MASTER]")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check every byte of a savepoint against its manifest. Exit code 3 when something is broken."""
    from respool.savepoint.verify import verify as check

    settings = load(home=home, savepoints=savepoints, master=master)
    try:
        found = find(name, settings)
    except (DamagedFileError, UnknownFormatVersionError) as error:
        out_json({"savepoint": name, "ok": False, "wrong": [str(error)], "notes": []}) if json else print_result(
            f"✗ {error}"
        )
        raise typer.Exit(_BROKEN) from error
    checked = check(found, throttled("files read"))
    wrong, loaded = list(checked.wrong), None
    if load_state and not wrong:
        from respool.savepoint.verify import load as load_it
        from respool.spark.session import spark_session

        print_note(f"Starting Spark ({settings.master}) …")
        with spark_session(settings) as spark:
            loaded, failed = load_it(spark, found)
        wrong += failed
    if json:
        facts = {"savepoint": found.manifest.name, "ok": not wrong, "wrong": wrong, "notes": list(checked.notes)}
        out_json({**facts, "loaded": loaded} if load_state else facts)
    else:
        for one in wrong:
            print_result(f"✗ {one}")
        for one in checked.notes:
            print_result(f"• {one}")
        for what, rows in (loaded or {}).items():
            print_result(f"✓ {what}: {rows:,} row{'s' * (rows != 1)}")
        if not wrong:
            print_result(f"{_files_text(found)}, as they were saved. A query can start from it.")
    if wrong:
        raise typer.Exit(_BROKEN)


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name.")],
    yes: Yes = False,
    savepoints: Savepoints = None,
    home: Home = None,
) -> None:
    """Delete a savepoint for good. Forks of it are checkpoints of their own, and stay."""
    from respool.savepoint.store import SavepointStore

    store = SavepointStore(load(home=home, savepoints=savepoints).savepoint_store)
    left_over = "/" not in name and store.leftovers(name)
    if not left_over:
        found = store.get(name)
        print_result(f"Savepoint {name} of {found.manifest.checkpoint} at batch {found.manifest.batch:,}")
    if not yes:
        typer.confirm("Delete it for good?", abort=True)
    store.delete(name)
    print_result(f"What was left of a savepoint {name} is deleted." if left_over else f"Savepoint {name} is deleted.")


@app.command()
def copy(
    name: Name,
    target: Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the savepoints that it goes to.")],
    new_name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Another name for the copy.")] = None,
    savepoints: Savepoints = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Copy a savepoint to another place, such as an object store; every byte is checked on the way."""
    from respool.cli.render import savepoint as text
    from respool.savepoint.copying import copy_to
    from respool.savepoint.store import SavepointStore

    found = find(name, load(home=home, savepoints=savepoints))
    made = copy_to(found, SavepointStore(target), new_name, throttled("files copied"))
    if json:
        out_json(text.savepoint_json(made))
    else:
        print_result(f"Savepoint {made.manifest.name} is at {made.location}: {size(made.manifest.size)}.")


@app.command()
def restore(
    name: Name,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A pipeline's name, a folder, or a URL such as s3://…")],
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
    savepoints: Savepoints = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Put a checkpoint back to a savepoint. What was there is kept aside: `checkpoint undo` takes this back."""
    from respool.checkpoint.journal import history
    from respool.checkpoint.planning.request import RewindRequest, ToBatch
    from respool.locations import absolute
    from respool.savepoint import install
    from respool.savepoint.restore import plan_restore

    require_answer(json, yes, dry_run)
    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    found = find(name, settings)
    where = absolute(_target(path, settings))
    change = Change(where, path, dry_run, yes, json, accept_foreign=accept_foreign_journal)
    files, checkpoint = occupied(change.where)
    request = RewindRequest(
        ToBatch(found.manifest.next_batch),
        restore_sink=restore_sink,
        allow_data_loss=allow_data_loss,
        stopped=stopped,
        reason=reason,
        words=name,
    )
    cut_off = history.pending(files)
    if cut_off is not None:
        finish(change, cut_off, "restore", found.location, name)
        return
    world = world_for(found.manifest, checkpoint, change.where, settings, sink, request)
    plan = plan_restore(found, checkpoint, change.where, request, world, other_query)
    show_confirm_apply(
        change, plan, f"Restore of {change.where} to the savepoint {name}", "Restore?", install.carry_out
    )


@app.command()
def fork(
    name: Name,
    new_path: Annotated[str, typer.Argument(metavar="NEWPATH", help="A new folder or URL for the second query.")],
    allow_data_loss: AllowDataLoss = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Finish a fork that was cut off without asking.")] = False,
    accept_foreign_journal: AcceptForeign = False,
    savepoints: Savepoints = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make a checkpoint for a second query from the same moment, with an id of its own; both can go on side by side."""
    from respool.locations import absolute

    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    found = find(name, settings)
    change = Change(absolute(new_path), new_path, dry_run, yes, json, accept_foreign=accept_foreign_journal)
    make_fork(change, found, name, settings, allow_data_loss)
    if json or dry_run:
        return
    run = found.manifest.run
    if run is not None:
        print_result(f"Run it with: respool run {run.pipeline} --checkpoint {new_path} --sink-suffix -v2")
    else:
        print_result("Start your query on it, and let it write to a place of its own.")


def _files_text(savepoint: "Savepoint") -> str:
    return f"{len(savepoint.manifest.files):,} files, {size(savepoint.manifest.size)}"


def _target(path: str, settings: Settings) -> str:
    """Return the folder or URL that a restore goes to, which need not be there: a checkpoint may be lost."""
    try:
        return locate(path, settings)
    except CheckpointNotFoundError:
        return path if "/" in path else str(settings.checkpoints / path)
