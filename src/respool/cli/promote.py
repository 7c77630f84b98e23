"""`respool promote`: a fork becomes the checkpoint of its pipeline."""

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.bringing import Change, finish, settle
from respool.cli.checkpoint import DryRun, Reason, held
from respool.cli.checkpoint_inputs import locate, users_of, world_at
from respool.cli.options import BootstrapServers, Home, Json, Savepoints, Yes, load, require_answer
from respool.cli.render import out, say
from respool.cli.resuming import AcceptForeign
from respool.cli.savepoint import AllowDataLoss, Stopped
from respool.cli.savepoint_inputs import SinkOption, occupied, position

if TYPE_CHECKING:
    from respool.checkpoint.files import Writer
    from respool.checkpoint.read import Checkpoint
    from respool.checkpoint.steps import Journal
    from respool.savepoint.bring import Cargo
    from respool.savepoint.copying import Tell
    from respool.savepoint.manifest import Manifest


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
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
) -> None:
    """Make a fork the pipeline's checkpoint from now on. The old one is kept as a savepoint; `undo` takes this back.

    Both queries must have stopped. The pipeline goes on from where the fork was, and writes to its own output.
    """
    from respool.checkpoint import history, lease, plan
    from respool.checkpoint.claim import last_run
    from respool.checkpoint.files import absolute, open_writer
    from respool.checkpoint.read import Checkpoint
    from respool.checkpoint.request import Request
    from respool.checkpoint.target import ToBatch
    from respool.errors import UnfinishedChangeError, UsageError
    from respool.savepoint.create import Wanted, create
    from respool.savepoint.plan import plan_promote
    from respool.savepoint.promote import promote as carry_out
    from respool.savepoint.store import Store, check_name, taken

    require_answer(json, yes, dry_run)
    settings = load(home=home, bootstrap_servers=bootstrap_servers, savepoints=savepoints)
    source, where = absolute(locate(fork, settings)), absolute(locate(path, settings))
    if source == where:
        raise UsageError("FORK and PATH are the same checkpoint")
    change = Change(where, path, dry_run, yes, json, accept_foreign=accept_foreign_journal)
    files, checkpoint = occupied(where)
    cut_off = history.pending(files)
    if cut_off is not None:
        finish(change, cut_off, "promote", source, fork)
        return
    forked = Checkpoint(open_writer(source))
    unfinished = history.pending(forked.files)
    if unfinished is not None:
        raise UnfinishedChangeError(fork, unfinished)
    store = Store(settings.savepoint_store)
    name = keep_as or f"before-promote-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    check_name(name)
    keeps = checkpoint is not None and bool(checkpoint.commits)
    kept = store.has(name) and checkpoint is not None and _is_of(store.get(name).manifest, checkpoint)
    if store.has(name) and not kept:
        raise taken(name)
    request = Request(
        ToBatch(forked.next_batch),
        restore_sink=restore_sink,
        new_query_id=True,  # the pipeline goes on under the fork's
        allow_data_loss=allow_data_loss,
        stopped=stopped,
        reason=reason,
        words=fork,
    )
    run = last_run(checkpoint.files) if checkpoint else None
    ids = plan.query_ids(checkpoint) if checkpoint else ()
    world = world_at(where, settings, sink, request, run, forked.next_batch, ids, plan.topics(forked))
    found = plan_promote(forked, checkpoint, where, request, world, lease.holder(source), users_of(source))

    def work(journal: "Journal", brought: "Cargo", files: "Writer", tell: "Tell") -> None:
        with held(source, fork):
            if keeps and not kept:  # kept by a promotion that was cut off before it began
                create(Wanted(where, name, reason=f"before {fork} was promoted"), store, position(settings, sink))
                say(f"The old checkpoint is kept as the savepoint {name}.")
            carry_out(journal, brought, files, open_writer(source), tell)

    settle(change, found, f"Promotion of {source} to {where}", "Promote?", work)
    if not json and not dry_run and run is not None:
        out(f"Run it with: respool run {run.pipeline}" + ("" if "/" not in path else f" --checkpoint {path}"))


def _is_of(manifest: "Manifest", checkpoint: "Checkpoint") -> bool:
    newest = checkpoint.commits[-1] if checkpoint.commits else None
    return (manifest.query_id, manifest.batch) == (checkpoint.query_id, newest)
