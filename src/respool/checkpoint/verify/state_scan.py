"""Read the bytes of all state files, store by store, and find the damage in them.

The standard is what Spark does with a file. On a local disk Hadoop keeps a checksum next to each file, but Spark
compares it only when it copies zips of state format 1 and SST files. Elsewhere, if the checksums inside the file match,
a checksum file that does not match is reported as stale.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import DamagedFileError
from respool.format import layout, state_files, state_stream
from respool.format.model import StateStore
from respool.format.state_files import checksum, spark_checksum
from respool.storage.folder import FileInfo, is_denied, reason

_BYTES_AT_A_TIME = 64 << 20


@dataclass(frozen=True)
class FileDamage:
    """The damage of a file.

    Attributes:
        why: Why Spark cannot read it; None if it can.
        stale: Whether its hidden checksum does not match, which Spark ignores.
        tables: The SST files that a zip needs, with their sizes; None for other files and for a damaged zip.
    """

    why: str | None = None
    stale: bool = False
    tables: Mapping[str, int] | None = None


def damage_of(
    name: str, data: bytes, codec: str = "lz4", hidden: bytes | None = None, visible: bytes | None = None
) -> FileDamage:
    """Return the damage of a file of a state store.

    Args:
        name: Its name.
        data: Its bytes.
        codec: The codec in the checkpoint's settings.
        hidden: The bytes of Hadoop's checksum file; None when there is no such file.
        visible: The bytes of Spark's checksum file; None when there is no such file.
    """
    if not data:
        return FileDamage("it is empty")
    mismatch = None if hidden is None else checksum(data, hidden)
    file = layout.state_file(name)
    if file is None:  # an SST
        return FileDamage(mismatch)
    differs = None if visible is None else spark_checksum(data, visible)
    if file.kind == "zip":
        counts, ignored = (mismatch, None) if file.uid is None else (differs, mismatch)
        try:
            return FileDamage(counts, counts is None and ignored is not None, state_files.sst_files(name, data))
        except DamagedFileError as error:
            return FileDamage(error.problem)
    trusted = hidden is not None and mismatch is None
    why = state_stream.broken(file.kind, data, codec, trusted) or differs
    if not state_stream.has_checksums(codec):
        why = why or mismatch  # Spark would read wrong bytes silently
    return FileDamage(why, stale=mismatch is not None and why is None)


@dataclass
class StateScan:
    """The damage in the files of state stores.

    Attributes:
        damaged: The files that Spark cannot use, each path with the reason; a zip also because of its SST files.
        denied: The damaged files for which only a permission is missing.
        movable: The damaged zips that a rewind recognizes as damaged and moves aside.
        stale: Files whose hidden checksum does not match, which Spark ignores.
        orphans: SST files that no zip needs.
        vanished: Files that were listed but no longer existed when they were read.
    """

    damaged: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    movable: set[str] = field(default_factory=set)
    stale: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)


def read_state(checkpoint: CheckpointSnapshot, codec: str, on_read: Callable[[int], None]) -> StateScan:
    """Read every file of every store; `on_read` is called with the number of files read since its last call."""
    reader = _StoreReader(checkpoint, codec, on_read)
    for store in checkpoint.stores:
        reader.read(store)
    return reader.scan


def count(checkpoint: CheckpointSnapshot) -> int:
    """Return how many files `read_state` reads."""
    return sum(len(store.files) + len(_checked_tables(store)) for store in checkpoint.stores)


class _StoreReader:
    def __init__(self, checkpoint: CheckpointSnapshot, codec: str, on_read: Callable[[int], None]) -> None:
        self.scan = StateScan()
        self._checkpoint = checkpoint
        self._codec = codec
        self._on_read = on_read

    def read(self, store: StateStore) -> None:
        """Read the files of a store: SST files before the zips that need them."""
        tables = {f"{store.folder}/SSTs/{name}": name for name in store.tables if name.endswith(".sst")}
        paths = [f"{store.folder}/SSTs/{name}" for name in _checked_tables(store)]
        paths += [f"{store.folder}/{file.name}" for file in store.files]
        facts = self._checkpoint.files.facts({*paths, *tables})
        sizes = {name: facts[path].size for path, name in tables.items() if path in facts}
        wrong: dict[str, str] = {}  # SST files
        needed: set[str] = set()
        complete = True  # whether all zips could be read
        for path, verdict in self._verdicts(store, paths, facts):
            if path in tables:
                if verdict.why is not None:
                    wrong[tables[path]] = verdict.why
                continue
            complete = complete and (verdict.why is None or not path.endswith(".zip"))
            uses = verdict.tables or {}
            needed.update(uses)
            lacks = _lacks(uses, sizes)
            why = verdict.why or lacks or _wrong(uses, wrong)
            if why is not None:
                self.scan.damaged[path] = why
                if path.endswith(".zip") and (lacks or verdict.tables is None):
                    self.scan.movable.add(path)
            elif verdict.stale:
                self.scan.stale.append(path)
        if complete:
            self.scan.orphans += [path for path, name in sorted(tables.items()) if name not in needed]

    def _verdicts(
        self, store: StateStore, paths: Sequence[str], facts: Mapping[str, FileInfo]
    ) -> Iterator[tuple[str, FileDamage]]:
        names = {store.folder: set(self._checkpoint.folders[store.folder]), f"{store.folder}/SSTs": store.tables}
        for some in _groups(paths, facts):
            checksums = [companion for path in some for companion in _companions(path, names)]
            read = self._checkpoint.files.read_many([*some, *checksums])
            self._on_read(len(some))
            for path in some:
                data = read[path]
                if isinstance(data, FileNotFoundError):
                    self.scan.vanished.append(path)
                elif isinstance(data, bytes):
                    hidden, visible = (_bytes(read, companion) for companion in _companion_paths(path))
                    yield path, damage_of(path.rpartition("/")[2], data, self._codec, hidden, visible)
                else:
                    if is_denied(data):
                        self.scan.denied.add(path)
                    yield path, FileDamage(f"it cannot be read: {reason(data)}")


def _groups(paths: Sequence[str], facts: Mapping[str, FileInfo]) -> Iterator[list[str]]:
    """Yield groups of paths that are read together, so that the memory used is limited."""
    some: list[str] = []
    held = 0
    for path in paths:
        size = facts[path].size if path in facts else 0
        if some and held + size > _BYTES_AT_A_TIME:
            yield some
            some, held = [], 0
        some.append(path)
        held += size
    if some:
        yield some


def _lacks(tables: Mapping[str, int], sizes: Mapping[str, int]) -> str | None:
    for name, size in sorted(tables.items()):
        if name not in sizes:
            return f"it needs SSTs/{name}, which is missing"
        if sizes[name] != size:
            return f"it needs SSTs/{name}, which has {sizes[name]:,} bytes, expected {size:,}"
    return None


def _wrong(tables: Mapping[str, int], wrong: Mapping[str, str]) -> str | None:
    return next(
        (f"it needs SSTs/{table}, which is damaged: {wrong[table]}" for table in sorted(tables) if table in wrong), None
    )


def _checked_tables(store: StateStore) -> list[str]:
    """Return the SST files that have a checksum file; of other SST files only the size is checked."""
    return sorted(
        name for name in store.tables if name.endswith(".sst") and layout.hidden_checksum(name) in store.tables
    )


def _companion_paths(path: str) -> tuple[str, str]:
    return layout.hidden_checksum(path), layout.visible_checksum(path)


def _companions(path: str, names: Mapping[str, Set[str]]) -> list[str]:
    there = names[path.rpartition("/")[0]]
    return [companion for companion in _companion_paths(path) if companion.rpartition("/")[2] in there]


def _bytes(read: Mapping[str, "bytes | Exception"], path: str) -> bytes | None:
    data = read.get(path)
    return data if isinstance(data, bytes) else None
