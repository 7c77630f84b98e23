"""The contents of an archive, read without a JVM: records by topic partition and hour, gaps, duplicates, files.

Only the topic, the partition and the offset of a record are read, a block of records at a time, so that an archive of
any size needs little memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from respool.archive.model import ArchiveContents, HourContents, PartitionContents, UnreadableFile
from respool.archive.reader import DataFile, data_files, open_archive, small_files
from respool.archive.table import KEY, DecoderIdentity
from respool.kafka.offsets import OffsetSet, TopicPartition, gaps

if TYPE_CHECKING:
    import numpy as np
    from deltalake import DeltaTable
    from numpy.typing import NDArray


_BLOCK = 1 << 19  # records in memory at a time


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
        reading=DecoderIdentity.from_properties(opened.metadata().configuration),
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

        from respool.locations import local_path
        from respool.storage.remote import open_store

        root = local_path(table)
        if root is not None:
            self._files: Any = pa_fs.SubTreeFileSystem(str(root), pa_fs.LocalFileSystem())
        else:
            # Not delta-rs's own handler: it blocks all threads of this process while it waits for the store.
            store, folder = open_store(table)
            self._files = pa_fs.SubTreeFileSystem(folder, pa_fs.PyFileSystem(pa_fs.FSSpecHandler(store)))
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
