"""The archive's table: its columns, its location, how event times are read, and its compaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from respool.decoders.protocol import Decoder
from respool.decoders.recorded import decoder_of_identity
from respool.errors import PipelineError
from respool.identity import FROM_TEXT, Identity, parse_identity
from respool.kafka import records
from respool.locations import for_spark, under
from respool.settings import Settings
from respool.spark.sql import identifier, table_properties
from respool.untrusted import Malformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PARTITION_COLUMNS = ("event_date", "event_hour")
COLUMNS = (*records.COLUMNS, "event_time", *PARTITION_COLUMNS, "rejected")
KEY = ("topic", "partition", "offset")
_SCHEMA = f"{records.SCHEMA}, event_time TIMESTAMP, event_date DATE, event_hour INT, rejected STRING"
# Of a new table. By default Delta checkpoints its log every ten commits, which takes longer than a batch; a batch's
# commit is small and quickly read. Statistics are kept for the columns by which records are searched.
_DELTA = {
    "delta.checkpointInterval": "100",
    "delta.dataSkippingStatsColumns": "topic,partition,offset,timestamp,event_time",
}
_SEVERAL = "several"  # the schema of an archive whose records were decoded in more than one way


@dataclass(frozen=True)
class Size:
    """The size of a table.

    Attributes:
        files: The number of files of its current version.
        bytes: Their size in bytes.
    """

    files: int
    bytes: int


@dataclass(frozen=True)
class DecoderIdentity:
    """How records are decoded and event times are read, kept in the table's properties.

    Attributes:
        event_time: The field of the event time.
        timezone: The zone of event times without a zone.
        schema: The fields of an event: records that lack them are rejected. For a decoder without such a schema, its
            kind.
        decoder: The identity of the decoder, as text; empty in a table of an earlier version, of JSON.
    """

    event_time: str
    timezone: str
    schema: str
    decoder: str = ""

    @staticmethod
    def of(decoder: Decoder, timezone: str) -> "DecoderIdentity":
        """Return how a decoder reads event times in a zone."""
        identity = decoder.identity()
        event_time = str(identity.fields.get("event_time", decoder.time_column))
        return DecoderIdentity(event_time, timezone, str(identity.fields.get("schema", identity.kind)), identity.text())

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "DecoderIdentity | None":
        """Return how a table's properties describe it; None for a table that respool did not create."""
        try:
            event_time, timezone, schema = (
                properties[f"respool.{name}"] for name in ("event_time", "timezone", "schema")
            )
        except KeyError:
            return None
        return DecoderIdentity(event_time, timezone, schema, properties.get("respool.decoder", ""))

    def to_properties(self) -> dict[str, str]:
        """Return it as a table's properties."""
        return {f"respool.{name}": value for name, value in vars(self).items()}

    @property
    def has_several_decoders(self) -> bool:
        """Whether the records were decoded in more than one way."""
        return self.schema == _SEVERAL

    def identity(self) -> Identity | None:
        """Return the identity of the decoder; None when the table's property is not readable."""
        try:
            if self.decoder:
                return parse_identity(self.decoder)
        except Malformed:
            return None
        return Identity("json", {"schema": self.schema, "event_time": self.event_time}, FROM_TEXT)

    def read_by(self) -> Decoder:
        """Return the decoder of the records; raise PipelineError when the table does not describe it completely."""
        identity = self.identity()
        decoder = None if identity is None else decoder_of_identity(identity)
        if decoder is None:
            kind = "unreadable" if identity is None else identity.kind
            raise PipelineError(
                f"The archive's decoder ({kind}) cannot be made from the table's properties alone. Name a pipeline "
                "that reads the topic with --pipeline."
            )
        return decoder

    def is_decoded_as(self, other: "DecoderIdentity") -> bool:
        """Return whether another reading decodes records in the same way, regardless of how its schema is spelled."""
        mine, its = (_canonical(reading.identity()) for reading in (self, other))
        return not self.has_several_decoders and mine is not None and mine == its

    def check(self, table: str, other: "DecoderIdentity") -> None:
        """Raise PipelineError when `other`, of a pipeline, reads other event times than this, of a table."""
        if self.event_time != other.event_time:
            raise PipelineError(
                f"The archive {table} takes event times from the field {self.event_time}, the pipeline from "
                f"{other.event_time}. Give the pipeline its own archive."
            )
        if self.timezone != other.timezone:
            raise PipelineError(
                f"The archive {table} reads event times without a zone in {self.timezone}, the pipeline in "
                f"{other.timezone}. Run it with --timezone {self.timezone}, or give it its own archive."
            )


def _canonical(identity: Identity | None) -> Identity | None:
    """Return an identity as its decoder has it: the table of an earlier version has the schema as it was spelled."""
    if identity is None or identity.version != FROM_TEXT:
        return identity
    decoder = decoder_of_identity(identity)
    return None if decoder is None else decoder.identity()


def to_archive(frame: "DataFrame", decoder: Decoder) -> "DataFrame":
    """Return records with the archive's columns; rejected records are counted for the batch line.

    Date and hour are those of the event time in UTC, regardless of the session's time zone. For a record that does not
    decode all three are null, and `rejected` holds the reason. A record that the decoder drops is archived under the
    timestamp that it has in Kafka.
    """
    from pyspark.sql import functions as F

    decoded = decoder.decode(frame)
    time = F.when(decoded.rejected.isNull(), decoded.time)
    columns = [F.col(name) for name in records.COLUMNS]
    rows = decoded.records.select(*columns, decoded.rejected.alias("rejected"), time.alias("event_time"))
    seconds = F.unix_seconds(F.col("event_time"))
    return (
        rows.observe("respool", F.count("rejected").alias("rejected"))
        .withColumn("event_date", F.date_from_unix_date(F.floor(seconds / 86400).cast("int")))
        .withColumn("event_hour", F.pmod(F.floor(seconds / 3600), F.lit(24)).cast("int"))
        .select(*COLUMNS)
    )


def locate(table: str, settings: Settings) -> str:
    """Return a table's location: a relative path is under the archive's store, others are unchanged."""
    return under(settings.archive_store, table)


def require(table: str) -> None:
    """Raise PipelineError when a local table does not exist; Spark reports tables in other filesystems."""
    if table.startswith("/") and not (Path(table) / "_delta_log").is_dir():
        raise _missing(table)


def create(spark: "SparkSession", table: str, reading: DecoderIdentity) -> None:
    """Create the table if it is missing; raise PipelineError if it is not an archive or reads other event times."""
    partitions = ", ".join(PARTITION_COLUMNS)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {identifier(table)} ({_SCHEMA}) USING DELTA PARTITIONED BY ({partitions}) "
        f"TBLPROPERTIES ({table_properties({**_DELTA, **reading.to_properties()})})"
    )
    columns = spark.read.format("delta").load(for_spark(table)).columns
    lacking = [name for name in COLUMNS if name not in columns]
    if lacking:
        raise PipelineError(
            f"The table {table} is not an archive: it has no column {lacking[0]}. Give the pipeline another table."
        )
    rows = spark.sql(f"SHOW TBLPROPERTIES {identifier(table)}").collect()
    kept = DecoderIdentity.from_properties({row.key: row.value for row in rows})
    if kept is None:
        return
    kept.check(table, reading)
    if not kept.has_several_decoders and not kept.is_decoded_as(reading):
        several = table_properties({"respool.schema": _SEVERAL})
        spark.sql(f"ALTER TABLE {identifier(table)} SET TBLPROPERTIES ({several})")


def read(spark: "SparkSession", table: str, version: int) -> "DataFrame":
    """Return a fixed version of the table: reading it does not conflict with a concurrent compaction."""
    return spark.read.format("delta").option("versionAsOf", version).load(for_spark(table))


def optimize(
    spark: "SparkSession",
    table: str,
    days: Sequence[date | None] | None = None,
    on_day: Callable[[int], None] = lambda number: None,
) -> tuple[Size, Size]:
    """Merge small files into few large files, hour by hour, and return the sizes before and after.

    No record changes, and readers and the archiving query are not interrupted. The small files stay on disk for readers
    of earlier versions, until the table is vacuumed.

    Args:
        spark: A session.
        table: The table's path or URL.
        days: The dates to compact, each in a separate commit, None for the rejected records; by default all dates in
            one commit.
        on_day: Called before each date with its number.
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
        f"There is no archive at {table}. Name another table, or create it by running the pipeline that archives the "
        "topic: respool run visits-archive, browser-visits-archive, or your own."
    )


PREFIX = 32  # characters of a text that Delta's statistics keep
