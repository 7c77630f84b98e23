"""Repair an archive: refill missing records from Kafka, remove duplicates, remove lost files from the table's log.

Every step is one commit of the Delta table. A process that is killed has made all of a step or nothing of it; the same
command, run again, does the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from respool.archive.kafka_check import KafkaComparison
from respool.archive.model import ArchiveContents
from respool.archive.sink import ArchiveSink, archive_topic
from respool.archive.table import COLUMNS, KEY, DecoderIdentity, locate, read
from respool.checkpoint.ownership import read_run_record
from respool.decoders.protocol import Decoder
from respool.delta.log import delta_message, open_table, retry_on_conflict
from respool.errors import PipelineError
from respool.format import layout, logs
from respool.identity import Identity
from respool.kafka import records
from respool.kafka.cluster import KafkaCluster
from respool.kafka.offsets import OffsetRange, TopicPartition, joined
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from respool.sinks.protocol import WriteContext
from respool.spark.failures import innermost_cause, is_delta_conflict
from respool.spark.internals import translate_errors
from respool.spark.sql import identifier
from respool.storage import lease
from respool.storage.folder import FolderReader
from respool.storage.open import new_writer, open_reader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_RUNS = 16  # reads of a partition; records between nearer gaps are read too, and skipped as already archived
_TRIES = 3  # if another process changes the same files at the same time
_CONTENT = ("timestamp", "key", "value")  # two records of one offset are duplicates if these are equal


@dataclass(frozen=True)
class RemovalResult:
    """The result of a removal of duplicates.

    Attributes:
        records: The number of removed records.
        differing: The number of offsets whose records differ in content: nothing was removed there.
    """

    records: int
    differing: int


def decoder_of(contents: ArchiveContents, pipeline: Pipeline | None) -> tuple[Decoder, str]:
    """Return the decoder and the time zone of an archive: as the table records them, or those of a pipeline."""
    reading = contents.reading
    if pipeline is None:
        if reading is None or reading.has_several_decoders:
            why = "does not record its decoder" if reading is None else "has records of several decoders"
            raise PipelineError(
                f"The archive {contents.table} {why}, so respool cannot decode the missing records. Name a pipeline "
                "that reads the topic, such as: --pipeline visits-archive."
            )
        return reading.read_by(), reading.timezone
    decoder = pipeline.sink.decoder if isinstance(pipeline.sink, ArchiveSink) else pipeline.decode
    if decoder is None:
        raise PipelineError(f"The pipeline {pipeline.name} has no decoder. Name a pipeline with a decoder.")
    zone = reading.timezone if reading is not None else pipeline.timezone
    if reading is not None:
        reading.check(contents.table, DecoderIdentity.of(decoder, zone))
    return decoder, zone


@contextmanager
def hold_archiving(
    settings: Settings, table: str, missing: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> Iterator[None]:
    """Keep the archiving queries of the home from writing the missing records, for the length of a `with` block.

    Two writers could both see that a record is missing and both append it: Delta sees no conflict between appends. A
    query that does not run is locked. A running query has usually passed these records; if not, PipelineError is
    raised.
    """
    with ExitStack() as stack:
        for name in new_writer(settings.checkpoint_store).folders(""):
            checkpoint = settings.checkpoint_of(name)
            files = open_reader(checkpoint)
            run = read_run_record(files)
            if run is None or not _archives(run.sink_identity, settings, table):
                continue
            lock = lease.hold(checkpoint)
            if lock is not None:
                stack.enter_context(lock)
            elif not _is_beyond(_position(files), missing):
                raise PipelineError(
                    f"The pipeline {run.pipeline} is running and has not passed the missing records: it may archive "
                    "them itself. Wait until it has, or stop it; then run this again."
                )
        yield


def refill(
    spark: "SparkSession",
    kafka: KafkaCluster,
    settings: Settings,
    comparison: KafkaComparison,
    decoding: tuple[Decoder, str],
    table: str,
) -> None:
    """Append the records that the archive lacks and Kafka has, as the archiving pipeline would: a commit per topic."""
    from respool.pipeline.session import pipeline_session

    decoder, zone = decoding
    for topic in sorted({place.topic for place in comparison.lacking}):
        pipeline = archive_topic("archive-refill", topic, decoder, table=table, timezone=zone)
        session = pipeline_session(spark, pipeline)
        frame = _read_missing(session, kafka, topic, comparison)
        with naming_failures(table):
            pipeline.sink.write(pipeline.transform(frame), WriteContext(pipeline.name, None, kafka, settings))


def remove_doubles(
    spark: "SparkSession",
    table: str,
    doubles: Mapping[TopicPartition, Sequence[OffsetRange]],
    on_note: Callable[[str], None],
) -> RemovalResult:
    """Keep one record per offset, in one commit that rewrites only the files concerned.

    Of records that were decoded in different ways, one that is not rejected is kept.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    near = _near(doubles)
    with naming_failures(table):
        return retry_on_conflict(
            lambda: _remove(session, table, near),
            _TRIES,
            lambda: on_note("Another process changed the same files; trying again …"),
        )


def forget_lost_files(table: str) -> list[str]:
    """Remove data files that do not exist from the table's log, in one commit, and return their paths."""
    try:
        return list(open_table(table).repair()["files_removed"])
    except Exception as error:
        raise PipelineError(
            f"The lost files of {table} cannot be removed from its log: {delta_message(error)}. Nothing was changed."
        ) from error


def _archives(sink: Identity | None, settings: Settings, table: str) -> bool:
    """Return whether a query archives to a table, or may do so according to the file of an earlier version."""
    if sink is None or sink.kind != "delta" or sink.fields.get("holds", "records") != "records":
        return False
    return locate(str(sink.fields.get("table", "")), settings) == locate(table, settings)


def _position(files: FolderReader) -> dict[tuple[str, int], int] | None:
    """Return the offsets at which a query's newest batch starts; None when they are not known."""
    numbers = layout.batches(files.names("offsets"))
    if len(numbers) < 2:
        return None
    path = f"offsets/{numbers[-2]}"
    before = logs.parse_offset_log(path, logs.decode(path, files.read(path)))
    return before.kafka_ends()


def _is_beyond(
    position: Mapping[tuple[str, int], int] | None, missing: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> bool:
    if position is None:
        return not missing
    return all(ranges[-1].end <= position.get(place, 0) for place, ranges in missing.items())


def _read_missing(session: "SparkSession", kafka: KafkaCluster, topic: str, comparison: KafkaComparison) -> "DataFrame":
    """Return the missing records of a topic, and those that lie between them."""
    runs: list[dict[int, tuple[int, int]]] = []
    for place, ranges in comparison.lacking.items():
        if place.topic == topic:
            for number, run in enumerate(joined(ranges, _RUNS)):
                if number == len(runs):
                    runs.append({})
                runs[number][place.partition] = run
    frames = [records.read_offsets(session, kafka, topic, run) for run in runs]
    return reduce(lambda first, second: first.unionAll(second), frames)


def _remove(session: "SparkSession", table: str, near: str) -> RemovalResult:
    doubled = _doubled(session, table, near).persist()  # computed once, and small
    try:
        counts = doubled.selectExpr("sum(IF(kinds = 1, copies - 1, 0))", "count_if(kinds > 1)").first()
        assert counts is not None
        if counts[0]:
            _replace(session, table, doubled.where("kinds = 1"), near)
    finally:
        doubled.unpersist()
    return RemovalResult(counts[0] or 0, counts[1])


def _near(places: Mapping[TopicPartition, Sequence[OffsetRange]]) -> str:
    """Return a condition that excludes most other records, so that Delta can skip files."""
    first = min(ranges[0].start for ranges in places.values())
    last = max(ranges[-1].end - 1 for ranges in places.values())
    return f"offset BETWEEN {first} AND {last}"


def _doubled(session: "SparkSession", table: str, near: str) -> "DataFrame":
    """Return the offsets with more than one record: how many copies, how many different ones, and which to keep."""
    from pyspark.sql import functions as F

    best: Column = F.struct(F.col("rejected").isNotNull(), F.col("event_time"))
    grouped = read(session, table, open_table(table).version()).where(near).groupBy(*KEY)
    counted = grouped.agg(
        F.count("*").alias("copies"),
        F.count_distinct(F.xxhash64(*_CONTENT)).alias("kinds"),
        F.min_by(F.struct(*COLUMNS), best).alias("kept"),
    )
    return counted.where("copies > 1")


def _replace(session: "SparkSession", table: str, doubled: "DataFrame", near: str) -> None:
    """Delete all records of these offsets and insert the record to keep, in one atomic commit."""
    gone = doubled.selectExpr(*(f"{name} AS _{name}" for name in KEY), "NULL AS kept")
    # A row with null keys matches nothing, and is inserted.
    kept = doubled.selectExpr(*(f"NULL AS _{name}" for name in KEY), "kept")
    gone.unionByName(kept).createOrReplaceTempView("respool_doubled")
    match = " AND ".join(f"a.{name} = d._{name}" for name in KEY)
    clauses = (
        f"MERGE INTO {identifier(table)} AS a USING respool_doubled AS d ON {match} AND a.{near}",
        "WHEN MATCHED THEN DELETE",
        f"WHEN NOT MATCHED AND d.kept IS NOT NULL THEN INSERT ({', '.join(COLUMNS)})",
        f"VALUES ({', '.join(f'd.kept.{name}' for name in COLUMNS)})",
    )
    session.sql(" ".join(clauses))


def naming_failures(table: str) -> AbstractContextManager[None]:
    """Raise PipelineError for a step that Spark could not do, for the length of a `with` block."""
    return translate_errors(partial(_failure, table))


def _failure(table: str, error: Exception) -> PipelineError:
    """Return how to report a step that Spark could not do; nothing of the step was done."""
    if is_delta_conflict(error):
        return PipelineError(
            f"Another process changed the same files of {table} meanwhile. Nothing of this step was done; run the "
            "same command again."
        )
    return PipelineError(
        f"Spark could not change {table}: {innermost_cause(error)} Nothing of this step was done. Spark's log "
        "under the home (logs/spark.log) has the details."
    )
