"""`respool savepoint`: keep a moment of a query, go back to it, start a second query from it. Mostly without a JVM."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.checkpoint import DryRun, Reason, Where, held
from respool.cli.checkpoint_inputs import locate
from respool.cli.options import BootstrapServers, Home, Json, Savepoints, Yes, load
from respool.cli.render import every_other_second, out, out_json, say, size, table
from respool.cli.savepoint_inputs import SinkOption, find, occupied, position, world_for
from respool.errors import CheckpointError
from respool.settings import Settings

if TYPE_CHECKING:
    from respool.checkpoint.files import Writer
    from respool.checkpoint.steps import Journal
    from respool.savepoint.bring import Cargo
    from respool.savepoint.copying import Tell
    from respool.savepoint.plan import BringPlan
    from respool.savepoint.store import Savepoint

    Work = Callable[[Journal, Cargo, Writer, Tell], None]

app = typer.Typer(
    help="Keep a moment of a query under a name; go back to it, or start a second query from it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A savepoint's name, or its own folder or URL.")]
Stopped = Annotated[bool, typer.Option("--stopped", help="The query has ended, though it wrote a moment ago.")]
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
    from respool.cli import savepoint_text as text
    from respool.savepoint.create import Wanted
    from respool.savepoint.create import create as make
    from respool.savepoint.store import Store

    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    where = locate(path, settings)
    wanted = Wanted(where, name, batch, reason)
    tell = every_other_second("files copied")
    made = make(wanted, Store(settings.savepoint_store), position(settings, sink), tell)
    if json:
        out_json(text.savepoint_json(made))
        return
    manifest = made.manifest
    out(f"Savepoint {name} of {where} at batch {manifest.batch:,}: {_files_text(made)}.")
    out(f"Go back to it with: respool savepoint restore {name} {path}")


@app.command(name="list")
def list_(savepoints: Savepoints = None, home: Home = None, json: Json = False) -> None:
    """List the savepoints, the oldest first."""
    from respool.cli import savepoint_text as text
    from respool.savepoint.store import Store

    settings = load(home=home, savepoints=savepoints)
    store = Store(settings.savepoint_store)
    found = store.all()
    if json:
        out_json([text.savepoint_json(one) for one in found])
    else:
        columns = ("name", "pipeline", "batch", "created", "watermark", "files", "size", "checkpoint", "reason")
        table([text.savepoint_row(one) for one in found], columns, f"No savepoint in {store.location}.")
    for one in store.damaged():
        say(f"warning: {one}")


@app.command()
def show(name: Name, savepoints: Savepoints = None, home: Home = None, json: Json = False) -> None:
    """Show a savepoint: its batch, offsets, watermark, state, the position of its output, its pipeline."""
    from respool.cli import savepoint_text as text

    found = find(name, load(home=home, savepoints=savepoints))
    if json:
        out_json({**text.savepoint_json(found), "files": [vars(one) for one in found.manifest.files]})
        return
    for line in text.savepoint_lines(found):
        out(line)


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
    found = find(name, settings)
    checked = check(found, every_other_second("files read"))
    wrong, loaded = list(checked.wrong), None
    if load_state and not wrong:
        from respool.local.session import spark_session
        from respool.savepoint.load import load as load_it

        say(f"Starting Spark ({settings.master}) …")
        with spark_session(settings) as spark:
            loaded, failed = load_it(spark, found)
        wrong += failed
    if json:
        facts = {"savepoint": found.manifest.name, "ok": not wrong, "wrong": wrong, "notes": list(checked.notes)}
        out_json({**facts, "loaded": loaded} if load_state else facts)
    else:
        for one in wrong:
            out(f"✗ {one}")
        for one in checked.notes:
            out(f"• {one}")
        for what, rows in (loaded or {}).items():
            out(f"✓ {what}: {rows:,} rows")
        if not wrong:
            out(f"{_files_text(found)}, as they were saved. A query can start from it.")
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
    from respool.savepoint.store import Store

    store = Store(load(home=home, savepoints=savepoints).savepoint_store)
    left_over = "/" not in name and store.leftovers(name)
    if not left_over:
        found = store.get(name)
        out(f"Savepoint {name} of {found.manifest.checkpoint} at batch {found.manifest.batch:,}")
    if not yes:
        typer.confirm("Delete it for good?", abort=True)
    store.delete(name)
    out(f"What was left of a savepoint {name} is deleted." if left_over else f"Savepoint {name} is deleted.")


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
    from respool.cli import savepoint_text as text
    from respool.savepoint.move import copy_to
    from respool.savepoint.store import Store

    found = find(name, load(home=home, savepoints=savepoints))
    made = copy_to(found, Store(target), new_name, every_other_second("files copied"))
    if json:
        out_json(text.savepoint_json(made))
    else:
        out(f"Savepoint {made.manifest.name} is at {made.location}: {size(made.manifest.size)}.")


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
    savepoints: Savepoints = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Put a checkpoint back to a savepoint. What was there is kept aside: `checkpoint undo` takes this back."""
    from respool.checkpoint import history
    from respool.checkpoint.files import absolute
    from respool.checkpoint.request import Request
    from respool.checkpoint.target import ToBatch
    from respool.savepoint import bring
    from respool.savepoint.plan import plan_restore

    _require_answer(json, yes, dry_run)
    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    found = find(name, settings)
    where = absolute(_target(path, settings))
    files, checkpoint = occupied(where)
    request = Request(
        ToBatch(found.manifest.next_batch),
        restore_sink=restore_sink,
        allow_data_loss=allow_data_loss,
        stopped=stopped,
        reason=reason,
        words=name,
    )
    cut_off = history.pending(files)
    if cut_off is not None:
        finish(cut_off, "restore", name, where, path, dry_run, json)
        return
    world = world_for(found.manifest, checkpoint, where, settings, sink, request)
    plan = plan_restore(found, checkpoint, where, request, world, other_query)
    settle(
        plan,
        f"Restore of {where} to the savepoint {name}",
        "Restore?",
        where,
        path,
        dry_run,
        yes,
        json,
        bring.carry_out,
    )


@app.command()
def fork(
    name: Name,
    new_path: Annotated[str, typer.Argument(metavar="NEWPATH", help="A new folder or URL for the second query.")],
    allow_data_loss: AllowDataLoss = False,
    dry_run: DryRun = False,
    savepoints: Savepoints = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make a checkpoint for a second query from the same moment, with an id of its own; both can go on side by side."""
    from respool.checkpoint.files import absolute

    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    found = find(name, settings)
    make_fork(found, name, absolute(new_path), new_path, settings, allow_data_loss, dry_run, json)
    if json or dry_run:
        return
    run = found.manifest.run
    if run is not None:
        out(f"Run it with: respool run {run.pipeline} --checkpoint {new_path} --sink-suffix -v2")
    else:
        out("Start your query on it, and let it write to a place of its own.")


def _files_text(savepoint: "Savepoint") -> str:
    return f"{len(savepoint.manifest.files):,} files, {size(savepoint.manifest.size)}"


def make_fork(
    found: "Savepoint",
    name: str,
    where: str,
    path: str,
    settings: Settings,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    json: bool = False,
    tell: Callable[[str], None] = out,
) -> None:
    """Fork a savepoint into a new folder, or finish a fork of it that was cut off there.

    Args:
        found: The savepoint.
        name: Its name as the user gave it.
        where: The new folder or URL.
        path: The same as the user gave it.
        settings: Where Kafka is.
        allow_data_loss: Go on though the source has lost records.
        dry_run: Only show the plan.
        json: Show it as JSON.
        tell: Takes what is shown otherwise.
    """
    from respool.checkpoint import history
    from respool.checkpoint.files import OWN
    from respool.checkpoint.request import Request
    from respool.checkpoint.target import ToBatch
    from respool.savepoint import bring
    from respool.savepoint.plan import fork_cargo, plan_fork, require_new

    files, _ = occupied(where)
    cut_off = history.pending(files)
    if cut_off is not None:
        if (cut_off.operation, cut_off.request) != ("fork", name):
            raise CheckpointError(cut_off.cut_off(path))
        say(f"A fork to {where} was cut off" + ("." if dry_run else "; it is finished now."))
        if not dry_run:
            with held(where, path):
                brought = fork_cargo(found, where, cut_off.query_ids[-1])
                bring.carry_out_fork(cut_off, brought, files, every_other_second("files copied"))
        return
    require_new(where, [*files.names(""), *(one for one in files.folders("") if one != OWN)])
    request = Request(ToBatch(found.manifest.next_batch), allow_data_loss=allow_data_loss, words=name)
    world = world_for(found.manifest, None, where, settings, None, request)
    plan = plan_fork(found, where, request, world)
    title = f"Fork of the savepoint {name} to {where}"
    settle(plan, title, "", where, path, dry_run, True, json, bring.carry_out_fork, tell)


def settle(
    plan: "BringPlan",
    title: str,
    question: str,
    where: str,
    path: str,
    dry_run: bool,
    yes: bool,
    json: bool,
    work: "Work",
    tell: Callable[[str], None] = out,
) -> None:
    """Show a plan, ask, and carry it out; raise CheckpointError when it is refused."""
    from respool.checkpoint.files import new_writer
    from respool.cli import savepoint_text as text

    if not json:
        tell(title)
        for line in text.plan_lines(plan):
            tell(line)
    if plan.refusals:
        if json:
            out_json(text.plan_json(plan, done=False))
        reasons = "the reason above" if len(plan.refusals) == 1 else "the reasons above"
        raise CheckpointError(f"Refused, for {reasons}. Nothing was changed.")
    if not dry_run:
        if not yes:
            typer.confirm(question, abort=True)
        _carry_out(plan.journal, plan.cargo, where, path, new_writer(where), work)
    if json:
        out_json(text.plan_json(plan, done=not dry_run))
    elif not dry_run:
        undo = f" Take this back with: respool checkpoint undo {path}" if plan.journal.operation != "fork" else ""
        tell(f"Batch {plan.batch:,} is the next to run.{undo}")


def _carry_out(journal: "Journal", brought: "Cargo", where: str, path: str, files: "Writer", work: "Work") -> None:
    made = journal.operation == "fork"
    try:
        with held(where, path):
            work(journal, brought, files, every_other_second("files copied"))
    except BaseException:
        if made and not files.names("") and not files.folders("offsets"):
            files.delete("_respool/lock")
            files.prune("")
        raise


def finish(journal: "Journal", operation: str, words: str, where: str, path: str, dry_run: bool, json: bool) -> None:
    """Finish a change that was cut off, if it is the one that is asked for again; raise CheckpointError if not."""
    from respool.checkpoint import apply
    from respool.checkpoint.files import open_writer
    from respool.cli import checkpoint_text as text

    if (journal.operation, journal.request) != (operation, words):
        raise CheckpointError(journal.cut_off(path))
    say(f"A {operation} of {where} was cut off" + ("." if dry_run else "; it is finished now."))
    if not dry_run:
        with held(where, path):
            apply.finish(journal, open_writer(where))
    if json:
        out_json({**text.journal_json(journal), "done": not dry_run})
    elif not dry_run:
        out(f"Batch {journal.batch:,} is the next to run. Take this back with: respool checkpoint undo {path}")


def _target(path: str, settings: Settings) -> str:
    """Return the folder or URL that a restore goes to, which need not be there: a checkpoint may be lost."""
    try:
        return locate(path, settings)
    except CheckpointError:
        return path if "/" in path else str(settings.checkpoints / path)


def _require_answer(json: bool, yes: bool, dry_run: bool) -> None:
    if json and not (yes or dry_run):
        raise typer.BadParameter("--json cannot ask: add --yes or --dry-run")
