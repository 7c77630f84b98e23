"""`respool checkpoint`: look into a checkpoint, rewind it, and take that back. No JVM is started."""

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from respool.cli.options import BootstrapServers, Commands, Home, Json, Savepoints, Yes, load, require_answer
from respool.cli.render.output import out_json, print_note, print_result, size, table, throttled
from respool.cli.resuming import AcceptForeign, confirm, facts, own, require_trusted
from respool.errors import ChangeRefusedError, CheckpointInUseError, UnfinishedChangeError, UsageError
from respool.operations.context import locate, savepoints_of, target_of, world_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.checkpoint.journal.apply import Leftover
    from respool.checkpoint.journal.steps import Journal
    from respool.storage.lease import Lease

app = typer.Typer(
    cls=Commands,
    help="Look into a query's checkpoint, rewind it to an earlier batch, and take that back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Where = Annotated[str, typer.Argument(metavar="PATH", help="A pipeline's name, a folder, or a URL such as s3://…")]
Reason = Annotated[str | None, typer.Option(help="Why, for the history.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and stop.")]
_MARKS = {"ok": "✓", "note": "•", "unchecked": "?", "broken": "✗"}
_BROKEN = 3  # the exit code of `verify` when something is broken, as that of `audit`
_SHOWN_LEFTOVERS = 20


class Asked(TypedDict):
    """How a user wants to be asked about a change that was cut off: what `confirm` takes."""

    dry_run: bool
    yes: bool
    json: bool
    accept_foreign: bool


@app.command()
def show(
    path: Where,
    batches: Annotated[str, typer.Option(metavar="N|all", help="How many of the newest batches to list.")] = "100",
    savepoints: Savepoints = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show what a checkpoint holds: batches, offsets, watermark, state, and how far it can be rewound."""
    from respool.checkpoint.journal import apply, history
    from respool.checkpoint.ownership import fork_of, read_run_record
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.checkpoint.summary import summarize
    from respool.cli.render import checkpoint as text
    from respool.storage import lease
    from respool.storage.open import open_reader

    settings = load(home=home, savepoints=savepoints)
    where = locate(path, settings)
    count = _count(batches)
    files = open_reader(where)
    checkpoint = CheckpointSnapshot(files)
    found = summarize(checkpoint, count)
    run, running, past, fork = read_run_record(files), lease.holder(where), history.past(files), fork_of(files)
    kept = savepoints_of(checkpoint, settings)
    left = [] if running else apply.leftovers(files)  # a change that is being made has staged files of its own
    if json:
        whole = text.summary_json(found, run, running, past, kept, fork)
        out_json({**whole, "leftovers": [one.facts() for one in left]})
        return
    print_result(text.line("Checkpoint", found.root))
    print_result(text.line("Query", found.query_id or "lost: the file metadata is missing or damaged"))
    if run:
        print_result(text.line("Pipeline", f"{run.pipeline}: {run.topic} → {run.sink}"))
    if fork:
        print_result(
            text.line("Fork", f"of {fork.checkpoint}, from the savepoint {fork.savepoint} at batch {fork.batch:,}")
        )
    print_result(text.line("Runs", f"now, in {running}" if running else "no run of respool's own is known"))
    if found.settings:
        print_result(text.line("Spark", ", ".join(f"{name} {value}" for name, value in found.settings.items())))
    if found.untested:
        print_result(text.line("Untested", found.untested))
    print_result(text.line("Batches", _batches_text(found.kept, found.oldest, found.newest, found.next_batch)))
    print_result(text.line("Rewind", text.rewind_line(found)))
    cut_off = history.pending(files)
    if cut_off is not None:
        print_result(text.line("Unfinished", cut_off.interruption(path)))
    for line in _leftover_lines(left):
        print_result(text.line("Leftovers", f"{line}; the next change or `respool checkpoint purge {path}` deletes it"))
    if kept:
        print_result(text.line("Savepoints", text.savepoints_line(found, kept)))
    for picture in text.timeline(found, kept):
        print_result(f"  {picture}")
    print_result("")
    table(text.batch_rows(found), ("batch", "planned", "watermark", "read", "records", "finished"), "No batch yet.")
    if found.kept > len(found.batches):
        print_result(f"{found.kept - len(found.batches):,} older batches are kept too; --batches all lists them.")
    print_result("")
    columns = ("operator", "stores", "partitions", "versions", "files", "size", "format")
    table(text.operator_rows(found), columns, "No state.")
    if past:
        print_result("")
        print_result(f"{len(past)} change{'s' * (len(past) != 1)} by respool; see: respool checkpoint history {path}")


@app.command()
def verify(
    path: Where,
    quick: Annotated[bool, typer.Option("--quick", help="Look at names and logs only; read no state file.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check all that a restart relies on. Exit code 3 when something is broken."""
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.checkpoint.verify.run import verify as check_all
    from respool.storage.open import open_reader

    where = locate(path, load(home=home))
    checks = check_all(CheckpointSnapshot(open_reader(where)), deep=not quick, on_progress=throttled("files read"))
    broken = [one for one in checks if one.status == "broken"]
    unchecked = any(finding.status == "unchecked" for one in checks for finding in one.findings)
    if json:
        facts = {"checkpoint": where, "ok": not broken, "complete": not unchecked}
        out_json({**facts, "checks": [check.to_json() for check in checks]})
    else:
        for one in checks:
            print_result(f"{_MARKS[one.status]} {one.name}")
            for finding in one.findings:
                print_result(f"    {finding.what}")
                if finding.remedy:
                    print_result(f"    → {finding.remedy}")
        if broken:
            print_result(f"{len(broken)} of {len(checks)} checks found something broken.")
        elif unchecked:
            print_result("Nothing broken was found, but not everything could be checked: see above.")
        else:
            print_result("A restart will find all it needs.")
    if broken:
        raise typer.Exit(_BROKEN)


@app.command()
def rewind(
    path: Where,
    to_batch: Annotated[int | None, typer.Option(min=0, metavar="N", help="The batch to run next.")] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="The first batch planned at this time or after it, ISO 8601.")
    ] = None,
    to_offsets: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='The first batch that read at or beyond any: {"visits":{"0":120,"1":95}}.'),
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="K", help="So that the last K batches run again.")] = None,
    same_range: Annotated[
        bool, typer.Option("--same-range", help="Run that batch on the very records that it had.")
    ] = False,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[:PLACE]",
            help="Where the query writes, if respool did not run it: delta:PATH, files:PATH, kafka:TOPIC, …",
        ),
    ] = None,
    restore_sink: Annotated[
        bool, typer.Option("--restore-sink", help="Bring a Delta or file sink back to where it was, too.")
    ] = False,
    new_query_id: Annotated[bool, typer.Option("--new-query-id", help="Give the query a new id.")] = False,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Go on though the source has lost records.")
    ] = False,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="The query has ended, though its checkpoint looks as if it ran.")
    ] = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="The zone of a TIME without an offset.  [default: RESPOOL_TIMEZONE, respool.toml, UTC]",
        ),
    ] = None,
    reason: Reason = None,
    files_too: Annotated[bool, typer.Option("--files", help="List the files that move, too.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make an earlier batch the next to run. Files are moved aside, not deleted: `undo` brings them back."""
    from respool.checkpoint.journal import history
    from respool.checkpoint.planning.request import RewindRequest, is_requested
    from respool.checkpoint.planning.rewind import plan_rewind
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.cli.render import checkpoint as text
    from respool.storage.lease import wait_for_jvm
    from respool.storage.open import open_writer

    require_answer(json, yes, dry_run)
    settings = load(home=home, bootstrap_servers=bootstrap_servers, timezone=timezone)
    goal, words = target_of(to_batch, to_time, to_offsets, last, settings.timezone or "UTC")
    flags = (("--same-range", same_range), ("--restore-sink", restore_sink), ("--new-query-id", new_query_id))
    words = " ".join([words, *(flag for flag, given in flags if given)])
    request = RewindRequest(goal, same_range, restore_sink, new_query_id, allow_data_loss, stopped, reason, words)
    where = locate(path, settings)
    wait_for_jvm(where)
    files = open_writer(where)
    cut_off = history.pending(files)
    if cut_off is not None:
        if not is_requested(cut_off, request.identity(), words):
            raise UnfinishedChangeError(path, cut_off)
        asked: Asked = {"dry_run": dry_run, "yes": yes, "json": json, "accept_foreign": accept_foreign_journal}
        confirm(cut_off, where, "Finish this rewind?", **asked)
        if not dry_run:
            print_note("The rewind was cut off; it is finished now.")
            _carry_out(cut_off, where, path, new=False, in_place_of=cut_off)
        if json:
            out_json({**facts(cut_off, where), "done": not dry_run})
        elif not dry_run:
            print_result(
                f"Batch {cut_off.batch:,} is the next to run. Take this back with: respool checkpoint undo {path}"
            )
        return
    checkpoint = CheckpointSnapshot(files)
    found = plan_rewind(checkpoint, request, world_of(checkpoint, where, settings, sink, request))
    if not json:
        print_result(f"Rewind of {where}")
        for line in text.plan_lines(found, files_too):
            print_result(line)
    if found.refusals:
        if json:
            out_json(text.plan_json(found, done=False))
        raise ChangeRefusedError(found.refusals)
    if not dry_run:
        if not yes:
            typer.confirm("Rewind?", abort=True)
        _carry_out(found.journal, where, path, new=True)
    if json:
        out_json(text.plan_json(found, done=not dry_run))
    elif not dry_run:
        print_result(f"Batch {found.batch:,} is the next to run. Take this back with: respool checkpoint undo {path}")


@app.command()
def undo(
    path: Where,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_foreign_journal: AcceptForeign = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Take the last rewind, restore or promotion back, as long as the query has not run since."""
    from respool.checkpoint.journal import history
    from respool.checkpoint.planning.undo import plan_undo
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.cli.render import checkpoint as text
    from respool.storage.lease import wait_for_jvm
    from respool.storage.open import open_writer

    require_answer(json, yes, dry_run)
    where = locate(path, load(home=home))
    wait_for_jvm(where)
    files = open_writer(where)
    journal = plan_undo(CheckpointSnapshot(files), datetime.now(timezone.utc), reason)
    if not json:
        moved = f"{len(journal.moves):,} files, {size(sum(one.size for one in journal.moves))}"
        print_result(f"Undo of {journal.of}: {moved} come back; batch {journal.batch:,} is the next to run then.")
    cut_off = history.pending(files)
    if cut_off is not None:
        asked: Asked = {"dry_run": dry_run, "yes": yes, "json": json, "accept_foreign": accept_foreign_journal}
        confirm(cut_off, where, "Undo?", **asked)
    else:
        done = next(one for one in history.past(files) if one.id == journal.of)
        require_trusted(done, where, accept_foreign_journal or dry_run)
        if not dry_run and not yes:
            typer.confirm("Undo?", abort=True)
    if not dry_run:
        _carry_out(journal, where, path, new=cut_off is None, in_place_of=cut_off)
    if json:
        whole = text.journal_json(journal) if cut_off is None else facts(journal, where)
        out_json({**whole, "done": not dry_run})
    elif not dry_run:
        print_result(f"Batch {journal.batch:,} is the next to run, as before.")


@app.command(name="history")
def history_(path: Where, home: Home = None, json: Json = False) -> None:
    """List what respool did to a checkpoint: when, why, and what it moved."""
    from respool.checkpoint.journal import history
    from respool.cli.render import checkpoint as text
    from respool.storage.open import open_reader

    files = open_reader(locate(path, load(home=home)))
    past, cut_off = history.past(files), history.pending(files)
    if json:
        out_json([{**text.journal_json(one), "moved": [move.source for move in one.moves]} for one in past])
        return
    columns = ("time", "what", "batch", "asked", "reason", "moved", "state", "id")
    table([text.history_row(one) for one in past], columns, "respool has changed nothing here.")
    if cut_off is not None:
        print_result(cut_off.interruption(path))


@app.command()
def purge(
    path: Where,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="How old a change must be, as 7d or 12h.")] = "7d",
    dry_run: DryRun = False,
    yes: Yes = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Delete for good what old changes moved to _respool/aside, and what interrupted commands left.

    Those changes cannot be undone from then on.
    """
    from respool.checkpoint.journal import apply, history
    from respool.cli.render import checkpoint as text
    from respool.storage import lease
    from respool.storage.open import open_writer
    from respool.times import parse_duration

    require_answer(json, yes, dry_run)
    where = locate(path, load(home=home))
    files = open_writer(where)
    now = datetime.now(timezone.utc)
    age: timedelta = parse_duration(older_than)
    past = history.past(files)
    old = [one for one in past if history.undoable(one) and not one.purged]
    old = [one for one in old if now - one.started >= age]
    left = apply.leftovers(files) if lease.holder(where) is None else []
    if not json:
        table([text.history_row(one) for one in old], ("time", "what", "batch", "moved", "id"), "Nothing is that old.")
        for line in _leftover_lines(left):
            print_result(line)
    if (old or left) and not dry_run:
        if not yes:
            typer.confirm("Delete these files for good?", abort=True)
        with held(where, path):
            for one in old:
                apply.purge(one, files, now)
            left = apply.clear_leftovers(files)
    if json:
        purged = [text.journal_json(one) for one in old]
        out_json({"purged": purged, "leftovers": [one.facts() for one in left], "done": not dry_run})


def _count(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"--batches {text}: expected a number above 0, or all")
    return int(text)


def _batches_text(kept: int, oldest: int, newest: int, next_batch: int) -> str:
    if kept == 0:
        return "none yet"
    again = f"{next_batch:,} is next" if next_batch > newest else f"{next_batch:,} is not finished, and runs again"
    return f"{kept:,} kept, {oldest:,} to {newest:,}; {again}"


def _leftover_lines(left: "list[Leftover]") -> "Iterator[str]":
    for one in left[:_SHOWN_LEFTOVERS]:
        files = f"{one.files:,} file{'s' * (one.files != 1)}, " if one.files != 1 else ""
        yield f"left by an interrupted command: {one.path} ({files}{size(one.size)})"
    if len(left) > _SHOWN_LEFTOVERS:
        yield f"… and {len(left) - _SHOWN_LEFTOVERS:,} more"


def _carry_out(journal: "Journal", where: str, path: str, new: bool, in_place_of: "Journal | None" = None) -> None:
    from respool.checkpoint.journal import apply
    from respool.storage.open import open_writer

    with held(where, path) as lease:
        files = open_writer(where)
        tell = throttled("steps done")

        def told(done: int) -> None:
            lease.require()
            tell(done, len(journal.steps))

        if new:
            apply.apply(journal, files, told)
        elif in_place_of is not None and in_place_of.id != journal.id:
            apply.apply_undo(journal, files, told)
        else:
            apply.resume(own(journal, where, files), files, told)


def held(where: str, path: str) -> "Lease":
    """Hold a checkpoint for a change; raise CheckpointError when another process holds it."""
    from respool.storage import lease

    held = lease.hold(where)
    if held is None:
        raise CheckpointInUseError(path, lease.holder(where))
    return held
