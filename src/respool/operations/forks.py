"""A fork that a run starts from."""

from typing import TYPE_CHECKING

from respool.checkpoint.journal import history, installation
from respool.checkpoint.planning.request import RewindRequest, ToBatch, copy_identity, is_requested
from respool.errors import ChangeRefusedError, CheckpointError, CheckpointInUseError, UnfinishedChangeError
from respool.locations import OWN
from respool.operations.savepoints import occupied, world_for
from respool.savepoint import install, planning
from respool.settings import Settings
from respool.storage import lease

if TYPE_CHECKING:
    from respool.savepoint.store import Savepoint
    from respool.storage.folder import FolderWriter


def require_free(location: str, name: str, savepoint: "Savepoint", reference: str) -> "FolderWriter":
    """Return the folder for a fork; raise CheckpointError when it has anything but the same fork, interrupted."""
    files, _ = occupied(location)
    pending = history.pending(files)
    if pending is None:
        planning.require_new(location, [*files.names(""), *(folder for folder in files.folders("") if folder != OWN)])
    elif not is_requested(pending, copy_identity("fork", savepoint.location), reference):
        raise UnfinishedChangeError(name, pending)
    return files


def make_fork(location: str, name: str, savepoint: "Savepoint", reference: str, settings: Settings, loss: bool) -> None:
    """Fork a savepoint into a new folder, or finish a fork of it that was interrupted there."""
    files = require_free(location, name, savepoint, reference)
    journal = history.pending(files)
    if journal is None:
        request = RewindRequest(ToBatch(savepoint.manifest.next_batch), allow_data_loss=loss, words=reference)
        context = world_for(savepoint.manifest, None, location, settings, None, request)
        plan = planning.plan_fork(savepoint, location, request, context)
        if plan.refusals:
            raise ChangeRefusedError(plan.refusals)
        journal, cargo = plan.journal, plan.cargo
    else:
        why = installation.foreign(journal, location)
        if why is not None:
            raise CheckpointError(
                f"The journal in {location}/_respool was not written by this installation: {why}. Its steps could do "
                "harm. Finish or undo it with: respool savepoint fork. Nothing was changed."
            )
        cargo = planning.cargo_of(savepoint, location, journal.query_ids[-1])
    held = lease.hold(location)
    if held is None:
        raise CheckpointInUseError(name, lease.holder(location))
    try:
        with held:
            install.carry_out_fork(journal, cargo, files, lambda done, total: held.require())
    except BaseException:
        if history.pending(files) is None:  # nothing of the fork stays
            files.delete(f"{OWN}/lock")
            files.prune("")
        raise
