"""The path of a record: source → decode → watermark → transform → sink."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from respool.decoders.json import decode_events
from respool.kafka.cluster import KafkaCluster
from respool.kafka.records import read_stream
from respool.locations import for_spark
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from respool.sinks.protocol import WriteContext, check_key
from respool.times import spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Read = Callable[["SparkSession"], "DataFrame"]
Write = Callable[["DataFrame", int], None]

_NO_PAUSE = {"processingTime": "0 seconds"}  # Spark's default


def start_query(
    session: "SparkSession",
    pipeline: Pipeline,
    read: Read,
    write: Write,
    checkpoint: str,
    trigger: Mapping[str, Any] = _NO_PAUSE,
    *,
    require_key: bool = False,
) -> "StreamingQuery":
    """Start the streaming query of a pipeline.

    Args:
        session: The pipeline's session.
        pipeline: The pipeline.
        read: Returns the source's records as a stream.
        write: Writes the results of a batch, given the batch's id.
        checkpoint: The folder or URL of the query's checkpoint.
        trigger: The arguments of Spark's `trigger`.
        require_key: Raise PipelineError when the results lack a column of the sink's key.
    """
    # Source
    events = read(session)

    # Decode. Rejected records are counted for the batch line.
    if pipeline.decode is not None:
        events = decode_events(events, pipeline.decode, "respool")

    # Watermark
    if pipeline.decode is not None and pipeline.watermark is not None:
        events = events.withWatermark(pipeline.decode.event_time, spark_interval(pipeline.watermark))

    # Transform. A stateless transform is applied to each batch below.
    results = events if pipeline.stateless else pipeline.transform(events)
    if require_key and not pipeline.stateless:
        check_key(pipeline.sink, results.columns, pipeline.name)

    # Sink
    def write_batch(frame: "DataFrame", batch: int) -> None:
        write(pipeline.transform(frame) if pipeline.stateless else frame, batch)

    writer = results.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
    writer = writer.option("checkpointLocation", for_spark(checkpoint)).trigger(**trigger)
    return writer.foreachBatch(write_batch).start()


def kafka_source(kafka: KafkaCluster, pipeline: Pipeline, limit: int | None = None) -> Read:
    """Return a function that reads a pipeline's topic as a stream.

    Args:
        kafka: The cluster.
        pipeline: The pipeline.
        limit: How many records a batch reads at most, in place of the pipeline's own limit.
    """

    def read(session: "SparkSession") -> "DataFrame":
        most = limit or pipeline.max_offsets_per_trigger
        # A decoder reads values only; a pipeline without a decoder reads whole records.
        return read_stream(session, kafka, pipeline.topic, most, headers=pipeline.decode is None)

    return read


def sink_writer(kafka: KafkaCluster, pipeline: Pipeline, settings: Settings) -> Write:
    """Return a function that writes results to a pipeline's sink; the settings have the place of its tables."""

    def write(results: "DataFrame", batch: int) -> None:
        pipeline.sink.write(results, WriteContext(pipeline.name, batch, kafka, settings))

    return write
