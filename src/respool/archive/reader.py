"""The data files of the archive, and a span of its records: only the files that can have records of it are read.

The table's log holds the hour and the lowest and highest event time of every file. So a plan can show what a span will
cost before Spark starts.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from respool.archive.table import COLUMNS, PARTITION_COLUMNS, PREFIX, DecoderIdentity, Size, read, require
from respool.delta.log import open_table
from respool.errors import PipelineError
from respool.locations import for_spark
from respool.times import EPOCH, Span, epoch_micros, hour_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


_HOUR = timedelta(hours=1)
_FEW = 32  # files that are read without the table: for more, Spark would start a job to list them
_PLAIN = re.compile(r"file:/[\w/=. ~@+-]+")  # local paths that Spark does not interpret as patterns


_LARGE = 1 << 30  # bytes from which on Delta's compaction leaves a file alone; it writes no larger files
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


class ArchiveReader:
    """One version of an archive, and which of its files were read so far.

    Attributes:
        table: Its path or URL.
        version: The version.
        reading: How it reads event times; None when the table does not record it.
        size: Its size.
    """

    def __init__(self, table: str, version: int | None = None) -> None:
        """Read the table's log; raise PipelineError when the table does not exist or is not an archive.

        Args:
            table: The table's path or URL.
            version: The version to read; the newest by default.
        """
        opened = open_table(table, version)
        self.table = table
        self.version: int = opened.version()
        self.reading = DecoderIdentity.from_properties(opened.metadata().configuration)
        if "event_hour" not in opened.metadata().partition_columns:
            raise PipelineError(
                f"The table {table} is not an archive: it is not partitioned by event_hour. Name another table."
            )
        self._files = data_files(opened)
        self._schema = json.loads(opened.schema().to_json()) if is_plain(opened) else None
        self._read: set[str] = set()
        self._frame: DataFrame | None = None
        self.size = Size(len(self._files), sum(file.size for file in self._files))

    @property
    def events(self) -> Span | None:
        """A span that contains all events; None for an archive without events."""
        firsts = [file.first or file.hour for file in self._files if file.hour]
        lasts = [file.last + STATISTICS_UNIT if file.last else file.hour + _HOUR for file in self._files if file.hour]
        return Span(min(filter(None, firsts)), max(lasts)) if lasts else None

    def first_records(self, topic: str) -> tuple[list[FirstRecord], bool]:
        """Return the first records of a topic by the files' statistics, and whether every file has such statistics."""
        known = [file.first_record for file in self._files if file.first_record is not None]
        return [record for record in known if record.topic == topic], len(known) == len(self._files)

    def cost(self, span: Span) -> Size:
        """Return how much must be read for a span."""
        overlapping = [file for file in self._files if file.overlaps(span)]
        return Size(len(overlapping), sum(file.size for file in overlapping))

    def read(self, spark: "SparkSession", span: Span, decoded_alike: bool) -> "DataFrame":
        """Return the records of a span.

        Args:
            spark: A session.
            span: Of event time, as the archive reads it.
            decoded_alike: Whether the reader decodes records as the archive did. If not, rejected records are
                included: some of them may decode.
        """
        self._note(span, decoded_alike)
        few = self._few(spark, span) if decoded_alike else None
        if few is not None:
            return few.where(_within(span))
        return self._from_table(spark, span, decoded_alike)

    def _few(self, spark: "SparkSession", span: Span) -> "DataFrame | None":
        """Return the files of a span, read without the table; None when they are many, or not local plain files.

        Listing a few files through the table takes Spark longer than reading them. In an object store it may not: there
        every file needs a request.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        paths = [f"{for_spark(self.table)}/{file.path}" for file in self._files if file.overlaps(span)]
        if self._schema is None or not 0 < len(paths) <= _FEW or not all(map(_PLAIN.fullmatch, paths)):
            return None
        fields = [field for field in self._schema["fields"] if field["name"] not in PARTITION_COLUMNS]
        # With this option, folder names do not become columns.
        reader = spark.read.schema(StructType.fromJson({"fields": fields})).option("recursiveFileLookup", True)
        try:
            return reader.parquet(*paths)
        except AnalysisException:  # a file is missing: Delta's own message is clearer
            return None

    def _from_table(self, spark: "SparkSession", span: Span, decoded_alike: bool) -> "DataFrame":
        from pyspark.sql import functions as F

        date, hour = F.col("event_date"), F.col("event_hour")
        first, last = hour_of(span.start), hour_of(span.end - timedelta(microseconds=1))
        in_hours = (date > F.lit(first.date())) | ((date == F.lit(first.date())) & (hour >= first.hour))
        in_hours &= (date < F.lit(last.date())) | ((date == F.lit(last.date())) & (hour <= last.hour))
        # The plain condition on the date prunes partitions even if Spark cannot use the rest.
        condition = date.between(F.lit(first.date()), F.lit(last.date())) & in_hours
        condition &= _within(span)
        if not decoded_alike:
            condition |= date.isNull()
        if self._frame is None or self._frame.sparkSession is not spark:
            self._frame = read(spark, self.table, self.version)  # the table's log is read once
        return self._frame.where(condition)

    def was_read(self) -> Size:
        """Return how much was read so far, each file counted once."""
        read_files = [file for file in self._files if file.path in self._read]
        return Size(len(read_files), sum(file.size for file in read_files))

    def _note(self, span: Span, decoded_alike: bool) -> None:
        rejected = not decoded_alike
        self._read.update(file.path for file in self._files if file.overlaps(span) or (rejected and file.hour is None))


def _within(span: Span) -> "Column":
    from pyspark.sql import functions as F

    start, end = (F.timestamp_micros(F.lit(epoch_micros(time))) for time in (span.start, span.end))
    return (F.col("event_time") >= start) & (F.col("event_time") < end)
