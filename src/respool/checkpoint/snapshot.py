"""A checkpoint as it was when it was listed, and how far its query had read."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from respool.errors import CheckpointError, CheckpointNotFoundError, UnreadableFileError
from respool.format import layout, logs, model, state_files
from respool.format.model import CommitLogEntry, OffsetLogEntry, StateStore
from respool.storage.folder import FolderListing, FolderReader, read_error
from respool.storage.open import open_reader
from respool.times import EPOCH

T = TypeVar("T")


class CheckpointSnapshot:
    """The content of a checkpoint: its files are listed once; a log file is read on first use and cached."""

    def __init__(self, files: FolderReader, is_copy: bool = False) -> None:
        """List the checkpoint; nothing is read yet.

        Args:
            files: Its folder.
            is_copy: Whether it was copied there: the addresses in it name the original location.
        """
        self.files = files
        self.is_copy = is_copy
        self.listing: FolderListing = files.walk()
        self.folders = self.listing.folders
        self.offsets = layout.batches(self.folders.get("offsets", ()))
        self.commits = layout.batches(self.folders.get("commits", ()))
        self._read: dict[str, Any] = {}

    @property
    def root(self) -> str:
        """The folder or URL of the checkpoint."""
        return self.files.root

    @cached_property
    def stores(self) -> tuple[StateStore, ...]:
        """Its state stores."""
        return layout.stores(self.folders)

    @cached_property
    def query_id(self) -> str:
        """The query's id; CheckpointError when `metadata` is lost or damaged."""
        if "metadata" not in self.folders[""]:
            raise UnreadableFileError(self.root, "has lost its file metadata, which holds the query's id")
        return logs.query_id(logs.decode("metadata", self.files.read("metadata")))

    @cached_property
    def unknown_provider(self) -> str | None:
        """The class of the query's state store when it has state that respool cannot read; None otherwise."""
        if not any(folder.startswith("state/") for folder in self.folders):
            return None
        try:
            return model.unknown_provider(self.newest_planned().conf)
        except CheckpointError:
            return None

    @property
    def next_batch(self) -> int:
        """The batch that a restarted query runs first."""
        newest = self.offsets[-1] if self.offsets else -1
        return newest + 1 if self.commits and self.commits[-1] >= newest else max(newest, 0)

    def has(self, folder: str, batch: int) -> bool:
        """Return whether `offsets` or `commits` has a file of a batch."""
        batches = self.offsets if folder == "offsets" else self.commits
        at = bisect_left(batches, batch)
        return at < len(batches) and batches[at] == batch

    def planned(self, batch: int) -> OffsetLogEntry:
        """Return the planned offsets of a batch; raise CheckpointError when its file is missing or damaged."""
        return self._log(f"offsets/{batch}", logs.parse_offset_log)

    def kafka_ends(self, batch: int) -> dict[tuple[str, int], int]:
        """Return the next Kafka offsets to read after a batch, by topic and partition; raise as `planned` does."""
        return self.planned(batch).kafka_ends()

    def newest_planned(self) -> OffsetLogEntry:
        """Return the planned offsets of the newest batch whose file is not damaged."""
        for batch in reversed(self.offsets):
            with suppress(CheckpointError):
                return self.planned(batch)
        raise CheckpointError(f"The checkpoint {self.root} has no file in offsets that can be read.")

    def committed(self, batch: int) -> CommitLogEntry:
        """Return the commit of a batch; raise CheckpointError when its file is missing or damaged."""
        return self._log(f"commits/{batch}", logs.parse_commit_log)

    def read_ahead(self, paths: Iterable[str]) -> None:
        """Read log files in one request where the store supports it; errors are raised when a file is used."""
        wanted = [path for path in paths if path not in self._read]
        self._read.update(self.files.read_many(wanted))

    def store_names(self, operator: int) -> tuple[str, ...]:
        """Return the names of an operator's stores, in the order of their unique ids."""
        for path in self._operator_metadata(operator):
            with suppress(CheckpointError):  # Spark does not need it either
                return self._log(path, logs.operator_stores)
        return tuple(sorted({store.name for store in self.stores if store.operator == operator}))

    def partitions(self, batch: int) -> int | None:
        """Return how many partitions the state of a batch has; None when the checkpoint does not record it."""
        setting = self.planned(batch).conf.get("spark.sql.shuffle.partitions")
        return int(setting) if setting else None

    def partitions_of(self, operator: int, partitions: int | None) -> int:
        """Return how many partitions an operator has, given the query's number of partitions; None if that is unknown.

        An operator whose state has no key, such as a total of all rows or a limit, has one partition.
        """
        own = {store.partition for store in self.stores if store.operator == operator}
        if partitions is None:
            return max(own, default=-1) + 1
        return 1 if own == {0} and partitions > 1 and self._has_no_key(operator) else partitions

    def _has_no_key(self, operator: int) -> bool:
        path = f"state/{operator}/0/_metadata/schema"
        if path not in self._read:
            try:
                keys = [family.key["fields"] for family in state_files.families(self.files.read(path))]
                self._read[path] = all(field["type"] == "void" for fields in keys for field in fields)
            except (OSError, CheckpointError, ValueError, KeyError, TypeError):
                self._read[path] = False  # reported where the file is needed
        return bool(self._read[path])

    def _operator_metadata(self, operator: int) -> list[str]:
        base = f"state/{operator}/_metadata"
        if "metadata" in self.folders.get(base, ()):
            return [f"{base}/metadata"]
        runs = layout.batches(self.folders.get(f"{base}/v2", ()))
        return [f"{base}/v2/{runs[-1]}"] if runs else []

    def _log(self, path: str, parse: Callable[[str, str], T]) -> T:
        content = self._read.get(path)
        if content is None:
            try:
                content = self.files.read(path)
            except (OSError, CheckpointError) as error:
                content = error
        if isinstance(content, bytes):
            try:
                content = parse(path, logs.decode(path, content))
            except CheckpointError as error:
                content = error
        self._read[path] = content
        if isinstance(content, FileNotFoundError):
            raise UnreadableFileError(path, "is missing") from content
        if isinstance(content, CheckpointError):
            raise content
        if isinstance(content, Exception):
            raise read_error(path, content) from content
        result: T = content
        return result


def with_companions(checkpoint: CheckpointSnapshot, paths: Sequence[str]) -> list[str]:
    """Return the paths, each with its checksum files, which are useless without it."""
    names: dict[str, set[str]] = {}
    result: dict[str, None] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in names:
            names[folder] = set(checkpoint.folders.get(folder, ()))
        result[path] = None
        for companion in layout.companions(name, names[folder]):
            result[f"{folder}/{companion}" if folder else companion] = None
    return list(result)


def topics(checkpoint: CheckpointSnapshot) -> set[str]:
    """Return the Kafka topics that the query read in its newest batch."""
    if not checkpoint.offsets:
        return set()
    return {topic for topic, _ in checkpoint.newest_planned().kafka_ends()}


def require_listed(checkpoint: CheckpointSnapshot) -> None:
    """Raise CheckpointError when something in the checkpoint cannot be listed: a plan could overlook it."""
    for path, why in checkpoint.listing.unreadable.items():
        raise UnreadableFileError(path or checkpoint.root, f"cannot be read: {why}", "Nothing was changed.")


def require_checkpoint(checkpoint: CheckpointSnapshot) -> None:
    """Raise CheckpointError when a folder is not a checkpoint."""
    known = {"offsets", "commits", "state", "sources"} & {folder.split("/")[0] for folder in checkpoint.folders}
    if not known and "metadata" not in checkpoint.folders[""]:
        inside = sorted({folder.split("/")[0] for folder in checkpoint.folders if folder} | set(checkpoint.folders[""]))
        content = f"it holds {', '.join(inside[:5])}" + (" …" if inside[5:] else "") if inside else "it is empty"
        problem = f"{content}; expected the file metadata and the folders offsets and commits"
        raise CheckpointNotFoundError(checkpoint.root, problem)


@dataclass(frozen=True)
class QueryPosition:
    """How far a query has read.

    Attributes:
        checkpoint: Its checkpoint.
        batch: Its newest finished batch; None when it has finished none.
        watermark: The watermark at which that batch ran; None while there was none.
        ends: The next offset to be read, by topic and partition.
    """

    checkpoint: str
    batch: int | None
    watermark: datetime | None
    ends: Mapping[tuple[str, int], int]


def read_position(files: FolderReader) -> QueryPosition:
    """Return how far the query of a checkpoint has read."""
    checkpoint = CheckpointSnapshot(files)
    if not checkpoint.commits:
        return QueryPosition(files.root, None, None, {})
    batch = checkpoint.commits[-1]
    watermark_ms = checkpoint.planned(batch).watermark_ms
    watermark = EPOCH + timedelta(milliseconds=watermark_ms) if watermark_ms else None
    return QueryPosition(files.root, batch, watermark, checkpoint.kafka_ends(batch))


def ends_of_batches(checkpoint: str, topic: str, batches: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return batch, partition and next offset for each of the batches whose file in `offsets` is kept."""
    snapshot = CheckpointSnapshot(open_reader(checkpoint))
    return [
        (batch, partition, end)
        for batch in batches
        if snapshot.has("offsets", batch)
        for partition, end in topic_ends(snapshot.kafka_ends(batch), topic).items()
    ]


def topic_ends(ends: Mapping[tuple[str, int], int], topic: str) -> dict[int, int]:
    """Return the next offsets of the partitions of a topic."""
    return {partition: end for (name, partition), end in ends.items() if name == topic}
