"""Which of the records that an archive lacks Kafka still has.

An offset need not be a record: transactions leave markers, and compaction removes records. Only reading the topic shows
which offsets are records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.archive.model import ArchiveContents, PartitionContents
from respool.errors import TopicError
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.consumer import make_consumer, next_messages
from respool.kafka.offsets import OffsetRange, OffsetSet, TopicPartition, joined, shared, without
from respool.times import EPOCH

if TYPE_CHECKING:
    import confluent_kafka

_CHUNK = 10_000  # records read at a time
_RUNS = 100  # ranges of a partition that are read separately; nearer ranges are joined
_ISOLATION = "read_uncommitted"  # Spark's default, and so what was archived


@dataclass(frozen=True)
class PartitionInKafka:
    """A topic partition in Kafka, compared with the archive.

    Attributes:
        start: The offset of the first record that Kafka still has.
        end: The offset of the next record to be written.
        records: Records that the archive lacks and Kafka has, up to the archive's last offset.
        empty: Offsets that the archive lacks and that hold no record in Kafka either.
        gone: Offsets that the archive lacks and Kafka no longer has.
        behind: The number of offsets beyond the archive's last.
    """

    start: int
    end: int
    records: tuple[OffsetRange, ...] = ()
    empty: tuple[OffsetRange, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    behind: int = 0


@dataclass(frozen=True)
class KafkaComparison:
    """An archive's topics in Kafka, compared with the archive.

    Attributes:
        servers: The cluster that was read.
        places: The partitions of the archive's topics, including those of which the archive has no record yet.
        absent: Topics of the archive that do not exist in Kafka.
        other: Partitions that are not those that were archived, and why: they end before the archive's last record, or
            have another record at its offset.
    """

    servers: str
    places: Mapping[TopicPartition, PartitionInKafka]
    absent: tuple[str, ...]
    other: Mapping[TopicPartition, str]

    @property
    def lacking(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """The records that the archive lacks and Kafka has."""
        return {place: in_kafka.records for place, in_kafka in self.places.items() if in_kafka.records}


def compare_with_kafka(
    kafka: KafkaCluster, contents: ArchiveContents, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> KafkaComparison:
    """Compare an archive with its topics.

    Args:
        kafka: The cluster.
        contents: The contents of the archive.
        on_progress: Called with the number of offsets read, and the total that is read of a partition.
    """
    places: dict[TopicPartition, PartitionInKafka] = {}
    other: dict[TopicPartition, str] = {}
    absent: list[str] = []
    partitions = {partition.place: partition for partition in contents.places}
    for topic in sorted({place.topic for place in partitions}):
        try:
            starts, ends = topics.start_offsets(kafka, topic), topics.end_offsets(kafka, topic)
        except TopicError:
            absent.append(topic)
            continue
        in_kafka = {TopicPartition(topic, number) for number in ends}
        for place in sorted(in_kafka | {place for place in partitions if place.topic == topic}):
            start, end = starts.get(place.partition, 0), ends.get(place.partition, 0)
            archived = partitions.get(place)
            if archived is None:
                places[place] = PartitionInKafka(start, end, behind=end - start)
            elif end <= archived.last:
                other[place] = f"ends at offset {end:,}, the archive at {archived.last:,}"
            elif start <= archived.last and not _has_last_record(kafka, contents, archived):
                other[place] = f"has another record at offset {archived.last:,} than the archive"
            else:
                places[place] = _compare(kafka, archived, start, end, on_progress)
    return KafkaComparison(kafka.bootstrap_servers, places, tuple(absent), other)


def _has_last_record(kafka: KafkaCluster, contents: ArchiveContents, archived: PartitionContents) -> bool:
    """Return whether Kafka has the archive's last record, or has removed it by compaction.

    A topic that was deleted and created again has other records at the same offsets.
    """
    import pyarrow as pa
    from confluent_kafka import TopicPartition

    from respool.delta.log import open_table

    place, last = archived.place, archived.last
    where = f"topic = '{place.topic}' AND partition = {place.partition} AND offset = {last}"
    scan = open_table(contents.table, contents.version).scan(["timestamp", "key", "value"], where)
    rows = pa.table(scan).to_pylist()
    consumer = make_consumer(kafka, isolation_level=_ISOLATION)
    try:
        consumer.assign([TopicPartition(*place, last)])
        (message,) = next_messages(kafka, consumer, str(place), 1)
        if message.error() is not None or message.offset() != last:  # removed by compaction: nothing to compare
            return True
        moment = timedelta(milliseconds=message.timestamp()[1])
        return any(
            (row["key"], row["value"], row["timestamp"] - EPOCH) == (message.key(), message.value(), moment)
            for row in rows
        )
    finally:
        consumer.close()


def _compare(
    kafka: KafkaCluster, archived: PartitionContents, start: int, end: int, on_progress: Callable[[int, int], None]
) -> PartitionInKafka:
    before = [OffsetRange(0, archived.first)] if archived.first else []
    lacking = [*before, *archived.gaps]
    asked = shared(lacking, [OffsetRange(start, end)])
    records = _records(kafka, archived.place, asked, on_progress) if asked else []
    if asked:  # retention may have deleted records since
        start = topics.start_offsets(kafka, archived.place.topic)[archived.place.partition]
    here = [OffsetRange(start, end)]
    records = shared(records, here)
    return PartitionInKafka(
        start=start,
        end=end,
        records=tuple(records),
        empty=tuple(without(shared(lacking, here), records)),
        gone=tuple(without(lacking, here)),
        behind=end - archived.last - 1,
    )


def _records(
    kafka: KafkaCluster, place: TopicPartition, asked: Sequence[OffsetRange], on_progress: Callable[[int, int], None]
) -> list[OffsetRange]:
    """Return which of the offsets are records in Kafka."""
    from confluent_kafka import TopicPartition

    runs = joined(asked, _RUNS)
    offsets = OffsetSet()
    done, count = 0, sum(run.size for run in runs)
    consumer = make_consumer(kafka, isolation_level=_ISOLATION)
    try:
        for run in runs:
            consumer.assign([TopicPartition(place.topic, place.partition, run.start)])
            at = run.start
            while at < run.end:
                at = _read_some(kafka, consumer, place, run, offsets)
                on_progress(done + min(at, run.end) - run.start, count)
            done += run.size
    finally:
        consumer.close()
    return shared(asked, offsets.ranges())


def _read_some(
    kafka: KafkaCluster,
    consumer: "confluent_kafka.Consumer",
    place: TopicPartition,
    run: OffsetRange,
    offsets: OffsetSet,
) -> int:
    """Read the next records of a run, and return the offset after them; the run's end when the partition ends."""
    import numpy as np
    from confluent_kafka import KafkaError

    numbers: list[int] = []
    ended = False
    for message in next_messages(kafka, consumer, str(place), _CHUNK):
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            numbers.append(offset)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended = True
        else:
            raise TopicError(
                f"Reading {place} failed: {error.str()}. Check that the topic still exists: respool topic list."
            )
    offsets.add(np.array([number for number in numbers if number < run.end], np.int64))
    return run.end if ended else numbers[-1] + 1
