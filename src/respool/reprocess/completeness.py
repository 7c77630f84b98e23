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
from respool.reprocess.live import LiveQuery
from respool.reprocess.plan import ReprocessPlan
from respool.times import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 20.0  # seconds without a new record, before the archiving query counts as stopped
_LOOK_AGAIN = 0.5


def wait_until_archived(
    spark: "SparkSession",
    kafka: KafkaCluster | None,
    table: str,
    topic: str,
    live: LiveQuery,
    tell: Callable[[str], None],
) -> None:
    """Return once the archive has all that the live query had read; ReprocessError when it does not get there.

    Both queries read the same topic, each at its own pace: the archiving one may be a batch behind.
    """
    known = catch_up(spark, table, read_archived_offsets(spark, table, open_table(table).version()))
    told = False
    deadline = time.monotonic() + _PATIENCE
    while lacking := _lacking(known, topic, live.ends):
        if kafka is not None and not any(consumer.has_records(kafka, topic, at, *one) for at, one in lacking.items()):
            return  # what is lacking are no records: marks of transactions, or records that were compacted away
        if time.monotonic() > deadline:
            raise ReprocessError(_behind(table, topic, lacking))
        if not told:
            tell("The archive is behind the live query; waiting for it …")
            told = True
        time.sleep(_LOOK_AGAIN)
        newer = catch_up(spark, table, known)
        if newer.ends != known.ends:
            deadline = time.monotonic() + _PATIENCE
        known = newer


def check_beginning(spark: "SparkSession", reader: ArchiveReader, plan: ReprocessPlan) -> None:
    """Raise ReprocessError when the archive lacks the first records of a partition, and the span may need them."""
    from pyspark.sql import functions as F

    if _surely_begins(reader, plan):
        return
    topic = plan.pipeline.topic
    rows = read(spark, reader.table, reader.version).where(F.col("topic") == topic)
    complete = {row.partition for row in rows.where("offset = 0").select("partition").distinct().collect()}
    known = _read_live(plan)
    if known and known <= complete:
        return
    firsts = rows.where(~F.col("partition").isin(*complete)) if complete else rows
    found = (
        firsts.groupBy("partition").agg(F.min("offset").alias("offset"), F.min("event_time").alias("time")).collect()
    )
    for row in found:
        if row.time is not None and plan.computed.start.timestamp() <= row.time.timestamp():
            when = time_text(row.time.astimezone(plan.zone))
            raise ReprocessError(
                f"The archive begins with offset {row.offset:,} of partition {row.partition} of {topic}, at {when}: "
                "what came before is not in it, and results of that time would lack it. Give a later span; or see "
                "whether Kafka still has the records: respool archive verify; or add --allow-partial."
            )


def _surely_begins(reader: ArchiveReader, plan: ReprocessPlan) -> bool:
    """Return whether the table's log alone tells that nothing of the beginning is lacking that the span may need."""
    told, all_told = reader.first_records(plan.pipeline.topic)
    complete = {one.partition for one in told if one.offset == 0}
    known = _read_live(plan)
    if known and known <= complete:
        return True
    before = {one.partition for one in told if one.time is not None and one.time <= plan.computed.start}
    return all_told and all(one.partition in complete | before for one in told)


def _read_live(plan: ReprocessPlan) -> set[int]:
    """Return the partitions of which the live query has read records."""
    return {partition for partition, end in plan.live.ends.items() if end} if plan.live else set()


def _lacking(known: ArchivedOffsets, topic: str, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return the offsets that were read live and are not archived, by partition: the first, and the one behind."""
    archived = {partition: end + 1 for (name, partition), end in known.ends.items() if name == topic[:PREFIX]}
    return {
        partition: (archived.get(partition, 0), end)
        for partition, end in ends.items()
        if archived.get(partition, 0) < end
    }


def _behind(table: str, topic: str, lacking: Mapping[int, tuple[int, int]]) -> str:
    count = sum(end - first for first, end in lacking.values())
    partition, (first, end) = next(iter(lacking.items()))
    return (
        f"The archive {table} lacks {count:,} records of {topic} that the live query has read, among them offsets "
        f"{first:,} to {end - 1:,} of partition {partition}. Let the pipeline that archives run until it has them, or "
        "add --allow-partial."
    )
