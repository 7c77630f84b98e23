"""The path of a record: source → decode → watermark → transform → sink.

Records that the decoders of a run's pipelines reject take another path: companion pipelines keep them.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from respool.decoders.protocol import Decoder, decode_events
from respool.errors import PipelineError
from respool.kafka.cluster import KafkaCluster
from respool.locations import absolute, for_spark
from respool.pipeline.definition import Pipeline, rejected
from respool.pipeline.inputs import Input
from respool.pipeline.job import JobPipeline, sink_of
from respool.running.progress import OBSERVATION
from respool.settings import Settings
from respool.sinks.protocol import WriteContext, check_columns
from respool.sources.kafka import KafkaSource
from respool.sources.protocol import ReadContext, TableSource
from respool.spark import internals
from respool.spark.internals import writer_facts
from respool.storage.lease import hold, holder
from respool.times import spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ReadInput = Callable[["SparkSession", str, Input], "DataFrame"]
WriteBatch = Callable[["DataFrame", int], None]

_NO_PAUSE = {"processingTime": "0 seconds"}  # Spark's default

_NEW_TOPICS = 30.0  # seconds between requests for new topics of a pattern


def start_query(
    session: "SparkSession",
    pipeline: Pipeline,
    read: ReadInput,
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
        read: Returns the rows of an input: a stream, or all rows of a static input.
        write: Writes the results of a batch, given the batch's id.
        checkpoint: The folder or URL of the query's checkpoint.
        trigger: The arguments of Spark's `trigger`.
        require_key: Raise PipelineError when the results lack a column that the sink names, such as one of its key.
    """
    if isinstance(pipeline, JobPipeline):
        return start_job(session, pipeline, checkpoint, trigger)

    if pipeline.idle_inputs == "ignore":
        session.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")

    # Sources
    rows = {name: read(session, name, each) for name, each in pipeline.streams.items()}

    # Decode, and watermarks
    is_only = len(rows) == 1
    events = {
        name: _events(frame, pipeline.streams[name], OBSERVATION if is_only else f"{OBSERVATION}.{name}")
        for name, frame in rows.items()
    }

    # Transform. A stateless transform is applied to each batch below.
    results = next(iter(events.values())) if pipeline.stateless else pipeline.compute(events)
    if require_key and not pipeline.stateless:
        check_columns(pipeline.sink, results.columns, pipeline.name)

    # Sink
    def write_batch(frame: "DataFrame", batch: int) -> None:
        with internals.short_errors():
            write(pipeline.compute(dict.fromkeys(events, frame)) if pipeline.stateless else frame, batch)

    writer = results.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
    writer = writer.option("checkpointLocation", for_spark(checkpoint)).trigger(**trigger)
    return writer.foreachBatch(write_batch).start()


def start_job(
    session: "SparkSession", job: JobPipeline, checkpoint: str, trigger: Mapping[str, Any] | None
) -> "StreamingQuery":
    """Start a user's own query: with its checkpoint, and with a trigger only where the run asks for one."""
    writer = build_writer(session, job).option("checkpointLocation", for_spark(checkpoint))
    if "queryname" not in writer_facts(writer).options:
        writer = writer.queryName(job.name)
    return (writer.trigger(**trigger) if trigger else writer).start()


def build_writer(session: "SparkSession", job: JobPipeline) -> "DataStreamWriter":
    """Return the writer that a job's function makes; raise PipelineError when it makes something else."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    assert job.build is not None
    try:
        writer: object = job.build(session)
    except Exception as error:
        raise PipelineError(f"The function of the job {job.name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(writer, DataStreamWriter):
        hint = "Return the writer without calling start()." if hasattr(writer, "awaitTermination") else "Return one."
        raise PipelineError(
            f"The function of the job {job.name} returned a {type(writer).__name__}; expected a DataStreamWriter, such "
            f"as events.writeStream.format('delta'). {hint}"
        )
    return writer


def resolve_job(session: "SparkSession", job: JobPipeline) -> JobPipeline:
    """Return a job with the checkpoint and the sink that its code names; its function is called once."""
    facts = writer_facts(build_writer(session, job))
    checkpoint = facts.options.get("checkpointlocation")
    return replace(
        job,
        checkpoint=None if checkpoint is None else absolute(checkpoint),
        sink=sink_of(facts.format, facts.options),
        output_mode=facts.output_mode,
    )


def _events(rows: "DataFrame", each: Input, observation: str) -> "DataFrame":
    """Return the events of an input; rejected records are counted for the batch line."""
    events = rows if each.decode is None else decode_events(rows, each.decode, observation)
    if each.watermark is None or each.time_column is None:
        return events
    return events.withWatermark(each.time_column, spark_interval(each.watermark))


def source_reader(kafka: KafkaCluster, pipeline: Pipeline, settings: Settings, limit: int | None = None) -> ReadInput:
    """Return a function that reads the inputs of a pipeline.

    Args:
        kafka: The cluster.
        pipeline: The pipeline.
        settings: Where tables are that a source names by a relative path.
        limit: How many records a batch reads at most of a Kafka source, in place of the pipeline's own limit.
    """

    def read(session: "SparkSession", name: str, each: Input) -> "DataFrame":
        # A pipeline without a decoder reads whole records.
        headers = each.decode is None or "headers" in each.decode.columns()
        context = ReadContext(kafka, settings, limit or pipeline.max_offsets_per_trigger, headers=headers)
        if each.static:
            assert isinstance(each.source, TableSource)
            return each.source.table_rows(session, context)
        return each.source.stream(session, context)

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
        kafka: KafkaCluster,
        checkpoint_of: Callable[[Pipeline], str],
        hold_companion: Callable[[Pipeline], bool],
        claims: ExitStack,
    ) -> None:
        """Collect the decoders of pipelines.

        Args:
            pipelines: The pipelines.
            kafka: The cluster, which is asked for the topics of patterns.
            checkpoint_of: Returns the checkpoint of a companion.
            hold_companion: Holds the checkpoint of a companion; returns False when another process holds it.
            claims: Closes the leases that have to last as long as the run.
        """
        self._checkpoint_of = checkpoint_of
        self._hold_companion = hold_companion
        self._claims = claims
        self._kafka = kafka
        self._inputs = [
            (pipeline.name, each.kafka, each.decode)
            for pipeline in pipelines
            for each in pipeline.streams.values()
            if each.kafka is not None and each.decode is not None
        ]
        self._kept: set[tuple[str, Decoder]] = set()
        self._topics: dict[str, dict[Decoder, list[str]]] = {}
        self._listed: float | None = None

    def topics(self) -> list[str]:
        """Return the topics that have decoders of which this process does not keep the rejected records."""
        has_patterns = any(source.pattern is not None for _, source, _ in self._inputs)
        if self._listed is None or (has_patterns and time.monotonic() - self._listed > _NEW_TOPICS):
            self._topics = decoders_by_topic(self._inputs, self._kafka)
            self._listed = time.monotonic()
        return [topic for topic in self._topics if self._open(topic)]

    def claim(self, topic: str) -> Pipeline | None:
        """Hold the companion of as many decoders of a topic as possible; None when other processes hold all."""
        mine = self._open(topic)
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
        companion = rejected(topic, mine, self._source(topic))
        if not self._hold_companion(companion):
            return None
        self._kept |= {(topic, decoder) for decoder in mine}
        return companion

    def holders(self, topic: str) -> list[str]:
        """Return which other processes keep rejected records of a topic, for messages."""
        alone = (self._checkpoint_of(rejected(topic, {decoder: ()})) for decoder in self._open(topic))
        return sorted({process for checkpoint in alone if (process := holder(checkpoint)) is not None})

    def _open(self, topic: str) -> dict[Decoder, list[str]]:
        decoders = self._topics[topic]
        return {decoder: names for decoder, names in decoders.items() if (topic, decoder) not in self._kept}

    def _source(self, topic: str) -> KafkaSource:
        """Return a topic as a source that starts where all its pipelines start, or at its earliest offset."""
        sources = [source for _, source, _ in self._inputs if source.matches(topic)]
        starts = [source.starting for source in sources]
        starting = starts[0] if all(start == starts[0] for start in starts) else "earliest"
        if isinstance(starting, Mapping):
            starting = {topic: starting.get(topic, {})}
        skips = any(source.on_data_loss == "skip" for source in sources)
        return KafkaSource(topic, starting=starting, on_data_loss="skip" if skips else "fail")


def decoders_by_topic(
    inputs: Iterable[tuple[str, KafkaSource, Decoder]], kafka: KafkaCluster
) -> dict[str, dict[Decoder, list[str]]]:
    """Return the decoders of inputs by topic, each with the names of its pipelines."""
    decoders: dict[str, dict[Decoder, list[str]]] = {}
    for name, source, decoder in inputs:
        for topic in source.present(kafka):
            decoders.setdefault(topic, {}).setdefault(decoder, []).append(name)
    return decoders
