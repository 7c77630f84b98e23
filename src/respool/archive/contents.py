"""The contents of an archive, read without a JVM: records by topic partition and hour, gaps, duplicates, files.

Only the topic, the partition and the offset of a record are read, a block of records at a time, so that an archive of
any size needs little memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from respool.archive.files import DataFile, data_files, open_archive, small_files
from respool.archive.table import KEY, Reading
from respool.kafka.offsets import OffsetRange, OffsetSet, TopicPartition, gaps, total

if TYPE_CHECKING:
    import numpy as np
    from deltalake import DeltaTable
    from numpy.typing import NDArray


_BLOCK = 1 << 19  # records in memory at a time


@dataclass(frozen=True)
class PartitionContents:
    """The records of a topic partition in an archive.

    Attributes:
        place: The topic partition.
        records: The number of records, duplicates included.
        rejected: The number of records that do not decode.
        first: The lowest offset.
        last: The highest offset.
        gaps: The offsets between these two that are missing.
        doubles: The offsets that are present more than once.
        surplus: The number of records that are duplicates of another.
    """

    place: TopicPartition
    records: int
    rejected: int
    first: int
    last: int
    gaps: tuple[OffsetRange, ...]
    doubles: tuple[OffsetRange, ...]
    surplus: int

    @property
    def missing(self) -> int:
        """The number of missing offsets."""
        return total(self.gaps)


@dataclass(frozen=True)
class HourContents:
    """The records of an hour of event time in an archive.

    Attributes:
        start: The start of the hour, in UTC; None for rejected records, which have no event time.
        records: The number of records.
        files: The number of files.
        bytes: The size of the files.
        small: The number of files that a compaction would merge.
        places: The number of records by topic partition.
    """

    start: datetime | None
    records: int
    files: int
    bytes: int
    small: int
    places: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class UnreadableFile:
    """A data file that cannot be read.

    Attributes:
        path: Its path in the table.
        why: The reason.
        missing: Whether the file does not exist.
    """

    path: str
    why: str
    missing: bool


@dataclass(frozen=True)
class ArchiveContents:
    """The contents of an archive.

    Attributes:
        table: Its path or URL.
        version: The version of the table that was read.
        reading: How it reads event times; None when the table does not record it.
        places: Its topic partitions, by name and number.
        hours: Its hours, the rejected records last.
        damaged: The data files that cannot be read; their records are not counted.
        nameless: The number of records without a topic, partition or offset: respool did not write them.
    """

    table: str
    version: int
    reading: Reading | None
    places: tuple[PartitionContents, ...]
    hours: tuple[HourContents, ...]
    damaged: tuple[UnreadableFile, ...]
    nameless: int

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(partition.records for partition in self.places)

    @property
    def files(self) -> int:
        """The number of data files."""
        return sum(hour.files for hour in self.hours)

    @property
    def bytes(self) -> int:
        """The size of the data files."""
        return sum(hour.bytes for hour in self.hours)

    @property
    def small(self) -> int:
        """The number of files that a compaction would merge."""
        return sum(hour.small for hour in self.hours)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The hours of event time, from the first to the end of the last; None if there are no events."""
        starts = [hour.start for hour in self.hours if hour.start is not None]
        return (starts[0], starts[-1] + timedelta(hours=1)) if starts else None


@dataclass
class _ArchiveScan:
    """The contents that were read so far."""

    offsets: dict[TopicPartition, OffsetSet] = field(default_factory=dict)
    rejected: Counter[TopicPartition] = field(default_factory=Counter)
    hours: dict[datetime | None, Counter[TopicPartition]] = field(default_factory=dict)
    damaged: list[UnreadableFile] = field(default_factory=list)
    nameless: int = 0

    def add(self, hour: datetime | None, place: TopicPartition, offsets: "NDArray[np.int64]") -> None:
        self.offsets.setdefault(place, OffsetSet()).add(offsets)
        self.hours.setdefault(hour, Counter())[place] += len(offsets)
        if hour is None:
            self.rejected[place] += len(offsets)


def read_contents(table: str, on_progress: Callable[[int, int], None] = lambda done, total: None) -> ArchiveContents:
    """Read the contents of an archive.

    Args:
        table: Its path or URL.
        on_progress: Called with the number of files read, and the total.

    Raises:
        RespoolError: There is no archive, or its log cannot be read. Data files that cannot be read are listed in
            `damaged`.
    """
    opened = open_archive(table)
    files = data_files(opened)
    scan = _ArchiveScan()
    read = _Reader(opened, table)
    for number, file in enumerate(files, start=1):
        try:
            for batch in read.batches(file):
                scan.nameless += _add_batch(scan, file.hour, batch)
        except Exception as error:  # from Parquet, a codec or a store: this file cannot be read
            scan.damaged.append(UnreadableFile(file.path, _why(error), isinstance(error, FileNotFoundError)))
        on_progress(number, len(files))
    return ArchiveContents(
        table=table,
        version=opened.version(),
        reading=Reading.from_properties(opened.metadata().configuration),
        places=tuple(_partition_contents(scan, place) for place in sorted(scan.offsets)),
        hours=tuple(_hour_contents(files, scan)),
        damaged=tuple(scan.damaged),
        nameless=scan.nameless,
    )


class _Reader:
    """Reads the columns of a table's data files that identify a record."""

    def __init__(self, opened: "DeltaTable", table: str) -> None:
        import pyarrow as pa
        import pyarrow.fs as pa_fs

        from respool.delta.log import storage_options
        from respool.locations import local_path

        root = local_path(table)
        if root is not None:
            self._files: Any = pa_fs.SubTreeFileSystem(str(root), pa_fs.LocalFileSystem())
        else:
            from deltalake.fs import DeltaStorageHandler

            self._files = pa_fs.PyFileSystem(DeltaStorageHandler(table, storage_options()))
        # Rows that a later commit deleted are still in their file; a mask shows which are left.
        masks = pa.table(opened.deletion_vectors()).to_pydict() if _has_masks(opened) else {}
        self._left = {
            path.rpartition("/")[2]: mask
            for path, mask in zip(masks.get("filepath", ()), masks.get("selection_vector", ()), strict=True)
        }

    def batches(self, file: DataFile) -> Iterator[Any]:
        """Yield the records of a file in batches."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        mask = self._left.get(file.path.rpartition("/")[2])
        done = 0
        with (
            self._files.open_input_file(file.path) as source,
            pq.ParquetFile(source, read_dictionary=["topic"], pre_buffer=True) as parquet,
        ):
            for batch in parquet.iter_batches(_BLOCK, columns=list(KEY)):
                if mask is not None:
                    left = mask[done : done + batch.num_rows]
                    left += [True] * (batch.num_rows - len(left))
                    done += batch.num_rows
                    batch = batch.filter(pa.array(left))
                yield batch


def _has_masks(opened: "DeltaTable") -> bool:
    return "deletionVectors" in (opened.protocol().reader_features or [])


def _add_batch(scan: _ArchiveScan, hour: datetime | None, batch: Any) -> int:
    """Add the records of a batch, and return how many have no topic, partition or offset."""
    import numpy as np

    whole = batch.drop_null() if any(column.null_count for column in batch.columns) else batch
    topics, partitions, offsets = (whole.column(name) for name in KEY)
    names = topics.dictionary.to_pylist()
    numbers = partitions.to_numpy(zero_copy_only=False).astype(np.int64)
    keys = (topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32) | numbers
    rows = offsets.to_numpy(zero_copy_only=False)
    if len(keys) and not bool(np.all(keys == keys[0])):
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
    cuts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    for key, part in zip(np.split(keys, cuts), np.split(rows, cuts), strict=True):
        if len(key):
            scan.add(hour, TopicPartition(names[int(key[0]) >> 32], int(key[0]) & 0xFFFFFFFF), part)
    return int(batch.num_rows - whole.num_rows)


def _partition_contents(scan: _ArchiveScan, place: TopicPartition) -> PartitionContents:
    offsets = scan.offsets[place]
    present = offsets.ranges()
    return PartitionContents(
        place=place,
        records=offsets.added,
        rejected=scan.rejected[place],
        first=present[0].start,
        last=present[-1].end - 1,
        gaps=tuple(gaps(present)),
        doubles=tuple(offsets.doubled()),
        surplus=offsets.added - offsets.distinct,
    )


def _hour_contents(files: list[DataFile], scan: _ArchiveScan) -> Iterator[HourContents]:
    by_hour: dict[datetime | None, list[int]] = {}
    for file in files:
        by_hour.setdefault(file.hour, []).append(file.size)
    for hour, sizes in by_hour.items():
        places = scan.hours.get(hour, Counter())
        counts = {place: places[place] for place in sorted(places)}
        yield HourContents(hour, sum(counts.values()), len(sizes), sum(sizes), small_files(sizes), counts)


def _why(error: Exception) -> str:
    from respool.delta.log import delta_message

    return "it does not exist" if isinstance(error, FileNotFoundError) else delta_message(error)
