"""The path of a record: source → decode → watermark → transform → sink.

Records that the decoders of a run's pipelines reject take another path: companion pipelines keep them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from respool.decoders.json import JsonDecoder, decode_events
from respool.kafka.cluster import KafkaCluster
from respool.kafka.records import read_stream
from respool.locations import for_spark
from respool.pipeline.definition import Pipeline, rejected
from respool.settings import Settings
from respool.sinks.protocol import WriteContext, check_columns
from respool.spark import internals
from respool.storage.lease import hold, holder
from respool.times import spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


ReadSource = Callable[["SparkSession"], "DataFrame"]
WriteBatch = Callable[["DataFrame", int], None]

_NO_PAUSE = {"processingTime": "0 seconds"}  # Spark's default


def start_query(
    session: "SparkSession",
    pipeline: Pipeline,
    read: ReadSource,
    write: WriteBatch,
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
        require_key: Raise PipelineError when the results lack a column that the sink names, such as one of its key.
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
        check_columns(pipeline.sink, results.columns, pipeline.name)

    # Sink
    def write_batch(frame: "DataFrame", batch: int) -> None:
        with internals.short_errors():
            write(pipeline.transform(frame) if pipeline.stateless else frame, batch)

    writer = results.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
    writer = writer.option("checkpointLocation", for_spark(checkpoint)).trigger(**trigger)
    return writer.foreachBatch(write_batch).start()


def kafka_source(kafka: KafkaCluster, pipeline: Pipeline, limit: int | None = None) -> ReadSource:
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


def sink_writer(kafka: KafkaCluster, pipeline: Pipeline, settings: Settings, epoch: str = "") -> WriteBatch:
    """Return a function that writes results to a pipeline's sink.

    Args:
        kafka: The cluster.
        pipeline: The pipeline.
        settings: Where tables and folders are that a sink names by a relative path.
        epoch: The id of the last change of the query's checkpoint.
    """

    def write(results: "DataFrame", batch: int) -> None:
        query = results.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        context = WriteContext(pipeline.name, batch, kafka, settings, query=query, epoch=epoch)
        pipeline.sink.write(results, context)

    return write


class Companions:
    """The decoders of a run whose rejected records are not kept by this process yet.

    A topic has one companion for all decoders of a run. A decoder is applied by a single process, whatever pipelines
    each process runs: its lock is the checkpoint of the companion that the decoder has when it is alone. A decoder that
    another process applies is tried again later, since that process may end.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        checkpoint_of: Callable[[Pipeline], str],
        hold_companion: Callable[[Pipeline], bool],
        claims: ExitStack,
    ) -> None:
        """Collect the decoders of pipelines.

        Args:
            pipelines: The pipelines.
            checkpoint_of: Returns the checkpoint of a companion.
            hold_companion: Holds the checkpoint of a companion; returns False when another process holds it.
            claims: Closes the leases that have to last as long as the run.
        """
        self._checkpoint_of = checkpoint_of
        self._hold_companion = hold_companion
        self._claims = claims
        self._decoders = decoders_by_topic(pipelines)

    def topics(self) -> list[str]:
        """Return the topics that have decoders of which this process does not keep the rejected records."""
        return [topic for topic, decoders in self._decoders.items() if decoders]

    def claim(self, topic: str) -> Pipeline | None:
        """Hold the companion of as many decoders of a topic as possible; None when other processes hold all."""
        mine = dict(self._decoders[topic])
        if len(mine) > 1:
            leases = {decoder: hold(self._checkpoint_of(rejected(topic, {decoder: ()}))) for decoder in mine}
            mine = {decoder: mine[decoder] for decoder, lease in leases.items() if lease is not None}
            for lease in filter(None, leases.values()):
                if len(mine) > 1:
                    self._claims.callback(lease.close)
                else:
                    lease.close()  # its checkpoint is held below
        if not mine:
            return None
        companion = rejected(topic, mine)
        if not self._hold_companion(companion):
            return None
        for decoder in mine:
            del self._decoders[topic][decoder]
        return companion

    def holders(self, topic: str) -> list[str]:
        """Return which other processes keep rejected records of a topic, for messages."""
        alone = (self._checkpoint_of(rejected(topic, {decoder: ()})) for decoder in self._decoders[topic])
        return sorted({process for checkpoint in alone if (process := holder(checkpoint)) is not None})


def decoders_by_topic(pipelines: Sequence[Pipeline]) -> dict[str, dict[JsonDecoder, list[str]]]:
    """Return the decoders of pipelines by topic, each with the names of its pipelines."""
    decoders: dict[str, dict[JsonDecoder, list[str]]] = {}
    for pipeline in pipelines:
        if pipeline.decode is not None:
            decoders.setdefault(pipeline.topic, {}).setdefault(pipeline.decode, []).append(pipeline.name)
    return decoders
