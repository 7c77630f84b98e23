"""Where results go. A batch of a stream and a result computed again are written by the same code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from respool import topics
from respool.errors import PipelineError, did_you_mean
from respool.identity import FROM_TEXT, Identity
from respool.kafka import Kafka
from respool.locations import canonical_location
from respool.printable import printable
from respool.rendering import json_of
from respool.sql import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What earlier versions of respool kept in run.json of a pipeline that archives; see `identity_from_text`.
_ARCHIVE_ON_REPLAY = "Records that the archive has already are left out."


@dataclass(frozen=True)
class Write:
    """One write: what a sink must know beside the rows.

    Attributes:
        pipeline: The pipeline's name.
        batch: The id of the micro-batch; None for what is computed again.
        kafka: The cluster for sinks that write there.
        home: The folder under which sinks put files of their own.
        run: The id of the run that computes a span again; None for a micro-batch.
    """

    pipeline: str
    batch: int | None
    kafka: Kafka
    home: Path
    run: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that tell a consumer where a Kafka record comes from."""
        if self.run is not None:
            return {"respool-source": "reprocess", "respool-pipeline": self.pipeline, "respool-run-id": self.run}
        return {"respool-source": "live", "respool-pipeline": self.pipeline, "respool-batch": str(self.batch)}


@dataclass(frozen=True)
class Output:
    """Where results can be read again.

    Attributes:
        address: `kafka:TOPIC` or `delta:TABLE`, the table with its whole path or URL.
        key: The columns that identify a result; none when it has no key.
    """

    address: str
    key: tuple[str, ...] = ()


@runtime_checkable
class Sink(Protocol):
    """A place for results. One whose results can be read again is a `ReadableSink`, too."""

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        ...

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        ...

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Make what the sink needs before the first write."""
        ...

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Write all rows of `frame`, once; every partition is computed, as stateful queries need."""
        ...


@runtime_checkable
class IdentifiedSink(Protocol):
    """A place that can be told from others of its kind. Of another sink only its description is known."""

    def identity(self) -> Identity:
        """Return what tells this place from others, whatever is written there."""
        ...


@runtime_checkable
class ReadableSink(Protocol):
    """A place whose results can be read again."""

    def output(self, home: Path) -> Output:
        """Return where; `home` is the folder under which sinks put files of their own."""
        ...


@runtime_checkable
class ForkableSink(Sink, Protocol):
    """A place for results that can have another one beside it, for a second run of the same pipeline."""

    def beside(self, suffix: str) -> Sink:
        """Return the same kind of place, with a suffix to its name."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A place where every result stands under a key, so that it can be compared, put right and taken back."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a result."""
        ...

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        ...

    def published(self, spark: "SparkSession", write: Write, rows: "StructType") -> "DataFrame":
        """Return what the sink holds now: `key`, `value` and `row` of each result, the newest of every key.

        What is known of its writing: `batch`, the live batch it came from, and `at`, the time; else null.

        Args:
            spark: The pipeline's session.
            write: Where to look.
            rows: The schema of results.
        """
        ...

    def correct(self, changes: "DataFrame", write: Write) -> None:
        """Write `key`, `value` and `row` of each result; one whose value is null is withdrawn."""
        ...


@dataclass(frozen=True)
class KafkaSink:
    """Rows as JSON to a topic.

    Attributes:
        topic: The topic; created when missing.
        key: The columns that identify a result, so that a consumer can upsert: one text column is written as it is,
            others as JSON. Times have milliseconds, and microseconds where these are not zero.
        withdrawn: A boolean column; a row where it is true takes back what was said under its key, and is sent without
            a value: a tombstone. The column itself is not sent.
    """

    topic: str
    key: tuple[str, ...] = ()
    withdrawn: str | None = None

    def beside(self, suffix: str) -> "KafkaSink":
        """Return a topic of the same results, with a suffix to its name."""
        return replace(self, topic=f"{self.topic}{suffix}")

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic {self.topic}"

    def identity(self) -> Identity:
        """Return what tells this topic from other places."""
        return kafka_identity(self.topic)

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return (
            f"Results are sent to {self.topic} again, under the same keys; the header respool-batch tells their batch."
        )

    def output(self, home: Path) -> Output:
        """Return where the results can be read again."""
        return Output(f"kafka:{self.topic}", self.key)

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Create the topic when it is missing."""
        _ensure_for(kafka, self.topic, source_topic)

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Send every row as a record."""
        key, value, _ = self._rendered(frame)
        _send(frame.selectExpr(key, value, f"{_headers(write)} AS headers"), self.topic, write)

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        return rows.selectExpr(*self._rendered(rows))

    def published(self, spark: "SparkSession", write: Write, rows: "StructType") -> "DataFrame":
        """Return what the topic holds now, the newest record of every key; tombstones are left out."""
        from pyspark.sql import functions as F

        if not topics.exists(write.kafka, self.topic):  # nothing was written yet
            nothing = self.render(spark.createDataFrame([], rows))
            return nothing.select(
                "*", F.lit(None).cast("int").alias("batch"), F.lit(None).cast("timestamp").alias("at")
            )
        reader = spark.read.format("kafka").options(**write.kafka.for_spark()).option("subscribe", self.topic)
        records = reader.option("includeHeaders", True).load()
        found = records.select(
            *("key", "value", "partition", "offset", batch_header().alias("batch"), F.col("timestamp").alias("at")),
        )
        newest = newest_records(found, "key", ("value", "batch"))
        fields = [field for field in rows if field.name != self.withdrawn]
        row = F.from_json(F.col("value").cast("string"), type(rows)(fields))
        return newest.where("value IS NOT NULL").select("key", "value", row.alias("row"), "batch", "at")

    def correct(self, changes: "DataFrame", write: Write) -> None:
        """Send each result as a record; without a value it is a tombstone."""
        _send(changes.selectExpr("key", "value", f"{_headers(write)} AS headers"), self.topic, write)

    def _rendered(self, rows: "DataFrame") -> tuple[str, str, str]:
        """Return key, value and row of results, in SQL."""
        schema = rows.schema
        names = [name for name in schema.names if name != self.withdrawn]
        row, value = _struct(names), json_of(schema, names)
        if self.withdrawn:
            value = f"CASE WHEN NOT coalesce({quoted(self.withdrawn)}, false) THEN {value} END"
        return f"CAST({self._key(schema)} AS BINARY) AS key", f"CAST({value} AS BINARY) AS value", f"{row} AS row"

    def _key(self, rows: "StructType") -> str:
        from pyspark.sql.types import StringType

        if not self.key:
            return "NULL"
        if len(self.key) == 1 and any(one.name == self.key[0] and one.dataType == StringType() for one in rows):
            return quoted(self.key[0])
        return json_of(rows, self.key)


@dataclass(frozen=True)
class RejectedSink:
    """Rejected records to a topic, exactly as they came, the reason and their place in the headers.

    Attributes:
        topic: The topic; created when missing, for records as large as the source topic takes.
    """

    topic: str

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic {self.topic}"

    def identity(self) -> Identity:
        """Return what tells this topic from other places."""
        return kafka_identity(self.topic)

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return (
            f"Rejected records are sent to {self.topic} again, with their topic, partition and offset in the headers."
        )

    def output(self, home: Path) -> Output:
        """Return where the rejected records can be read again."""
        return Output(f"kafka:{self.topic}")

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Create the topic when it is missing."""
        _ensure_for(kafka, self.topic, source_topic)

    def write(self, frame: "DataFrame", write: Write) -> None:
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


@dataclass(frozen=True)
class ConsoleSink:
    """Rows as tables on standard output, batch by batch, as Spark's own console sink draws them.

    Attributes:
        rows: How many rows of a batch are shown.
    """

    rows: int = 20

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return "console"

    def identity(self) -> Identity:
        """Return what tells standard output from other places."""
        return Identity("console", {})

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return "Results are printed again."

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Nothing to make."""

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Print the batch; all rows are collected first, so that every state partition is committed."""
        session = frame.sparkSession
        rows = session._jsparkSession.createDataFrame(frame._jdf.collectAsList(), frame._jdf.schema())
        line = "-" * 43
        title = f"Batch: {write.batch}" if write.run is None else f"Run: {write.run}"
        print(f"{line}\n{title}\n{line}\n{printable(rows.showString(self.rows, 0, False))}", flush=True)


@dataclass(frozen=True)
class FunctionSink:
    """Rows to a function of the pipeline's author, called for every batch.

    Attributes:
        function: Takes the batch's rows and its id. It must read every partition of the rows.
        summary: A few words for `respool pipelines`.
    """

    function: Callable[["DataFrame", int], None]
    summary: str

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return self.summary

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return "The function is called again, with the same batch ids."

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Nothing to make."""

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Call the function."""
        assert write.batch is not None
        self.function(frame, write.batch)


def identity_of(sink: Sink) -> Identity:
    """Return what tells the place of a sink from others."""
    return sink.identity() if isinstance(sink, IdentifiedSink) else Identity("described", {"text": sink.describe()})


def kafka_identity(topic: str) -> Identity:
    """Return what tells a topic from other places."""
    return Identity("kafka", {"topic": topic})


def table_identity(table: str, holds: Literal["results", "records"]) -> Identity:
    """Return what tells a Delta table from other places.

    Args:
        table: Its path or URL, as the pipeline names it: a relative path lies under the home.
        holds: `results`, or the `records` of an archive. They have different folders under the home.
    """
    return Identity("delta", {"table": canonical_location(table), "holds": holds})


def folder_identity(folder: str) -> Identity:
    """Return what tells a folder, given in place of a sink, from other places."""
    return Identity("folder", {"path": canonical_location(folder)})


def identity_from_text(text: str, on_replay: str = "") -> Identity | None:
    """Return the identity in a sentence of earlier versions of respool, which kept sentences; None for an empty one.

    Args:
        text: What `describe` returned, or `folder PATH` for results that were written to a folder.
        on_replay: What `on_replay` returned, where it is kept: only that tells an archive from a table of results.
    """
    if not text:
        return None
    for start, name in (("Kafka topic ", "topic"), ("Delta table ", "table"), ("folder ", "path")):
        place = text.removeprefix(start)
        if place == text:
            continue
        if name == "table":
            holds = {} if not on_replay else {"holds": "records" if on_replay == _ARCHIVE_ON_REPLAY else "results"}
            return Identity("delta", {"table": canonical_location(place), **holds}, FROM_TEXT)
        if name == "path":
            return Identity("folder", {"path": canonical_location(place)}, FROM_TEXT)
        return Identity("kafka", {"topic": place}, FROM_TEXT)
    return Identity("console", {}, FROM_TEXT) if text == "console" else Identity("described", {"text": text}, FROM_TEXT)


def text_of(identity: Identity) -> str:
    """Return an identity of a place for people, as its sink describes it."""
    fields = identity.fields
    match identity.kind:
        case "kafka":
            return f"Kafka topic {fields.get('topic')}"
        case "delta":
            return f"Delta table {fields.get('table')}"
        case "folder":
            return f"folder {fields.get('path')}"
        case _:
            return str(fields.get("text", identity.kind))


def check_key(sink: object, columns: Sequence[str], pipeline: str) -> None:
    """Raise PipelineError when results lack a column of the sink's key.

    Args:
        sink: The sink.
        columns: The columns of results.
        pipeline: The pipeline's name.
    """
    known = {name.lower() for name in columns}
    lacking = next((name for name in getattr(sink, "key", ()) if name.lower() not in known), None)
    if lacking is not None:
        raise PipelineError(
            f"The key of the sink of {pipeline} has the column '{lacking}', which its results do not have "
            f"({', '.join(columns)}).{did_you_mean(lacking, list(columns))} Correct the key or the transform."
        )


def batch_header() -> "Column":
    """Return the live batch that a record came from, by its `headers`; null when they do not tell."""
    from pyspark.sql import functions as F

    header = F.filter("headers", lambda one: one.key == "respool-batch")
    return F.get(header, F.lit(0)).value.cast("string").try_cast("int")


def newest_records(records: "DataFrame", by: str, kept: tuple[str, ...]) -> "DataFrame":
    """Return the newest of the records that are alike in one column: that column, those of `kept`, and `at`.

    Args:
        records: They have a `partition`, an `offset` and a time, `at`.
        by: The column, most often the key.
        kept: Further columns.
    """
    from pyspark.sql import functions as F

    row = F.struct(*kept, "at")
    # Within a partition the order counts; should a key be in several, as these grew in number, the time does.
    newest = records.groupBy(by, "partition").agg(F.max_by(row, "offset").alias("kept"))
    return newest.groupBy(by).agg(F.max_by("kept", "kept.at").alias("kept")).select(by, "kept.*")


def _struct(names: Iterable[str]) -> str:
    return f"struct({', '.join(map(quoted, names))})"


def _header_array(headers: Mapping[str, str]) -> str:
    """Return headers in SQL, of texts in SQL."""
    pairs = (f"struct({literal(name)} AS key, CAST({value} AS BINARY) AS value)" for name, value in headers.items())
    return f"array({', '.join(pairs)})"


def _headers(write: Write) -> str:
    return _header_array({name: literal(value) for name, value in write.headers().items()})


# The topic decides how large a record may be, not the client. A broker that is away for a minute or two is waited for
# inside the batch, as in `records`; a record that was accepted is given up after `delivery.timeout.ms`, two minutes.
_SENDING = {
    "kafka.max.request.size": str(2**27),
    "kafka.buffer.memory": str(2**27),
    "kafka.max.block.ms": "120000",
}


def _send(rows: "DataFrame", topic: str, write: Write) -> None:
    writer = rows.write.format("kafka").options(**_SENDING).options(**write.kafka.for_spark())
    writer.option("topic", topic).save()


def _ensure_for(kafka: Kafka, topic: str, source_topic: str) -> None:
    """Create a topic when it is missing, for records as large as another topic accepts, and what is added to them."""
    if topics.exists(kafka, topic):
        return
    largest = topics.max_message_bytes(kafka, source_topic)
    # One more MiB, for headers and field names.
    topics.ensure(kafka, topic, config={"max.message.bytes": str(largest + 2**20)} if largest else None)
