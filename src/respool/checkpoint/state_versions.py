"""Which versions of the state Spark can load.

A version is loaded from the newest snapshot at or below it, and the increments from there; the empty version 0 counts
as a snapshot. In state format 2 only files with the unique id that the batch's commit names belong to a version.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import BatchUnavailableError, CheckpointError, DamagedFileError
from respool.format.model import SNAPSHOTS, InclusiveRange, StateFile, StateStore, spans
from respool.format.state_files import sst_files
from respool.storage.folder import read_error
from respool.text import number_range


@dataclass(frozen=True)
class StateLoad:
    """The files from which one version of a store is loaded.

    Attributes:
        store: The store.
        snapshot: The snapshot; None for the empty version 0.
        increments: The deltas or changelogs applied to it, in order.
    """

    store: StateStore
    snapshot: StateFile | None
    increments: tuple[StateFile, ...]


def loadable(checkpoint: CheckpointSnapshot, store: StateStore) -> list[InclusiveRange]:
    """Return the versions of a store for which all files exist, judged by their names."""
    files = committed_files(checkpoint, store)
    snapshots = sorted({file.version for file in files if file.kind in SNAPSHOTS} | {0})
    runs = spans(sorted({file.version for file in files if file.kind not in SNAPSHOTS}))
    starts = [run.first for run in runs]
    ranges: list[InclusiveRange] = []
    for version in snapshots:
        at = bisect_right(starts, version + 1) - 1
        last = runs[at].last if at >= 0 and runs[at].last > version else version
        if ranges and ranges[-1].last >= version - 1:
            ranges[-1] = InclusiveRange(ranges[-1].first, max(ranges[-1].last, last))
        else:
            ranges.append(InclusiveRange(version, last))
    return ranges


def load_of(checkpoint: CheckpointSnapshot, store: StateStore, version: int) -> StateLoad:
    """Return the files from which a version is loaded; raise CheckpointError that names missing files."""
    if version == 0:
        return StateLoad(store, None, ())
    files = [file for file in committed_files(checkpoint, store) if file.version <= version]
    snapshot = max((file for file in files if file.kind in SNAPSHOTS), key=lambda file: file.version, default=None)
    start = snapshot.version if snapshot else 0
    by_version = {file.version: file for file in files if file.kind not in SNAPSHOTS and file.version > start}
    count = version - start - len(by_version)
    if count:
        first = next(number for number in range(start + 1, version + 1) if number not in by_version)
        last = next(number for number in range(version, start, -1) if number not in by_version)
        what = f"{'version' if count == 1 else 'versions'} {number_range(first, last)}"
        since = f"its newest snapshot is of version {start}" if snapshot else "it has no snapshot"
        raise BatchUnavailableError(f"The state of {store.place} lacks {what}: {since}")
    return StateLoad(store, snapshot, tuple(by_version[number] for number in range(start + 1, version + 1)))


def committed_files(checkpoint: CheckpointSnapshot, store: StateStore) -> list[StateFile]:
    """Return the files of a store that belong to committed batches: in state format 1 all of them."""
    if not any(file.uid for file in store.files):
        return list(store.files)
    expected = _ids(checkpoint, store)
    many: dict[int, set[str | None]] = {}
    for file in store.files:
        many.setdefault(file.version, set()).add(file.uid)

    def belongs(file: StateFile) -> bool:
        wanted = expected(file.version)
        return file.uid == wanted if wanted else len(many[file.version]) == 1

    return [file for file in store.files if belongs(file)]


def damaged_snapshots(checkpoint: CheckpointSnapshot, loads: Iterable[StateLoad]) -> dict[str, str]:
    """Return the RocksDB snapshots (zips) among `loads` that cannot be loaded, each path with the reason.

    The zips are read, in one request where the store supports it; SST files are only checked for existence and size.
    """
    wanted = {f"{load.store.folder}/{load.snapshot.name}": load for load in loads if load.snapshot is not None}
    zips = {path: load for path, load in wanted.items() if path.endswith(".zip")}
    damaged: dict[str, str] = {}
    needed: dict[str, dict[str, int]] = {}  # by zip: SST files and their sizes
    for path, data in checkpoint.files.read_many(list(zips)).items():
        if isinstance(data, Exception):
            damaged[path] = read_error(path, data).summary
            continue
        try:
            tables = sst_files(path, data)
        except DamagedFileError as error:
            damaged[path] = error.summary
            continue
        needed[path] = {f"{zips[path].store.folder}/SSTs/{name}": size for name, size in tables.items()}
    facts = checkpoint.files.facts({table for tables in needed.values() for table in tables})
    for path, tables in needed.items():
        wrong = [table for table, size in tables.items() if table not in facts or facts[table].size != size]
        if wrong:
            name, more = wrong[0].rpartition("/")[2], f", and {len(wrong) - 1} more" if wrong[1:] else ""
            what = "has another size" if wrong[0] in facts else "is missing"
            damaged[path] = f"{path} needs SSTs/{name}{more}, which {what}"
    return damaged


def _ids(checkpoint: CheckpointSnapshot, store: StateStore) -> Callable[[int], str | None]:
    """Return a function from a version to the unique id in its batch's commit for this store; None if there is none."""
    kept = set(checkpoint.commits)
    try:
        number = checkpoint.store_names(store.operator).index(store.name)
    except (CheckpointError, ValueError):
        number = 0
    known: dict[int, str | None] = {}

    def read(version: int) -> str | None:
        if version - 1 not in kept:
            return None
        try:
            partitions = checkpoint.committed(version - 1).state_ids.get(store.operator, ())
            return partitions[store.partition][number]
        except (CheckpointError, IndexError):
            return None

    def wanted(version: int) -> str | None:
        if version not in known:
            known[version] = read(version)
        return known[version]

    return wanted
