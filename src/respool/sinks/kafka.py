"""Results, and rejected records, as records of a Kafka topic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.avro import AvroFormat
from respool.sinks.columns import ColumnNames, check_distinct
from respool.sinks.protocol import SinkOutput, WriteContext, json_of, kafka_identity
from respool.spark.sql import literal, quote
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType


@dataclass(frozen=True)
class KafkaSink:
    """Rows as JSON or Avro to a topic.

    Attributes:
        topic: The topic; created when missing.
        key: The columns that identify a result, so that a consumer can upsert: one text column is written as it is,
            others as JSON. Times have milliseconds, and microseconds where these are not zero. A single name may be
            given as text.
        withdrawn: A boolean column; a row where it is true withdraws the result of its key: it is sent without a value,
            as a tombstone. The column itself is not sent.
        headers: The columns that are sent as headers of their name, as text or bytes, and not in the value.
        partition: A column with the number of the partition, which is not in the value. By default Kafka derives the
            partition from the key.
        format: How values are written; JSON by default.

    >>> respool.KafkaSink("order-totals", key=("window", "shop")).describe()
    'Kafka topic order-totals'
    >>> respool.KafkaSink("order-totals", key="shop", headers="tenant").headers
    ('tenant',)
    """

    topic: str
    key: ColumnNames = ColumnNames()  # noqa: RUF009  (a descriptor, not a default)
    withdrawn: str | None = None
    headers: ColumnNames = ColumnNames()  # noqa: RUF009
    partition: str | None = None
    format: AvroFormat | None = None

    def __post_init__(self) -> None:
        """Refuse contradictory fields."""
        check_distinct(self, "headers", "partition", "withdrawn")
        check_distinct(self, "key", "withdrawn")
        own = next((name for name in self.headers if name.startswith("respool-")), None)
        if own is not None:
            raise PipelineError(f"KafkaSink.headers has '{own}'; names that start with respool- are respool's own.")
        if self.format is not None:
            columns = [*self.format.columns, *self.headers, *filter(None, [self.partition])]
            unknown = next((name for name in self.key if name not in columns), None)
            if unknown is not None:
                raise PipelineError(
                    f"KafkaSink.key has the column '{unknown}', which the Avro schema does not have "
                    f"({', '.join(columns)}).{did_you_mean(unknown, columns)} Correct the key or the schema."
                )

    def with_suffix(self, suffix: str) -> "KafkaSink":
        """Return a topic of the same results, with a suffix to its name."""
        return replace(self, topic=f"{self.topic}{suffix}")

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic {self.topic}"

    def identity(self) -> Identity:
        """Return the identity of this topic."""
        return kafka_identity(self.topic)

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return (
            f"Results are sent to {self.topic} again, under the same keys; the header respool-batch names their batch."
        )

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the results can be read back."""
        return SinkOutput(f"kafka:{self.topic}", self.key)

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Create the topic when it is missing."""
        _ensure_for(kafka, self.topic, source_topic)

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Send every row as a record."""
        if self.format is not None or self.headers or self.partition is not None:
            self.correct(self.render(frame), write)
            return
        key, value, _ = self._rendered(frame)
        _send(frame.selectExpr(key, value, f"{_headers(write)} AS headers"), self.topic, write)

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        key, value, row = self._rendered(rows)
        if self.format is None:
            return rows.selectExpr(key, value, row)
        withdrawn = f"coalesce({quote(self.withdrawn)}, false)" if self.withdrawn in rows.columns else "false"
        fields = f"{_struct(self._value_columns(rows.columns))} AS fields"
        encoded = self.format.encode(rows.selectExpr(key, row, fields, f"{withdrawn} AS gone"), self.topic, "gone")
        return encoded.select("key", "value", "row")

    def published(self, spark: "SparkSession", write: WriteContext, rows: "StructType") -> "DataFrame":
        """Return what the topic holds now, the newest record of every key; tombstones are left out."""
        from pyspark.sql import functions as F

        if not topics.topic_exists(write.kafka, self.topic):  # nothing was written yet
            nothing = self.render(spark.createDataFrame([], rows))
            return nothing.select(
                "*", F.lit(None).cast("int").alias("batch"), F.lit(None).cast("timestamp").alias("at")
            )
        reader = spark.read.format("kafka").options(**write.kafka.for_spark()).option("subscribe", self.topic)
        records = reader.option("includeHeaders", True).load()
        more = ("headers",) if self.headers else ()
        sent = records.select(
            *("key", "value", "partition", "offset", batch_header().alias("batch"), F.col("timestamp").alias("at")),
            *more,
        )
        newest = newest_records(sent, "key", ("value", "batch", *more, *(("partition",) if self.partition else ())))
        newest = newest.where("value IS NOT NULL")
        names = self._value_columns(rows.names)
        values = type(rows)([field for field in rows if field.name in names])
        if self.format is None:
            newest = newest.withColumn("fields", F.from_json(F.col("value").cast("string"), values))
        else:
            newest = self.format.decode(newest, values)
        row = F.struct(*(self._held(field).alias(field.name) for field in rows if field.name != self.withdrawn))
        return newest.select("key", "value", row.alias("row"), "batch", "at")

    def correct(self, changes: "DataFrame", write: WriteContext) -> None:
        """Send each result as a record; without a value it is a tombstone."""
        headers = _headers(write)
        if self.headers:
            kinds = {field.name: field.dataType for field in changes.select("row.*").schema}
            own = _header_array({name: _bytes(f"row.{quote(name)}", kinds[name]) for name in self.headers})
            headers = f"concat({headers}, {own})"
        partition = [f"CAST(row.{quote(self.partition)} AS INT) AS partition"] if self.partition is not None else []
        _send(changes.selectExpr("key", "value", f"{headers} AS headers", *partition), self.topic, write)

    def _value_columns(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that are in a value."""
        return [name for name in columns if name not in (self.withdrawn, self.partition, *self.headers)]

    def _held(self, field: "StructField") -> "Column":
        """Return a column of results that are read back: of the value, the headers or the partition."""
        from pyspark.sql import functions as F

        if field.name == self.partition:
            return F.col("partition").cast(field.dataType)
        if field.name in self.headers:
            named = F.filter("headers", lambda entry: entry.key == field.name)
            value = F.get(named, F.lit(0)).value
            return value if field.dataType.typeName() == "binary" else value.cast("string").cast(field.dataType)
        return F.col(f"fields.{quote(field.name)}")

    def _rendered(self, rows: "DataFrame") -> tuple[str, str, str]:
        """Return key, value and row of results, in SQL."""
        schema = rows.schema
        names = [name for name in schema.names if name != self.withdrawn]
        row, value = _struct(names), json_of(schema, self._value_columns(names))
        if self.withdrawn:
            value = f"CASE WHEN NOT coalesce({quote(self.withdrawn)}, false) THEN {value} END"
        return f"CAST({self._key(schema)} AS BINARY) AS key", f"CAST({value} AS BINARY) AS value", f"{row} AS row"

    def _key(self, rows: "StructType") -> str:
        from pyspark.sql.types import StringType

        if not self.key:
            return "NULL"
        if len(self.key) == 1 and any(field.name == self.key[0] and field.dataType == StringType() for field in rows):
            return quote(self.key[0])
        return json_of(rows, self.key)


@dataclass(frozen=True)
class RejectedSink:
    """Rejected records to a topic, unchanged, with the reason and their position in the headers.

    Attributes:
        topic: The topic; created when missing, for records as large as the source topic takes.
    """

    topic: str

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic {self.topic}"

    def identity(self) -> Identity:
        """Return the identity of this topic."""
        return kafka_identity(self.topic)

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return (
            f"Rejected records are sent to {self.topic} again, with their topic, partition and offset in the headers."
        )

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the rejected records can be read back."""
        return SinkOutput(f"kafka:{self.topic}")

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Create the topic when it is missing."""
        _ensure_for(kafka, self.topic, source_topic)

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Send every rejected record."""
        place = {
            "respool-reason": "rejected",
            "respool-topic": "topic",
            "respool-partition": "CAST(partition AS STRING)",
            "respool-offset": "CAST(offset AS STRING)",
        }
        if "rejected_by" in frame.columns:  # of several decoders: the pipelines whose decoder rejected it
            place["respool-rejected-by"] = "rejected_by"
        headers = f"concat(coalesce(headers, array()), {_headers(write)}, {_header_array(place)}) AS headers"
        _send(frame.selectExpr("key", "value", headers), self.topic, write)


def batch_header() -> "Column":
    """Return the live batch that wrote a record, by its `headers`; null without such a header."""
    from pyspark.sql import functions as F

    header = F.filter("headers", lambda entry: entry.key == "respool-batch")
    return F.get(header, F.lit(0)).value.cast("string").try_cast("int")


def newest_records(records: "DataFrame", by: str, kept: tuple[str, ...]) -> "DataFrame":
    """Return the newest record for each value of a column: that column, the columns in `kept`, and `at`.

    Args:
        records: They have a `partition`, an `offset` and a time, `at`.
        by: The column, most often the key.
        kept: Further columns to return.
    """
    from pyspark.sql import functions as F

    row = F.struct(*kept, "at")
    # Within a partition the offset decides. A key can be in several partitions once these have grown in number: there
    # the time decides.
    newest = records.groupBy(by, "partition").agg(F.max_by(row, "offset").alias("kept"))
    return newest.groupBy(by).agg(F.max_by("kept", "kept.at").alias("kept")).select(by, "kept.*")


def _struct(names: Iterable[str]) -> str:
    return f"struct({', '.join(map(quote, names))})"


def _header_array(headers: Mapping[str, str]) -> str:
    """Return headers in SQL, of texts in SQL."""
    pairs = (f"struct({literal(name)} AS key, CAST({value} AS BINARY) AS value)" for name, value in headers.items())
    return f"array({', '.join(pairs)})"


def _bytes(value: str, kind: "DataType") -> str:
    return value if kind.typeName() == "binary" else f"CAST({value} AS STRING)"


def _headers(write: WriteContext) -> str:
    return _header_array({name: literal(value) for name, value in write.headers().items()})


# The topic decides how large a record may be, not the client. The batch waits for a broker that is
# unreachable for a minute or two, as in `records`; an accepted record fails after `delivery.timeout.ms`, two minutes.
_SENDING = {
    "kafka.max.request.size": str(2**27),
    "kafka.buffer.memory": str(2**27),
    "kafka.max.block.ms": "120000",
}


def _send(rows: "DataFrame", topic: str, write: WriteContext) -> None:
    writer = rows.write.format("kafka").options(**_SENDING).options(**write.kafka.for_spark())
    writer.option("topic", topic).save()


def _ensure_for(kafka: KafkaCluster, topic: str, source_topic: str | None) -> None:
    """Create a missing topic, for records as large as another topic accepts, plus headers and field names."""
    if topics.topic_exists(kafka, topic):
        return
    largest = topics.max_message_bytes(kafka, source_topic) if source_topic is not None else None
    topics.ensure_topic(kafka, topic, config={"max.message.bytes": str(largest + 2**20)} if largest else None)
