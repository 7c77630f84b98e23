"""Raw Kafka records as a DataFrame: their columns, and how they are read."""

from typing import TYPE_CHECKING

from respool.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


def read_stream(
    spark: "SparkSession", kafka: Kafka, topic: str, max_offsets_per_trigger: int | None = None
) -> "DataFrame":
    """Return the records of a topic as a stream, from the earliest on; a checkpoint overrides the start.

    Records that Kafka dropped before they were read fail the query: nothing is skipped silently.
    """
    from pyspark.sql import functions as F

    reader = spark.readStream.format("kafka").options(**kafka.for_spark())
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", True)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    columns = [F.col("timestampType").alias(name) if name == "timestamp_type" else F.col(name) for name in COLUMNS]
    return reader.load().select(*columns)
