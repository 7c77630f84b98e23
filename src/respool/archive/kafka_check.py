"""What Kafka still has of the records that an archive lacks.

An offset need not be a record: transactions leave markers, compaction takes records away. Only reading tells.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.archive.model import ArchiveContents, PartitionContents
from respool.errors import BrokerError, TopicError
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster, make_client
from respool.kafka.offsets import OffsetRange, OffsetSet, TopicPartition, joined, shared, without
from respool.times import EPOCH

if TYPE_CHECKING:
    import confluent_kafka

_SILENCE = 30.0  # seconds without an answer, before reading gives up
_CHUNK = 10_000  # records taken at a time
_RUNS = 100  # of a partition that are read apart; nearer ones are read through
_OPTIONS = {
    "group.id": "respool",  # librdkafka asks for one; nothing joins it
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # Spark's default, and so what was archived
}


@dataclass(frozen=True)
class PartitionInKafka:
    """A topic partition in Kafka, and what it has of the offsets that the archive lacks.

    Attributes:
        start: The offset of the first record that is still there.
        end: The offset that the next record will have.
        records: Records that the archive lacks, from the first offset on to the archive's last.
        empty: Offsets that the archive lacks, but that hold no record here either.
        gone: Offsets that the archive lacks, and that are no longer here.
        behind: How many offsets are beyond the archive's last.
    """

    start: int
    end: int
    records: tuple[OffsetRange, ...] = ()
    empty: tuple[OffsetRange, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    behind: int = 0


@dataclass(frozen=True)
class KafkaComparison:
    """What Kafka has of an archive's topics.

    Attributes:
        servers: The cluster that was asked.
        places: The partitions of the archive's topics, also those of which the archive has nothing yet.
        absent: Topics of the archive that are not there.
        other: Partitions that are not those that were archived, and why: they end before the archive's last record, or
            have another one in its place.
    """

    servers: str
    places: Mapping[TopicPartition, PartitionInKafka]
    absent: tuple[str, ...]
    other: Mapping[TopicPartition, str]

    @property
    def lacking(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """The records that the archive lacks and Kafka has."""
        return {place: found.records for place, found in self.places.items() if found.records}


def compare_with_kafka(
    kafka: KafkaCluster, facts: ArchiveContents, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> KafkaComparison:
    """Compare an archive with its topics.

    Args:
        kafka: The cluster.
        facts: What the archive holds.
        on_progress: Called with how many offsets were read, of how many that the archive lacks or that lie between.
    """
    places: dict[TopicPartition, PartitionInKafka] = {}
    other: dict[TopicPartition, str] = {}
    absent: list[str] = []
    archived = {one.place: one for one in facts.places}
    for topic in sorted({place.topic for place in archived}):
        try:
            starts, ends = topics.start_offsets(kafka, topic), topics.end_offsets(kafka, topic)
        except TopicError:
            absent.append(topic)
            continue
        for place in sorted(
            {*(TopicPartition(topic, number) for number in ends), *(one for one in archived if one[0] == topic)}
        ):
            start, end = starts.get(place.partition, 0), ends.get(place.partition, 0)
            known = archived.get(place)
            if known is None:
                places[place] = PartitionInKafka(start, end, behind=end - start)
            elif end <= known.last:
                other[place] = f"ends at offset {end:,}, the archive at {known.last:,}"
            elif start <= known.last and not _same(kafka, facts, known):
                other[place] = f"has another record at offset {known.last:,} than the archive"
            else:
                places[place] = _compare(kafka, known, start, end, on_progress)
    return KafkaComparison(kafka.bootstrap_servers, places, tuple(absent), other)


def _same(kafka: KafkaCluster, facts: ArchiveContents, known: PartitionContents) -> bool:
    """Return whether Kafka has the archive's last record, as far as can be told.

    The offsets of a topic that was deleted and made anew start over, at other records.
    """
    import pyarrow as pa
    from confluent_kafka import Consumer, TopicPartition

    from respool.delta.log import open_table

    where = f"topic = '{known.place.topic}' AND partition = {known.place.partition} AND offset = {known.last}"
    found = open_table(facts.table, facts.version).scan(["timestamp", "key", "value"], where)
    archived = pa.table(found).to_pylist()
    consumer = make_client(Consumer, kafka, _OPTIONS)
    try:
        consumer.assign([TopicPartition(*known.place, known.last)])
        (message,) = _next(kafka, consumer, known.place, 1)
        if message.error() is not None or message.offset() != known.last:  # compacted away, so it cannot tell
            return True
        moment = timedelta(milliseconds=message.timestamp()[1])
        return any(
            (row["key"], row["value"], row["timestamp"] - EPOCH) == (message.key(), message.value(), moment)
            for row in archived
        )
    finally:
        consumer.close()


def _compare(
    kafka: KafkaCluster, known: PartitionContents, start: int, end: int, on_progress: Callable[[int, int], None]
) -> PartitionInKafka:
    before = [OffsetRange(0, known.first)] if known.first else []
    lacking = [*before, *known.gaps]
    asked = shared(lacking, [OffsetRange(start, end)])
    records = _records(kafka, known.place, asked, on_progress) if asked else []
    if asked:  # what retention took away meanwhile cannot be had
        start = topics.start_offsets(kafka, known.place.topic)[known.place.partition]
    here = [OffsetRange(start, end)]
    records = shared(records, here)
    return PartitionInKafka(
        start=start,
        end=end,
        records=tuple(records),
        empty=tuple(without(shared(lacking, here), records)),
        gone=tuple(without(lacking, here)),
        behind=end - known.last - 1,
    )


def _records(
    kafka: KafkaCluster, place: TopicPartition, asked: Sequence[OffsetRange], on_progress: Callable[[int, int], None]
) -> list[OffsetRange]:
    """Return which of the offsets are records."""
    from confluent_kafka import Consumer, TopicPartition

    runs = joined(asked, _RUNS)
    offsets = OffsetSet()
    done, count = 0, sum(one.size for one in runs)
    consumer = make_client(Consumer, kafka, _OPTIONS)
    try:
        for run in runs:
            consumer.assign([TopicPartition(place.topic, place.partition, run.start)])
            at = run.start
            while at < run.end:
                at = _take(kafka, consumer, place, run, offsets)
                on_progress(done + min(at, run.end) - run.start, count)
            done += run.size
    finally:
        consumer.close()
    return shared(asked, offsets.ranges())


def _take(
    kafka: KafkaCluster,
    consumer: "confluent_kafka.Consumer",
    place: TopicPartition,
    run: OffsetRange,
    offsets: OffsetSet,
) -> int:
    """Take the next records of a run, and return the offset behind them; that of the run's end when it is over."""
    import numpy as np
    from confluent_kafka import KafkaError

    found: list[int] = []
    ended = False
    for message in _next(kafka, consumer, place, _CHUNK):
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            found.append(offset)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended = True
        else:
            raise TopicError(
                f"Reading {place} failed: {error.str()}. See whether it is still there: respool topic list."
            )
    offsets.add(np.array([one for one in found if one < run.end], np.int64))
    return run.end if ended else found[-1] + 1


def _next(
    kafka: KafkaCluster, consumer: "confluent_kafka.Consumer", place: TopicPartition, most: int
) -> "list[confluent_kafka.Message]":
    """Wait for the next messages, at least one; the end of a partition is one, too."""
    deadline = time.monotonic() + _SILENCE
    while not (messages := consumer.consume(most, 0.1)):
        if time.monotonic() > deadline:
            raise BrokerError(
                f"The broker at {kafka.bootstrap_servers} sent nothing of {place} for {_SILENCE:.0f} seconds. "
                "Check that it runs, and try again."
            )
    return messages
