"""The archive's table: its columns, where it is, how it reads event times, and its compaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from respool.decoders.json import JsonDecoder, decode
from respool.errors import PipelineError
from respool.kafka import records
from respool.locations import scheme_of
from respool.spark.sql import identifier, table_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PARTITION_COLUMNS = ("event_date", "event_hour")
COLUMNS = (*records.COLUMNS, "event_time", *PARTITION_COLUMNS, "rejected")
KEY = ("topic", "partition", "offset")
_SCHEMA = f"{records.SCHEMA}, event_time TIMESTAMP, event_date DATE, event_hour INT, rejected STRING"
# Of a new table. Delta sums its log up after every tenth commit by default, which takes longer than a batch; a batch's
# commit is small, and quickly read. Statistics are for the columns by which somebody looks for records.
_DELTA = {
    "delta.checkpointInterval": "100",
    "delta.dataSkippingStatsColumns": "topic,partition,offset,timestamp,event_time",
}
_SEVERAL = "several"  # the schema of an archive whose records were decoded in more than one way


@dataclass(frozen=True)
class Size:
    """How large a table is.

    Attributes:
        files: The files of its current version.
        bytes: What they take.
    """

    files: int
    bytes: int


@dataclass(frozen=True)
class Reading:
    """How event times are read, kept in the table's properties.

    Attributes:
        event_time: The field that holds the event time.
        timezone: The zone of event times that name none.
        schema: The fields of an event: what lacks them is rejected.
    """

    event_time: str
    timezone: str
    schema: str

    @staticmethod
    def of(decoder: JsonDecoder, timezone: str) -> "Reading":
        """Return how a decoder reads event times in a zone."""
        return Reading(decoder.event_time, timezone, decoder.schema)

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "Reading | None":
        """Return what a table's properties say; None for a table that respool did not make."""
        try:
            return Reading(*(properties[f"respool.{name}"] for name in ("event_time", "timezone", "schema")))
        except KeyError:
            return None

    def to_properties(self) -> dict[str, str]:
        """Return it as a table's properties."""
        return {f"respool.{name}": value for name, value in vars(self).items()}

    @property
    def has_several_decoders(self) -> bool:
        """Whether the records were decoded in more than one way."""
        return self.schema == _SEVERAL

    def decoder(self) -> JsonDecoder:
        """Return the decoder of the records."""
        return JsonDecoder(self.schema, self.event_time)

    def is_decoded_as(self, other: "Reading") -> bool:
        """Return whether records are decoded as by another, however the two schemas are spelled."""
        return not self.has_several_decoders and self.decoder().identity() == other.decoder().identity()

    def check(self, table: str, other: "Reading") -> None:
        """Raise PipelineError when `other`, a pipeline's way, gives events other times than this, a table's own."""
        if self.event_time != other.event_time:
            raise PipelineError(
                f"The archive {table} takes event times from the field {self.event_time}, the pipeline from "
                f"{other.event_time}. Give the pipeline an archive of its own."
            )
        if self.timezone != other.timezone:
            raise PipelineError(
                f"The archive {table} reads event times that name no zone in {self.timezone}, the pipeline in "
                f"{other.timezone}. Run it with --timezone {self.timezone}, or give it an archive of its own."
            )


def to_archive(frame: "DataFrame", decoder: JsonDecoder) -> "DataFrame":
    """Return records as the archive keeps them; rejected ones are counted for the batch line.

    Date and hour are those of the event time in UTC, whatever the session's time zone. A record that does not decode
    has none of the three, and says why.
    """
    from pyspark.sql import functions as F

    decoded = decode(frame, decoder).observe("respool", F.count("rejected").alias("rejected"))
    time = F.col("event").getField(decoder.event_time)
    seconds = F.unix_seconds(F.col("event_time"))
    return (
        decoded.withColumn("event_time", time)
        .withColumn("event_date", F.date_from_unix_date(F.floor(seconds / 86400).cast("int")))
        .withColumn("event_hour", F.pmod(F.floor(seconds / 3600), F.lit(24)).cast("int"))
        .select(*COLUMNS)
    )


def locate(table: str, home: Path) -> str:
    """Return where a table is: a relative path is one under the home's `archive`, others are taken as they are."""
    if scheme_of(table) is not None:
        return table
    return str((home / "archive" / Path(table).expanduser()).absolute())


def require(table: str) -> None:
    """Raise PipelineError when a table of this machine is not there; of another place Spark must tell."""
    if table.startswith("/") and not (Path(table) / "_delta_log").is_dir():
        raise _missing(table)


def create(spark: "SparkSession", table: str, reading: Reading) -> None:
    """Make the table when it is missing, and refuse one that is no archive or reads event times in another way."""
    partitions = ", ".join(PARTITION_COLUMNS)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {identifier(table)} ({_SCHEMA}) USING DELTA PARTITIONED BY ({partitions}) "
        f"TBLPROPERTIES ({table_properties({**_DELTA, **reading.to_properties()})})"
    )
    found = spark.read.format("delta").load(table).columns
    lacking = [name for name in COLUMNS if name not in found]
    if lacking:
        raise PipelineError(
            f"The table {table} is not an archive: it has no column {lacking[0]}. Give the pipeline another table."
        )
    rows = spark.sql(f"SHOW TBLPROPERTIES {identifier(table)}").collect()
    kept = Reading.from_properties({row.key: row.value for row in rows})
    if kept is None:
        return
    kept.check(table, reading)
    if not kept.has_several_decoders and not kept.is_decoded_as(reading):
        several = table_properties({"respool.schema": _SEVERAL})
        spark.sql(f"ALTER TABLE {identifier(table)} SET TBLPROPERTIES ({several})")


def read(spark: "SparkSession", table: str, version: int) -> "DataFrame":
    """Return a fixed version of the table: reading it makes no conflict with a compaction that runs meanwhile."""
    return spark.read.format("delta").option("versionAsOf", version).load(table)


def optimize(
    spark: "SparkSession",
    table: str,
    days: Sequence[date | None] | None = None,
    on_day: Callable[[int], None] = lambda number: None,
) -> tuple[Size, Size]:
    """Make few large files of many small ones, hour by hour, and return the sizes before and after.

    No record changes, and readers and the archiving query go on meanwhile. The small files stay on the disk for those
    who still read an earlier version, until somebody vacuums the table.

    Args:
        spark: A session.
        table: The table's path or URL.
        days: The dates to compact, each in a commit of its own, None for the rejected records; by default all at once.
        on_day: Called before each with its number.
    """
    from pyspark.errors import AnalysisException

    try:
        before = _size(spark, table)
    except AnalysisException as error:
        raise _missing(table) from error
    for number, where in enumerate([""] if days is None else map(_of_day, days)):
        on_day(number)
        spark.sql(f"OPTIMIZE {identifier(table)}{where}")
    return before, _size(spark, table)


def _size(spark: "SparkSession", table: str) -> Size:
    detail = spark.sql(f"DESCRIBE DETAIL {identifier(table)}").first()
    assert detail is not None
    return Size(detail.numFiles, detail.sizeInBytes)


def _of_day(day: date | None) -> str:
    return " WHERE event_date IS NULL" if day is None else f" WHERE event_date = DATE'{day.isoformat()}'"


def _missing(table: str) -> PipelineError:
    return PipelineError(
        f"There is no archive at {table}. Name another, or make it by running the pipeline that archives the topic: "
        "respool run visits-archive, browser-visits-archive, or one of your own."
    )


PREFIX = 32  # characters of a text that Delta's statistics keep
