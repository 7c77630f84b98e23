"""Where results go. A batch of a stream and a result computed again are written by the same code."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from respool import topics
from respool.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Write:
    """One write: what a sink must know beside the rows.

    Attributes:
        pipeline: The pipeline's name.
        batch: The id of the micro-batch.
        kafka: The cluster for sinks that write there.
        home: The folder under which sinks put files of their own.
    """

    pipeline: str
    batch: int
    kafka: Kafka
    home: Path

    def headers(self) -> dict[str, str]:
        """Return the headers that tell a consumer where a Kafka record comes from."""
        return {
            "respool-source": "live",
            "respool-pipeline": self.pipeline,
            "respool-batch": str(self.batch),
        }


class Sink(Protocol):
    """A place for results."""

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


@dataclass(frozen=True)
class KafkaSink:
    """Rows as JSON to a topic.

    Attributes:
        topic: The topic; created when missing.
        key: The columns that identify a result, so that a consumer can upsert: one text column is written as it is,
            others as JSON.
        withdrawn: A boolean column; a row where it is true takes back what was said under its key, and is sent without
            a value: a tombstone. The column itself is not sent.
    """

    topic: str
    key: tuple[str, ...] = ()
    withdrawn: str | None = None

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic {self.topic}"

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return (
            f"Results are sent to {self.topic} again, under the same keys; the header respool-batch tells their batch."
        )

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Create the topic when it is missing."""
        topics.ensure(kafka, self.topic)

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Send every row as a record."""
        from pyspark.sql import functions as F

        value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns if name != self.withdrawn]))
        if self.withdrawn:
            value = F.when(~F.coalesce(F.col(f"`{self.withdrawn}`"), F.lit(False)), value)
        rows = frame.select(self._key(frame).alias("key"), value.alias("value"), _headers(write).alias("headers"))
        _send(rows, self.topic, write)

    def _key(self, frame: "DataFrame") -> "Column":
        from pyspark.sql import functions as F

        if not self.key:
            return F.lit(None).cast("string")
        if len(self.key) == 1 and frame.schema[self.key[0]].dataType.simpleString() == "string":
            return F.col(f"`{self.key[0]}`")
        return F.to_json(F.struct(*[F.col(f"`{name}`") for name in self.key]))


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

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return (
            f"Rejected records are sent to {self.topic} again, with their topic, partition and offset in the headers."
        )

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Create the topic when it is missing."""
        largest = topics.max_message_bytes(kafka, source_topic)
        topics.ensure(kafka, self.topic, config={"max.message.bytes": str(largest + 2**20)})

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Send every rejected record."""
        from pyspark.sql import functions as F

        place = {
            "respool-reason": F.col("rejected"),
            "respool-topic": F.col("topic"),
            "respool-partition": F.col("partition").cast("string"),
            "respool-offset": F.col("offset").cast("string"),
        }
        headers = F.concat(F.coalesce(F.col("headers"), F.array()), _headers(write), _header_array(place))
        _send(frame.select("key", "value", headers.alias("headers")), self.topic, write, large=True)


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
        print(f"{line}\nBatch: {write.batch}\n{line}\n{rows.showString(self.rows, 0, False)}", flush=True)


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
        self.function(frame, write.batch)


def _header_array(headers: "dict[str, Column]") -> "Column":
    from pyspark.sql import functions as F

    pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in headers.items()]
    return F.array(*pairs)


def _headers(write: Write) -> "Column":
    from pyspark.sql import functions as F

    return _header_array({name: F.lit(value) for name, value in write.headers().items()})


def _send(rows: "DataFrame", topic: str, write: Write, large: bool = False) -> None:
    writer = rows.write.format("kafka").options(**write.kafka.for_spark()).option("topic", topic)
    if large:
        writer = writer.option("kafka.max.request.size", 2**27).option("kafka.buffer.memory", 2**27)
    writer.save()
