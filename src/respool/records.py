"""Raw Kafka records as a DataFrame: their columns, and how they are read."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def read_stream(
    spark: "SparkSession", kafka: Kafka, topic: str, max_offsets_per_trigger: int | None = None
) -> "DataFrame":
    """Return the records of a topic as a stream, from the earliest on; a checkpoint overrides the start.

    Records that Kafka dropped before they were read fail the query: nothing is skipped silently.
    """
    reader = spark.readStream.format("kafka").options(**kafka.for_spark())
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", True)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return _columns(reader.load())


def read_offsets(
    spark: "SparkSession", kafka: Kafka, topic: str, offsets: Mapping[int, tuple[int, int]]
) -> "DataFrame":
    """Return the records of a topic between two offsets of each partition, the second exclusive, as a batch.

    Offsets that Kafka no longer has fail the query.
    """
    starts, ends = (json.dumps({topic: {str(one): pair[at] for one, pair in offsets.items()}}) for at in (0, 1))
    reader = spark.read.format("kafka").options(**kafka.for_spark()).option("includeHeaders", True)
    reader = reader.option("assign", json.dumps({topic: sorted(offsets)}))
    return _columns(reader.option("startingOffsets", starts).option("endingOffsets", ends).load())


def _columns(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return frame.select(
        *(F.col("timestampType").alias(name) if name == "timestamp_type" else F.col(name) for name in COLUMNS)
    )
