"""Pipelines that archive a topic."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from respool.archive.high_water import ArchivedOffsets, catch_up, read_archived_offsets
from respool.archive.table import KEY, PARTITION_COLUMNS, DecoderIdentity, create, locate, read, to_archive
from respool.decoders.protocol import Decoder
from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from respool.sinks.protocol import SinkOutput, WriteContext, table_identity
from respool.sources.kafka import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# A batch has records of a few hours: with a file open for each of them, its records need not be sorted by hour first.
# One of more hours is.
_SPARK = {"spark.sql.maxConcurrentOutputFileWriters": "8"}


def archive_topic(
    name: str, topic: str | KafkaSource, decoder: Decoder, *, table: str | None = None, timezone: str = "UTC"
) -> Pipeline:
    """Return a pipeline that archives topics; rejected records are archived too, and need no separate topic.

    Args:
        name: The pipeline's name.
        topic: The topic, or a source of several.
        decoder: The decoder of its event times.
        table: The archive's path or URL; by default `<topic>_table`, or `<name>_table` of several topics, under the
            home's `archive`.
        timezone: The zone in which event times without a zone are read.
    """
    source = KafkaSource(topic) if isinstance(topic, str) else topic
    table = table or default_table(name, source)
    return Pipeline(
        name=name,
        summary="Archives every record as it came, by hour of event time",
        source=source,
        transform=partial(to_archive, decoder=decoder),
        sink=ArchiveSink(table, decoder),
        timezone=timezone,
        spark=_SPARK,
        archive=table,
    )


def default_table(name: str, source: KafkaSource) -> str:
    """Return the archive of a source, where none is named: `<topic>_table`, or `<name>_table` of several topics."""
    return f"{source.names[0] if len(source.names) == 1 else name}_table"


def archive_pipeline(pipeline: Pipeline, input: str | None = None) -> Pipeline:
    """Return the pipeline that archives what another pipeline reads, which `respool reprocess` reads.

    >>> respool.archive_pipeline(respool.find_pipeline("visit-counts")).name
    'visit-counts-archive'

    Args:
        pipeline: The other pipeline.
        input: The name of the input, of a pipeline with several; each has an archive of its own.

    Raises:
        PipelineError: The pipeline has no such input, or the input is not Kafka or has no decoder.
    """
    archived = [name for name, each in pipeline.streams.items() if each.kafka is not None and each.decode is not None]
    if input is None and len(archived) == 1:
        [input] = archived
    if input not in archived:
        problem = (
            f"{', '.join(archived)} can be archived. Name one of them as input."
            if archived
            else "none of its inputs has a decoder and is Kafka, so its records have no event time."
        )
        raise PipelineError(f"The pipeline {pipeline.name}: {problem}")
    each = pipeline.streams[input]
    assert each.kafka is not None
    assert each.decode is not None
    name = f"{pipeline.name}-{input}-archive" if pipeline.inputs else f"{pipeline.name}-archive"
    return archive_topic(name, each.kafka, each.decode, table=each.archive, timezone=pipeline.timezone)


@dataclass(frozen=True)
class _Run:
    """What the sink remembers from batch to batch in a run of a query.

    Attributes:
        archived: The highest archived offsets at the last batch.
        settled: Whether a batch of this run had only new records. Later batches have too, with rare exceptions.
    """

    archived: ArchivedOffsets
    settled: bool


@dataclass(frozen=True)
class ArchiveSink:
    """Writes each record once to a Delta table. A batch makes one commit, or none when it has no new record.

    The table's first version, 0, is the empty table. Two processes must not archive the same topic in the same table at
    the same time.

    Attributes:
        table: The table's path or URL; a relative path is one under the home's `archive`.
        decoder: The decoder of event times.
    """

    table: str
    decoder: Decoder
    _runs: dict[str, _Run] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_suffix(self, suffix: str) -> "ArchiveSink":
        """Return an archive of the same records, with a suffix to its name."""
        return ArchiveSink(f"{self.table.rstrip('/')}{suffix}", self.decoder)

    def describe(self) -> str:
        """Return a short description for `respool pipelines`."""
        return f"Delta table {self.table}"

    def identity(self) -> Identity:
        """Return the identity of this archive."""
        return table_identity(self.table, "records")

    def replay_note(self) -> str:
        """Return what happens when a batch is replayed, for the plan of a rewind."""
        return "Records that the archive already has are skipped."

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the records can be read."""
        return SinkOutput(f"delta:{locate(self.table, settings)}", KEY)

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Do nothing: the first write creates the table."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Append the records of `frame` that the table lacks."""
        spark = frame.sparkSession
        table = locate(self.table, write.settings)
        name = spark.sparkContext.getLocalProperty("spark.jobGroup.id")  # Spark's id of a query's run
        run = self._runs.get(name) if name else None
        if run is None:
            create(spark, table, DecoderIdentity.of(self.decoder, str(spark.conf.get("spark.sql.session.timeZone"))))
            run = _Run(read_archived_offsets(spark, table), settled=False)
        run = replace(run, archived=catch_up(spark, table, run.archived))
        only_new = (_append_new if run.settled else _append_lacking)(frame, table, run.archived)
        if name:
            self._runs[name] = replace(run, settled=run.settled or only_new)


def _append_lacking(frame: "DataFrame", table: str, archived: ArchivedOffsets) -> bool:
    """Append the records that the table lacks, and return whether all were new; for batches that may be replayed."""
    from pyspark.sql import functions as F

    frame = frame.persist()  # read once, so that rejected records are counted once
    try:
        span = frame.where(archived.maybe()).agg(F.min("offset"), F.max("offset")).first()
        assert span is not None
        only_new = span[0] is None
        _append(frame if only_new else _lacking(frame, table, archived, span[0], span[1]), table, archived)
    finally:
        frame.unpersist()
    return only_new


def _append_new(frame: "DataFrame", table: str, archived: ArchivedOffsets) -> bool:
    """Append the records that the table lacks, and return whether all were new; if so, the batch is read once."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    replayed = Observation()
    watched = frame.observe(replayed, F.min(F.when(archived.maybe(), F.col("offset"))).alias("first"))
    _append(watched.where(~archived.maybe()), table, archived)
    first = replayed.get["first"]
    if first is None:
        return True
    # A second commit, and Spark counts the batch's records twice. Rare: it takes another writer at the same time.
    last = max(archived.ends.values())
    _append(_lacking(frame.where(archived.maybe()), table, archived, first, last), table, archived)
    return False


def _lacking(frame: "DataFrame", table: str, archived: ArchivedOffsets, first: int, last: int) -> "DataFrame":
    """Return the records of `frame` that the table lacks; it has none of them outside these offsets."""
    present = read(frame.sparkSession, table, archived.version).where(f"offset BETWEEN {first} AND {last}")
    return frame.join(present.select(*KEY), list(KEY), "left_anti").select(*frame.columns)


def _append(frame: "DataFrame", table: str, archived: ArchivedOffsets) -> None:
    # Delta does not commit an append without rows.
    writer = frame.write.format("delta").mode("append").partitionBy(*PARTITION_COLUMNS)
    writer.option("userMetadata", archived.to_json()).save(for_spark(table))
