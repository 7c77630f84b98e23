"""`respool promote`: a fork becomes the checkpoint of its pipeline."""

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.changes import Change, finish, show_confirm_apply
from respool.cli.commands.checkpoint import DryRun, Reason, held
from respool.cli.commands.savepoint import AllowDataLoss, Stopped
from respool.cli.options import BootstrapServers, Home, Json, Savepoints, Yes, load, require_answer
from respool.cli.render.output import print_note, print_result
from respool.cli.resuming import AcceptForeign
from respool.operations.context import locate, users_of, world_at
from respool.operations.savepoints import SinkOption, occupied, position

if TYPE_CHECKING:
    from respool.checkpoint.journal.steps import Journal
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.savepoint.copying import ProgressCallback
    from respool.savepoint.install import InstallSet
    from respool.savepoint.manifest import SavepointManifest
    from respool.storage.folder import FolderWriter


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
    from respool.checkpoint import snapshot
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import read_run_record
    from respool.checkpoint.planning.request import RewindRequest, ToBatch
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.errors import UnfinishedChangeError, UsageError
    from respool.locations import absolute
    from respool.savepoint.create import SavepointRequest, create
    from respool.savepoint.install import promote as carry_out
    from respool.savepoint.promote import plan_promote
    from respool.savepoint.store import SavepointStore, check_name, name_taken
    from respool.storage import lease
    from respool.storage.open import open_writer

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
    forked = CheckpointSnapshot(open_writer(source))
    unfinished = history.pending(forked.files)
    if unfinished is not None:
        raise UnfinishedChangeError(fork, unfinished)
    store = SavepointStore(settings.savepoint_store)
    name = keep_as or f"before-promote-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    check_name(name)
    keeps = checkpoint is not None and bool(checkpoint.commits)
    kept = store.has(name) and checkpoint is not None and _is_of(store.get(name).manifest, checkpoint)
    if store.has(name) and not kept:
        raise name_taken(name)
    request = RewindRequest(
        ToBatch(forked.next_batch),
        restore_sink=restore_sink,
        new_query_id=True,  # the pipeline goes on under the fork's
        allow_data_loss=allow_data_loss,
        stopped=stopped,
        reason=reason,
        words=fork,
    )
    run = read_run_record(checkpoint.files) if checkpoint else None
    ids = history.query_ids(checkpoint) if checkpoint else ()
    world = world_at(where, settings, sink, request, run, forked.next_batch, ids, snapshot.topics(forked))
    found = plan_promote(forked, checkpoint, where, request, world, lease.holder(source), users_of(source))

    def work(journal: "Journal", brought: "InstallSet", files: "FolderWriter", tell: "ProgressCallback") -> None:
        with held(source, fork):
            if keeps and not kept:  # kept by a promotion that was cut off before it began
                create(
                    SavepointRequest(where, name, reason=f"before {fork} was promoted"), store, position(settings, sink)
                )
                print_note(f"The old checkpoint is kept as the savepoint {name}.")
            carry_out(journal, brought, files, open_writer(source), tell)

    show_confirm_apply(change, found, f"Promotion of {source} to {where}", "Promote?", work)
    if not json and not dry_run and run is not None:
        print_result(f"Run it with: respool run {run.pipeline}" + ("" if "/" not in path else f" --checkpoint {path}"))


def _is_of(manifest: "SavepointManifest", checkpoint: "CheckpointSnapshot") -> bool:
    newest = checkpoint.commits[-1] if checkpoint.commits else None
    return (manifest.query_id, manifest.batch) == (checkpoint.query_id, newest)
