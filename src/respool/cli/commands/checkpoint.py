"""`respool checkpoint`: inspect a checkpoint, rewind it, and undo that. No JVM is started."""

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

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
from respool.cli.render.output import out_json, print_note, print_result, table, throttled
from respool.errors import UsageError
from respool.untrusted import is_decimal

if TYPE_CHECKING:
    from respool.operations.checkpoint import Checkpoint
    from respool.settings import Settings

app = typer.Typer(
    cls=Commands,
    help="Inspect, verify and rewind the checkpoint of a query.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def show(
    path: Where,
    batches: Annotated[str, typer.Option(metavar="N|all", help="How many batches to list, newest last.")] = "100",
    savepoints: SavepointsOption = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show batches, offsets, watermark, state and rewind targets."""
    from respool.cli.render import checkpoint as render

    checkpoint = _checkpoint(path, storage=storage, home=home, savepoints=savepoints)
    status = checkpoint.status(batches=_count(batches), on_note=print_note)
    if json:
        out_json(render.status_json(status))
    else:
        render.print_status(status, path)


@app.command()
def verify(
    path: Where,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check file names and logs only; read no state files.")
    ] = False,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check everything that a restart relies on. Exit code 3 if something is broken."""
    from respool.cli.render import checkpoint as render

    report = _checkpoint(path, storage=storage, home=home).verify(deep=not quick, on_progress=throttled("files read"))
    if json:
        out_json(report.to_json())
    else:
        render.print_report(report)
    if not report.ok:
        raise typer.Exit(BROKEN)


@app.command()
def rewind(
    path: Where,
    to_batch: Annotated[int | None, typer.Option(min=0, metavar="N", help="The batch to run next.")] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="The first batch planned at or after this time, in ISO 8601.")
    ] = None,
    to_offsets: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='The first batch that read at or beyond any of these: {"visits":{"0":120,"1":95}}.'
        ),
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="K", help="Replay the last K batches.")] = None,
    same_range: Annotated[
        bool, typer.Option("--same-range", help="Replay that batch with exactly the same records.")
    ] = False,
    sink: SinkOption = None,
    restore_sink: Annotated[
        bool, typer.Option("--restore-sink", help="Also roll a Delta or file sink back to its earlier state.")
    ] = False,
    new_query_id: Annotated[bool, typer.Option("--new-query-id", help="Give the query a new id.")] = False,
    allow_data_loss: AllowDataLoss = False,
    stopped: Stopped = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="Time zone of a TIME without an offset.  [default: RESPOOL_TIMEZONE, respool.toml, UTC]",
        ),
    ] = None,
    reason: Reason = None,
    files_too: Annotated[bool, typer.Option("--files", help="Also list the files that move.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    storage: Storage = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make an earlier batch the next to run. Files are moved aside, not deleted: `undo` moves them back."""
    require_answer(json, yes, dry_run)
    settings = load(storage=storage, home=home, bootstrap_servers=bootstrap_servers, timezone=timezone)
    target = _target(to_batch, to_time, to_offsets, last, settings.timezone or "UTC")
    checkpoint = _checkpoint(path, settings)
    plan = checkpoint.plan_rewind(
        **target,
        same_range=same_range,
        sink=sink,
        restore_sink=restore_sink,
        new_query_id=new_query_id,
        allow_data_loss=allow_data_loss,
        assume_stopped=stopped,
        reason=reason,
    )
    confirmation = Confirmation(dry_run, yes, json, accept_foreign_journal)
    show_confirm_apply(checkpoint, plan, confirmation, files_too=files_too)


@app.command()
def undo(
    path: Where,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Undo the last rewind, restore or promotion.

    Possible until the query has run again.
    """
    require_answer(json, yes, dry_run)
    checkpoint = _checkpoint(path, storage=storage, home=home)
    plan = checkpoint.plan_undo(reason=reason)
    show_confirm_apply(checkpoint, plan, Confirmation(dry_run, yes, json, accept_foreign_journal))


@app.command()
def history(path: Where, storage: Storage = None, home: Home = None, json: Json = False) -> None:
    """List the changes that respool made: when, why, what moved."""
    from respool.cli.render import checkpoint as render

    checkpoint = _checkpoint(path, storage=storage, home=home)
    changes, pending = checkpoint.history(), checkpoint.pending()
    if json:
        out_json([render.change_json(change) for change in changes])
        return
    columns = ("time", "what", "batch", "asked", "reason", "moved", "state", "id")
    table([render.history_row(change) for change in changes], columns, "respool has changed nothing here.")
    if pending is not None:
        print_result(pending.interruption(path))


@app.command()
def purge(
    path: Where,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="The minimum age of a change, such as 7d or 12h.")
    ] = "7d",
    dry_run: DryRun = False,
    yes: Yes = False,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Permanently delete the files that old changes moved aside.

    Files that interrupted commands left are deleted, too. These changes can no longer be undone.
    """
    from respool.cli.render import checkpoint as render
    from respool.times import parse_duration

    require_answer(json, yes, dry_run)
    checkpoint = _checkpoint(path, storage=storage, home=home)
    age, now = parse_duration(older_than), datetime.now(timezone.utc)
    result = checkpoint.purge(older_than=age, dry_run=True, now=now)
    if not json:
        render.print_purge(result)
    if (result.changes or result.leftovers) and not dry_run:
        if not yes:
            typer.confirm("Delete these files for good?", abort=True)
        result = checkpoint.purge(older_than=age, now=now)
    if json:
        out_json({**render.purge_json(result), "done": not dry_run})


def _checkpoint(path: str, settings: "Settings | None" = None, **flags: Any) -> "Checkpoint":
    from respool.operations.checkpoint import Checkpoint

    return Checkpoint(path, settings=settings or load(**flags))


def _target(
    to_batch: int | None, to_time: str | None, to_offsets: str | None, last: int | None, zone: str
) -> dict[str, Any]:
    """Return the target of a rewind as `Checkpoint.plan_rewind` takes it."""
    from respool.times import parse_time

    if len([option for option in (to_batch, to_time, to_offsets, last) if option is not None]) != 1:
        raise UsageError("name one of --to-batch, --to-time, --to-offsets and --last")
    return {
        "to_batch": to_batch,
        "to_time": None if to_time is None else parse_time(to_time, ZoneInfo(zone)),
        "to_offsets": None if to_offsets is None else _offsets(to_offsets),
        "last": last,
    }


def _offsets(text: str) -> dict[str, dict[int, int]]:
    from respool.checkpoint.planning.request import parse_offsets

    try:
        offsets = parse_offsets(text)
    except ValueError:
        raise UsageError(f'--to-offsets {text}: expected JSON such as {{"visits":{{"0":120,"1":95}}}}') from None
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics


def _count(text: str) -> int | None:
    if text == "all":
        return None
    if not is_decimal(text) or int(text) == 0:
        raise UsageError(f"--batches {text}: expected a number above 0, or all")
    return int(text)
