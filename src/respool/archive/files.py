"""The data files of the archive, as Delta's log lists them: size, hour, and the statistics of their records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from respool.archive.table import COLUMNS, PREFIX, require
from respool.errors import PipelineError
from respool.times import EPOCH, Span

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LARGE = 1 << 30  # bytes from which on Delta's compaction leaves a file alone; it writes no larger files
_HOUR = timedelta(hours=1)
STATISTICS_UNIT = timedelta(milliseconds=1)  # times in Delta's statistics are rounded down to it


@dataclass(frozen=True)
class FirstRecord:
    """The first record of a file whose records all belong to one topic partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The lowest offset in the file.
        time: An upper bound of the lowest event time in the file; None when it is not known.
    """

    topic: str
    partition: int
    offset: int
    time: datetime | None


@dataclass(frozen=True)
class DataFile:
    """A data file of the archive.

    Attributes:
        path: Its path in the table.
        size: Its size in bytes.
        day: The date of its hour; None for rejected records.
        hour: The start of its hour; None for rejected records.
        first: The lowest event time, rounded down; None when the statistics lack it.
        last: The highest event time, rounded down; None when the statistics lack it.
        first_record: Its first record; None when the statistics lack it or the file has several partitions.
    """

    path: str
    size: int
    day: date | None
    hour: datetime | None
    first: datetime | None = None
    last: datetime | None = None
    first_record: FirstRecord | None = None

    def overlaps(self, span: Span) -> bool:
        """Return whether the file can have records of a span of event time."""
        if self.hour is None or not (self.hour < span.end and span.start < self.hour + _HOUR):
            return False
        if self.first is None or self.last is None:
            return True
        return self.first < span.end and span.start <= self.last + STATISTICS_UNIT


def open_archive(table: str) -> "DeltaTable":
    """Open an archive's newest version by delta-rs; raise PipelineError if it does not exist or is not one."""
    from respool.delta.log import open_table

    require(table)
    opened = open_table(table)
    names = {field.name for field in opened.schema().fields}
    lacking = [name for name in COLUMNS if name not in names]
    if lacking:
        raise PipelineError(
            f"The table {table} is not an archive: it has no column {lacking[0]}. Name an archive with --table."
        )
    if opened.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise PipelineError(
            f"The table {table} maps its columns to other names (delta.columnMapping.mode), which respool's archives "
            "never do. Name another table with --table."
        )
    return opened


def is_plain(opened: "DeltaTable") -> bool:
    """Return whether records are deleted only with their file, and columns have their own names in the files."""
    return opened.protocol().min_reader_version == 1


def data_files(opened: "DeltaTable") -> list[DataFile]:
    """Return the data files of a table, hour by hour, the rejected records last."""
    import pyarrow as pa

    actions = pa.table(opened.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "partition.event_date", "partition.event_hour", "min.event_time", "max.event_time")
    columns = _columns(actions, names)
    first_records = _first_records(actions, columns[4]) if is_plain(opened) else iter([None] * len(actions))
    files = [
        DataFile(path, size, day, _hour(day, hour), first, last, first_record)
        for path, size, day, hour, first, last, first_record in zip(*columns, first_records, strict=True)
    ]
    latest = datetime.max.replace(tzinfo=timezone.utc)
    return sorted(files, key=lambda file: (file.hour or latest, file.path))


def small_files(sizes: list[int]) -> int:
    """Return how many files of one hour Delta's compaction would merge."""
    small = sorted(size for size in sizes if size < _LARGE)
    merged = [size + following <= _LARGE for size, following in pairwise(small)]
    return merged.count(True) + 1 if any(merged) else 0


def days_to_compact(files: list[DataFile]) -> list[date | None]:
    """Return the dates that have an hour with files to merge; None stands for the rejected records."""
    hours: dict[tuple[date | None, datetime | None], list[int]] = {}
    for file in files:
        hours.setdefault((file.day, file.hour), []).append(file.size)
    return list(dict.fromkeys(day for (day, _), sizes in hours.items() if small_files(sizes)))


def _hour(day: date | None, hour: int | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(hour or 0), timezone.utc)


def _first_records(actions: Any, times: Sequence[datetime | None]) -> Iterator[FirstRecord | None]:
    """Yield the first record of each file; None where the statistics lack it or cover several partitions."""
    names = ("topic", "partition", "offset")
    lows, highs = (_columns(actions, [f"{end}.{name}" for name in names]) for end in ("min", "max"))
    nulls = _columns(actions, [f"null_count.{name}" for name in names])
    for topic, partition, offset, last, other, _, *counts, first in zip(*lows, *highs, *nulls, times, strict=True):
        # A longer topic name is truncated in the statistics.
        single = topic is not None and len(topic) < PREFIX and (topic, partition) == (last, other)
        if single and None not in (partition, offset) and counts == [0, 0, 0]:
            yield FirstRecord(topic, partition, offset, None if first is None else first + STATISTICS_UNIT)
        else:
            yield None


def _columns(actions: Any, names: Sequence[str]) -> list[list[Any]]:
    return [_values(actions[name]) if name in actions.column_names else [None] * len(actions) for name in names]


def _values(column: Any) -> list[Any]:
    """Return the values of a column; Arrow's own conversion of times takes ten times as long."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    numbers = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [None if number is None else EPOCH + timedelta(microseconds=number) for number in numbers]
