"""Whether the archive has all records that the live query has read."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from respool.archive.high_water import ArchivedOffsets, catch_up, read_archived_offsets
from respool.archive.reader import ArchiveReader
from respool.archive.table import PREFIX, read
from respool.delta.log import open_table
from respool.errors import ReprocessError
from respool.kafka import consumer
from respool.kafka.cluster import KafkaCluster
from respool.reprocessing.live import LiveQuery
from respool.reprocessing.plan import ReprocessPlan
from respool.text import plural
from respool.times import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 20.0  # seconds without a new record before the archiving query counts as stopped
_POLL = 0.5  # seconds


def wait_until_archived(
    spark: "SparkSession",
    kafka: KafkaCluster | None,
    table: str,
    topic: str,
    live: LiveQuery,
    on_note: Callable[[str], None],
) -> None:
    """Return once the archive has all records that the live query has read; raise ReprocessError if it stays behind.

    Both queries read the same topic, each at its own pace: the archiving query may be a batch behind.
    """
    archived = catch_up(spark, table, read_archived_offsets(spark, table, open_table(table).version()))
    has_waited = False
    deadline = time.monotonic() + _PATIENCE
    while lacking := _lacking(archived, topic, live.ends):
        if kafka is not None and not any(consumer.has_records(kafka, topic, at, *ends) for at, ends in lacking.items()):
            return  # these offsets are not records: transaction markers, or records removed by compaction
        if time.monotonic() > deadline:
            raise ReprocessError(_behind(table, topic, lacking))
        if not has_waited:
            on_note("The archive is behind the live query; waiting for it …")
            has_waited = True
        time.sleep(_POLL)
        newer = catch_up(spark, table, archived)
        if newer.ends != archived.ends:
            deadline = time.monotonic() + _PATIENCE
        archived = newer


def check_beginning(spark: "SparkSession", reader: ArchiveReader, plan: ReprocessPlan) -> None:
    """Raise ReprocessError when the archive lacks the first records of a partition, and the span may need them."""
    from pyspark.sql import functions as F

    if _has_first_records(reader, plan):
        return
    topic = plan.pipeline.topic
    rows = read(spark, reader.table, reader.version).where(F.col("topic") == topic)
    complete = {row.partition for row in rows.where("offset = 0").select("partition").distinct().collect()}
    read_live = _read_live(plan)
    if read_live and read_live <= complete:
        return
    firsts = rows.where(~F.col("partition").isin(*complete)) if complete else rows
    first_records = (
        firsts.groupBy("partition").agg(F.min("offset").alias("offset"), F.min("event_time").alias("time")).collect()
    )
    for row in first_records:
        if row.time is not None and plan.computed.start.timestamp() <= row.time.timestamp():
            when = time_text(row.time.astimezone(plan.zone))
            raise ReprocessError(
                f"The archive starts at offset {row.offset:,} of partition {row.partition} of {topic}, at {when}: it "
                "lacks earlier records, so results of earlier times would be incomplete. Give a later span; or check "
                "whether Kafka still has the records: respool archive verify; or add --allow-partial."
            )


def _has_first_records(reader: ArchiveReader, plan: ReprocessPlan) -> bool:
    """Return whether the table's log alone shows that the archive has the first records that the span may need."""
    records, is_complete = reader.first_records(plan.pipeline.topic)
    complete = {record.partition for record in records if record.offset == 0}
    read_live = _read_live(plan)
    if read_live and read_live <= complete:
        return True
    start = plan.computed.start
    before = {record.partition for record in records if record.time is not None and record.time <= start}
    return is_complete and all(record.partition in complete | before for record in records)


def _read_live(plan: ReprocessPlan) -> set[int]:
    """Return the partitions from which the live query has read records."""
    return {partition for partition, end in plan.live.ends.items() if end} if plan.live else set()


def _lacking(archived: ArchivedOffsets, topic: str, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return the offsets that were read live and are not archived, by partition: start and end (exclusive)."""
    starts = {partition: end + 1 for (name, partition), end in archived.ends.items() if name == topic[:PREFIX]}
    return {
        partition: (starts.get(partition, 0), end) for partition, end in ends.items() if starts.get(partition, 0) < end
    }


def _behind(table: str, topic: str, lacking: Mapping[int, tuple[int, int]]) -> str:
    count = sum(end - first for first, end in lacking.values())
    partition, (first, end) = next(iter(lacking.items()))
    return (
        f"The archive {table} lacks {plural(count, 'record')} of {topic} that the live query has read, among them "
        "offsets "
        f"{first:,} to {end - 1:,} of partition {partition}. Let the pipeline that archives run until it has them, or "
        "add --allow-partial."
    )
