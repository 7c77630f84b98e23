"""Which files of a checkpoint a start after a batch needs: no more, and no less."""

from respool.checkpoint import file_log, layout, loading, sources, target
from respool.checkpoint.moves import with_companions
from respool.checkpoint.read import Checkpoint
from respool.errors import BatchUnavailableError
from respool.savepoint.extras import schema_logs

_STATE = "state/"


def needed(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Return the files that a start after a committed batch needs, with their checksum files.

    Raises:
        CheckpointError: They are not all there.
    """
    if "metadata" not in checkpoint.folders[""]:
        raise BatchUnavailableError(
            f"The checkpoint {checkpoint.root} has lost its file metadata, which holds the query's id"
        )
    why = target.log_obstacle(checkpoint, batch + 1, same_range=False)
    if why is not None:
        raise BatchUnavailableError(why)
    offsets = [f"offsets/{one}" for one in (batch - 1, batch) if one >= 0]
    paths = ["metadata", *schema_logs(checkpoint), *_sources(checkpoint, batch), *_state(checkpoint, batch), *offsets]
    return with_companions(checkpoint, [*paths, f"commits/{batch}"])


def _sources(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Return the files of the sources: of a log of input files, only what was read up to the batch."""
    later: set[str] = set()
    for one in checkpoint.planned(batch).sources:
        if sources.kind_of(one.end) == "files":
            later |= set(file_log.trim(checkpoint, one.source, int(one.end["logOffset"])).moves)
    folders = [folder for folder in checkpoint.folders if folder.startswith("sources/")]
    paths = [f"{folder}/{name}" for folder in sorted(folders) for name in sorted(checkpoint.folders[folder])]
    return [path for path in paths if path not in later and _counts(path)]


def _state(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Return the files of the state that the batch left: what describes it, then what makes its version."""
    paths = [path for first, path in layout.run_files(checkpoint.folders) if first <= batch]
    for folder in sorted(checkpoint.folders):
        if folder.startswith(_STATE) and folder.endswith("/_metadata"):
            paths += [f"{folder}/{name}" for name in sorted(checkpoint.folders[folder])]
    loads, _ = target.loads(checkpoint, batch + 1)
    for load in loads:
        files = [*([load.snapshot] if load.snapshot else []), *load.increments]
        paths += [f"{load.store.folder}/{one.name}" for one in files]
        if load.snapshot is not None and load.snapshot.kind == "zip":
            path = f"{load.store.folder}/{load.snapshot.name}"
            named = loading.files_named(path, checkpoint.files.read(path))
            paths += [f"{load.store.folder}/{name}" for name in named]
    return [path for path in paths if _counts(path)]


def _counts(path: str) -> bool:
    """Return whether a file counts by itself: checksum files come with theirs, and what was not finished does not."""
    name = path.rpartition("/")[2]
    return not layout.is_companion(name) and not layout.is_leftover(name)
