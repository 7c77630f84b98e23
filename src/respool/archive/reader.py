"""Read a span of records from the archive: only the files that can have records of it are read.

The table's log holds the hour and the lowest and highest event time of every file. So a plan can show what a span will
cost before Spark starts.
"""

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.archive.files import STATISTICS_UNIT, FirstRecord, data_files, is_plain
from respool.archive.table import PARTITION_COLUMNS, Reading, Size, read
from respool.delta.log import open_table
from respool.errors import PipelineError
from respool.locations import for_spark
from respool.times import Span, epoch_micros, hour_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HOUR = timedelta(hours=1)
_FEW = 32  # files that are read without the table: for more, Spark would start a job to list them
_PLAIN = re.compile(r"file:/[\w/=. ~@+-]+")  # local paths that Spark does not interpret as patterns


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
        self.reading = Reading.from_properties(opened.metadata().configuration)
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
