"""Copy a savepoint to another place, on any filesystem."""

from dataclasses import replace

from respool.savepoint.copying import Tell, copy_known
from respool.savepoint.placement import require_store_place
from respool.savepoint.store import Savepoint, Store, new_folder


def copy_to(
    savepoint: Savepoint, store: Store, name: str | None = None, on_file: Tell = lambda done, total: None
) -> Savepoint:
    """Copy a savepoint into a store, under its own name or another; every byte is checked on the way.

    Raises:
        CheckpointError: The name is taken, or a file is damaged. Nothing is left then.
    """
    manifest = replace(savepoint.manifest, name=name or savepoint.manifest.name, data=new_folder())
    require_store_place(store.location)
    store.require_free(manifest.name)
    try:
        copy_known(manifest.files, savepoint.files(), store.writer(), f"{manifest.name}/{manifest.data}/", on_file)
        return store.add(manifest)
    except BaseException:
        store.discard(manifest.name, manifest.data)
        raise
