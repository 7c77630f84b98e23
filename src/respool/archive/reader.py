"""A span of records out of the archive: only the files that can hold some of it are read.

The table's log says of every file which hour it belongs to, and from when to when its event times are. So a plan can
tell what a span will cost before Spark starts.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import repeat
from typing import TYPE_CHECKING, Any

from respool.archive.table import PARTITION_COLUMNS, PREFIX, Reading, Size, read
from respool.delta.log import open_table
from respool.errors import PipelineError
from respool.times import EPOCH, Span, epoch_micros, hour_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HOUR = timedelta(hours=1)
_FEW = 32  # files that are read without the table: beyond, Spark would look for them in a job
_PLAIN = re.compile(r"/[\w/=. ~@+-]+")  # paths of this machine that Spark takes as they are
_MILLISECOND = timedelta(milliseconds=1)  # Delta's statistics are cut to it


@dataclass(frozen=True)
class Beginning:
    """What a file surely holds: the first record of one topic partition in it.

    Attributes:
        topic: The topic of all records of the file.
        partition: Their partition.
        offset: The lowest offset of them.
        time: Not later than this is the first event time of them; None when that is not known.
    """

    topic: str
    partition: int
    offset: int
    time: datetime | None


@dataclass(frozen=True)
class _File:
    """A file of the table; without an hour it holds rejected records."""

    path: str
    bytes: int
    hour: datetime | None
    first: datetime | None
    last: datetime | None
    begins: Beginning | None

    def touches(self, span: Span) -> bool:
        if self.hour is None or not (self.hour < span.end and span.start < self.hour + _HOUR):
            return False
        if self.first is None or self.last is None:
            return True
        return self.first < span.end and span.start <= self.last + _MILLISECOND


class ArchiveReader:
    """One version of an archive, and what was read of it so far.

    Attributes:
        table: Where it is.
        version: Which version.
        reading: How it reads event times; None when it does not say.
        size: How large it is.
    """

    def __init__(self, table: str, version: int | None = None) -> None:
        """Read the table's log; PipelineError when the table is not there or is no archive.

        Args:
            table: The table's path or URL.
            version: The version to read; the newest by default.
        """
        import pyarrow as pa

        found = open_table(table, version)
        self.table = table
        self.version: int = found.version()
        self.reading = Reading.from_properties(found.metadata().configuration)
        actions = pa.table(found.get_add_actions(flatten=True))
        if "event_hour" not in found.metadata().partition_columns:
            raise PipelineError(f"The table {table} is not an archive: it has no hours. Name another.")
        # In others, records can be deleted without a new file, and columns can have other names in the files.
        simple = found.protocol().min_reader_version == 1
        self._files = list(_files(actions, told=simple))
        self._schema = json.loads(found.schema().to_json()) if simple else None
        self._read: set[str] = set()
        self._frame: DataFrame | None = None
        self.size = Size(len(self._files), sum(one.bytes for one in self._files))

    @property
    def events(self) -> Span | None:
        """The span from the first event to the last, at least; None for an archive without events."""
        firsts = [one.first or one.hour for one in self._files if one.hour]
        lasts = [one.last + _MILLISECOND if one.last else one.hour + _HOUR for one in self._files if one.hour]
        return Span(min(filter(None, firsts)), max(lasts)) if lasts else None

    def beginnings(self, topic: str) -> tuple[list[Beginning], bool]:
        """Return what the files' statistics tell of a topic, and whether they tell it of every file."""
        told = [one.begins for one in self._files if one.begins is not None]
        return [one for one in told if one.topic == topic], len(told) == len(self._files)

    def cost(self, span: Span) -> Size:
        """Return what must be read for a span."""
        touched = [one for one in self._files if one.touches(span)]
        return Size(len(touched), sum(one.bytes for one in touched))

    def read(self, spark: "SparkSession", span: Span, decoded_alike: bool) -> "DataFrame":
        """Return the records of a span.

        Args:
            spark: A session.
            span: Of event time, as the archive reads it.
            decoded_alike: Who reads decodes records as the archive did. If not, rejected records come along: some of
                them may decode.
        """
        self._note(span, decoded_alike)
        few = self._few(spark, span) if decoded_alike else None
        if few is not None:
            return few.where(_within(span))
        return self._from_table(spark, span, decoded_alike)

    def _few(self, spark: "SparkSession", span: Span) -> "DataFrame | None":
        """Return the files of a span, read without the table; None when they are many, or not simply there.

        To look up a few files in the table takes Spark longer than to read them. In a store it may not: there every
        file must be asked for.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        paths = [f"{self.table.rstrip('/')}/{one.path}" for one in self._files if one.touches(span)]
        if self._schema is None or not 0 < len(paths) <= _FEW or not all(map(_PLAIN.fullmatch, paths)):
            return None
        fields = [one for one in self._schema["fields"] if one["name"] not in PARTITION_COLUMNS]
        # With this option, names of folders are not taken for columns.
        reader = spark.read.schema(StructType.fromJson({"fields": fields})).option("recursiveFileLookup", True)
        try:
            return reader.parquet(*paths)
        except AnalysisException:  # one is not there: Delta says it better
            return None

    def _from_table(self, spark: "SparkSession", span: Span, decoded_alike: bool) -> "DataFrame":
        from pyspark.sql import functions as F

        date, hour = F.col("event_date"), F.col("event_hour")
        first, last = hour_of(span.start), hour_of(span.end - timedelta(microseconds=1))
        in_hours = (date > F.lit(first.date())) | ((date == F.lit(first.date())) & (hour >= first.hour))
        in_hours &= (date < F.lit(last.date())) | ((date == F.lit(last.date())) & (hour <= last.hour))
        # The bare date prunes by itself, however clever the rest.
        wanted = date.between(F.lit(first.date()), F.lit(last.date())) & in_hours
        wanted &= _within(span)
        if not decoded_alike:
            wanted |= date.isNull()
        if self._frame is None or self._frame.sparkSession is not spark:
            self._frame = read(spark, self.table, self.version)  # the table's log is looked at once
        return self._frame.where(wanted)

    def was_read(self) -> Size:
        """Return what was read so far, each file once."""
        touched = [one for one in self._files if one.path in self._read]
        return Size(len(touched), sum(one.bytes for one in touched))

    def _note(self, span: Span, decoded_alike: bool) -> None:
        touched = (one for one in self._files if one.touches(span) or (one.hour is None and not decoded_alike))
        self._read.update(one.path for one in touched)


def _within(span: Span) -> "Column":
    from pyspark.sql import functions as F

    start, end = (F.timestamp_micros(F.lit(epoch_micros(time))) for time in (span.start, span.end))
    return (F.col("event_time") >= start) & (F.col("event_time") < end)


def _files(actions: Any, told: bool) -> Iterator[_File]:
    names = ("path", "size_bytes", "partition.event_date", "partition.event_hour", "min.event_time", "max.event_time")
    columns = _columns(actions, names)
    beginnings = _beginnings(actions, columns[4]) if told else repeat(None, len(actions))
    for path, size, date, hour, first, last, begins in zip(*columns, beginnings, strict=True):
        at = None if date is None else datetime(date.year, date.month, date.day, hour, tzinfo=timezone.utc)
        yield _File(path, size, at, first, last, begins)


def _beginnings(actions: Any, times: Sequence[datetime | None]) -> Iterator[Beginning | None]:
    """Yield what the statistics of each file tell of its first record, None where they do not or are of several."""
    names = ("topic", "partition", "offset")
    lows, highs = (_columns(actions, [f"{end}.{name}" for name in names]) for end in ("min", "max"))
    nulls = _columns(actions, [f"null_count.{name}" for name in names])
    for topic, partition, offset, last, other, _, *counts, time in zip(*lows, *highs, *nulls, times, strict=True):
        # A longer text is cut in the statistics.
        alone = topic is not None and len(topic) < PREFIX and (topic, partition) == (last, other)
        if alone and None not in (partition, offset) and counts == [0, 0, 0]:
            yield Beginning(topic, partition, offset, None if time is None else time + _MILLISECOND)
        else:
            yield None


def _columns(actions: Any, names: Sequence[str]) -> list[list[Any]]:
    return [_values(actions[name]) if name in actions.column_names else [None] * len(actions) for name in names]


def _values(column: Any) -> list[Any]:
    """Return the values of a column; Arrow's own way to times takes ten times as long."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    numbers = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [None if one is None else EPOCH + timedelta(microseconds=one) for one in numbers]
