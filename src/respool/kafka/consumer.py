"""Read records of a topic."""

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from respool.errors import BrokerError, TopicError
from respool.kafka.cluster import KafkaCluster, make_client
from respool.kafka.topics import end_offsets, offsets_of, require_topic, start_offsets
from respool.times import EPOCH

if TYPE_CHECKING:
    import confluent_kafka

_SILENCE = 30.0  # seconds without a record although the topic has more, before reading gives up
_OPTIONS = {
    "group.id": "respool",  # librdkafka requires one; no consumer joins it
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}
_HELD = 10_000  # records of one partition held in memory while another one is behind


@dataclass(frozen=True)
class Record:
    """A raw Kafka record; `timestamp` is aware, in UTC."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def has_records(kafka: KafkaCluster, topic: str, partition: int, first: int, end: int) -> bool:
    """Return whether a partition still has a record from offset `first` on and before `end`.

    Not every offset has a record: transactions leave markers, and compaction leaves gaps.
    """
    starts, ends = start_offsets(kafka, topic), end_offsets(kafka, topic)
    if partition not in starts:
        return False
    first, end = max(first, starts[partition]), min(end, ends[partition])
    if first >= end:
        return False
    records = _read(kafka, topic, {partition: first}, {partition: end}, None, False)
    with closing(records):
        return next(records, None) is not None


def read(
    kafka: KafkaCluster,
    topic: str,
    *,
    newest: int | None = None,
    limit: int | None = None,
    follow: bool = False,
) -> Iterator[Record]:
    """Yield the records of a topic: each partition by offset, partitions merged by timestamp.

    Args:
        kafka: The cluster.
        topic: A topic that exists.
        newest: Only so many of the newest records, as `tail` does; None for all from the first on.
        limit: Stop after so many records.
        follow: Wait for new records after the last record, and yield them as they arrive.

    Raises:
        TopicError: The topic is unknown, or vanished meanwhile.
        BrokerError: The broker no longer answers.
    """
    partitions = {topic: require_topic(kafka, topic)}
    starts, ends = (offsets_of(kafka, partitions, end=end)[topic] for end in (False, True))
    if newest is not None:
        starts = {partition: max(start, ends[partition] - newest) for partition, start in starts.items()}
    return _limited(_read(kafka, topic, starts, ends, newest, follow), limit)


def _limited(records: Generator[Record, None, None], limit: int | None) -> Iterator[Record]:
    if limit is not None and limit <= 0:
        return
    with closing(records):
        for number, record in enumerate(records, start=1):
            yield record
            if number == limit:
                return


def _read(
    kafka: KafkaCluster, topic: str, starts: dict[int, int], ends: dict[int, int], newest: int | None, follow: bool
) -> Generator[Record, None, None]:
    from confluent_kafka import TopicPartition

    consumer = make_consumer(kafka)
    try:
        merged = _merged(kafka, consumer, topic, starts, ends)
        # Every partition yields its newest records: of those, take the newest of the topic.
        yield from merged if newest is None else deque(merged, newest)
        if follow:
            at_ends = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
            consumer.assign(at_ends)
            consumer.resume(at_ends)  # a pause outlives a new assignment
            while True:
                message = consumer.poll(0.2)
                record = _record(message, topic) if message is not None else None
                if record is not None:
                    yield record
    finally:
        consumer.close()


def _merged(
    kafka: KafkaCluster, consumer: "confluent_kafka.Consumer", topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[Record]:
    """Yield the records between the offsets, merged by timestamp.

    A partition that is ahead of the others is paused, so that memory stays bounded.
    """
    from confluent_kafka import TopicPartition

    waiting: dict[int, deque[Record]] = {
        partition: deque() for partition in starts if starts[partition] < ends[partition]
    }
    unread = set(waiting)
    paused: set[int] = set()
    consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in waiting])
    while waiting:
        lacking = {partition for partition, records in waiting.items() if not records}
        if not lacking:
            oldest = min(waiting, key=lambda partition: (waiting[partition][0].timestamp, partition))
            yield waiting[oldest].popleft()
        elif done := lacking - unread:
            for partition in done:
                del waiting[partition]
        else:
            if back := lacking & paused:
                consumer.resume([TopicPartition(topic, partition) for partition in back])
                paused -= back
            for partition, offset, record in _arrivals(kafka, consumer, topic):
                if partition not in unread:
                    continue
                if record and offset < ends[partition]:
                    waiting[partition].append(record)
                if offset + bool(record) >= ends[partition]:
                    unread.remove(partition)
                elif len(waiting[partition]) < _HELD:
                    continue
                consumer.pause([TopicPartition(topic, partition)])
                paused.add(partition)


def _arrivals(
    kafka: KafkaCluster, consumer: "confluent_kafka.Consumer", topic: str
) -> Iterator[tuple[int, int, Record | None]]:
    """Wait for records, and yield them with partition and offset; None at the end of a partition."""
    for message in next_messages(kafka, consumer, topic, 1_000):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        yield partition, offset, _record(message, topic)


def make_consumer(kafka: KafkaCluster, **options: str) -> "confluent_kafka.Consumer":
    """Return a consumer that reads partitions by their offsets, and gets a message at the end of each partition.

    Args:
        kafka: The cluster.
        options: Further settings of librdkafka, with underscores for dots.
    """
    from confluent_kafka import Consumer

    return make_client(Consumer, kafka, _OPTIONS | {name.replace("_", "."): value for name, value in options.items()})


def next_messages(
    kafka: KafkaCluster, consumer: "confluent_kafka.Consumer", source: str, most: int
) -> "list[confluent_kafka.Message]":
    """Wait for the next messages, at least one; a message says that a partition has ended, too.

    Args:
        kafka: The cluster.
        consumer: A consumer of `make_consumer`.
        source: The topic or partition that is read, for messages.
        most: How many messages to return at most.

    Raises:
        BrokerError: The broker sent nothing for 30 seconds.
    """
    deadline = time.monotonic() + _SILENCE
    while (first := consumer.poll(0.2)) is None:
        if time.monotonic() > deadline:
            raise BrokerError(
                f"The broker at {kafka.bootstrap_servers} sent nothing more of '{source}' for {_SILENCE:.0f} seconds. "
                "Check that it runs, and read again."
            )
    return [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]


def _record(message: "confluent_kafka.Message", topic: str) -> Record | None:
    """Return the record of a message; None when the message marks the end of a partition."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:
            return None
        raise TopicError(f"Reading '{topic}' failed: {error.str()}. Check that it still exists: respool topic list.")
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=_time(message.timestamp()[1]),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs),
    )


def _time(milliseconds: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # a producer may write any 64-bit number
        return datetime.max.replace(tzinfo=timezone.utc)
