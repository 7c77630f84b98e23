"""Raw Kafka records as a DataFrame: their columns, and how they are read."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, key BINARY, value BINARY, "
    f"headers {_HEADERS}"
)

_EARLIEST = -2  # in place of an offset, for Spark

# For many records at a time; Kafka's defaults are for few. Spark requests the topic's offsets at every poll, and drops
# what the client has fetched beyond it: a poll returns everything in the broker's response.
_FETCHING = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # At the end of a topic a broker delays its response, half a second by default, and Spark's next request waits
    # for it. Spark requests only records that exist.
    "kafka.fetch.max.wait.ms": "10",
    # The query waits for a broker that is unreachable for a minute or two; a longer outage restarts the query.
    "kafka.default.api.timeout.ms": "120000",
}


def read_stream(
    spark: "SparkSession",
    kafka: KafkaCluster,
    options: Mapping[str, str],
    max_offsets_per_trigger: int | None = None,
    headers: bool = True,
) -> "DataFrame":
    """Return the records of topics as a stream.

    Args:
        spark: The session.
        kafka: The cluster.
        options: Options of Spark's Kafka source: which topics, where a query starts, and what is lost silently.
        max_offsets_per_trigger: How many records a batch takes at most.
        headers: Read the headers; without, they are null.
    """
    reader = spark.readStream.format("kafka").options(**_FETCHING).options(**kafka.for_spark()).options(**options)
    reader = reader.option("includeHeaders", headers)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return _columns(reader.load())


def start_positions(kafka: KafkaCluster, names: Iterable[str], offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Return the offsets at which a query starts, as Spark's option has them: of every partition of every topic.

    Args:
        kafka: The cluster.
        names: The topics.
        offsets: The offsets by topic and partition; other partitions start at the earliest offset.
    """
    positions = {
        name: {
            str(number): offsets.get(name, {}).get(number, _EARLIEST) for number in topics.require_topic(kafka, name)
        }
        for name in names
    }
    return json.dumps(positions)


def read_offsets(
    spark: "SparkSession", kafka: KafkaCluster, topic: str, offsets: Mapping[int, tuple[int, int]]
) -> "DataFrame":
    """Return the records of a topic between two offsets of each partition, the second exclusive, as a batch.

    Offsets that Kafka no longer has fail the query.
    """
    starts, ends = (
        json.dumps({topic: {str(partition): pair[at] for partition, pair in offsets.items()}}) for at in (0, 1)
    )
    reader = spark.read.format("kafka").options(**_FETCHING).options(**kafka.for_spark()).option("includeHeaders", True)
    reader = reader.option("assign", json.dumps({topic: sorted(offsets)}))
    return _columns(reader.option("startingOffsets", starts).option("endingOffsets", ends).load())


def _columns(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    if "headers" not in frame.columns:
        frame = frame.withColumn("headers", F.lit(None).cast(_HEADERS))
    return frame.select(
        *(F.col("timestampType").alias(name) if name == "timestamp_type" else F.col(name) for name in COLUMNS)
    )
