"""Topics and their records, without Spark and without a JVM: list, create, delete, produce, read.

Reading joins no consumer group and commits nothing, so looking at a topic never changes what anybody else sees.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from respool.clients import admin, asking, client, kafka_error, unreachable
from respool.errors import BrokerError, TopicError, did_you_mean
from respool.kafka import Kafka
from respool.span import EPOCH

if TYPE_CHECKING:
    import confluent_kafka

_TIMEOUT = 15.0  # seconds for one question to the broker
_SILENCE = 30.0  # seconds without a record that is known to be there, before reading gives up
_DELIVERY = 60_000  # milliseconds for a record to be delivered; librdkafka would try for 5 minutes
_AHEAD = 0.005  # seconds that producing may run ahead of its rate: waits shorter than this would only spin
_HELD = 10_000  # records of one partition held in memory while another one is behind


class Message(NamedTuple):
    """What is sent to a topic."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Topic:
    """A topic at a glance; `records` is the sum of end minus start offsets."""

    name: str
    partitions: int
    records: int


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


def answers(kafka: Kafka, timeout: float = 5) -> bool:
    """Return whether a broker answers there within `timeout` seconds."""
    from confluent_kafka import KafkaException

    try:
        admin(kafka).list_topics(timeout=timeout)
    except KafkaException:
        return False
    return True


def list_topics(kafka: Kafka) -> list[Topic]:
    """Return all topics but Kafka's own, by name."""
    partitions = {name: found for name, found in _partitions(kafka).items() if not name.startswith("__")}
    starts = _offsets(kafka, partitions, end=False)
    ends = _offsets(kafka, partitions, end=True)
    return [
        Topic(name, len(partitions[name]), sum(ends[name].values()) - sum(starts[name].values()))
        for name in sorted(partitions)
    ]


def create(kafka: Kafka, name: str, partitions: int | None = None, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until it can be written to.

    Args:
        kafka: The cluster.
        name: The new topic.
        partitions: How many; None for the broker's default.
        config: The topic's own settings, by Kafka's names (retention.ms and so on).

    Raises:
        TopicError: The topic exists already, or the broker refuses its name or settings.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    broker = admin(kafka)
    wanted = NewTopic(name, num_partitions=partitions or -1, config=dict(config or {}))
    try:
        broker.create_topics([wanted], request_timeout=_TIMEOUT)[name].result()
    except KafkaException as error:
        code = kafka_error(error).code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicError(f"The topic '{name}' exists already. See: respool topic list.") from None
        if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise unreachable(kafka, error) from error
        raise TopicError(
            f"The topic '{name}' cannot be created: {kafka_error(error).str()}. Correct its name or settings."
        ) from error
    _wait_for(kafka, name, there=True)


def exists(kafka: Kafka, name: str) -> bool:
    """Return whether there is a topic of this name."""
    return name in _partitions(kafka)


def ensure(kafka: Kafka, name: str, partitions: int | None = None, config: Mapping[str, str] | None = None) -> bool:
    """Create a topic when it is missing; return whether it was."""
    if exists(kafka, name):
        return False
    create(kafka, name, partitions, config)
    return True


def max_message_bytes(kafka: Kafka, name: str) -> int | None:
    """Return the size of the largest record that a topic accepts; None when the cluster does not show it."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin._config import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    client = admin(kafka)
    (answer,) = client.describe_configs([resource], request_timeout=_TIMEOUT).values()
    try:
        return int(answer.result()["max.message.bytes"].value)
    except KafkaException as error:
        if kafka_error(error).code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return None
        raise unreachable(kafka, error) from error


def require(kafka: Kafka, name: str) -> list[int]:
    """Return the partitions of a topic that must exist, and raise TopicError when it does not."""
    found = _partitions(kafka)
    if name not in found:
        known = sorted(one for one in found if not one.startswith("__"))
        raise TopicError(
            f"There is no topic '{name}' at {kafka.bootstrap_servers}.{did_you_mean(name, known)} "
            f"Create it with: respool topic create {name}"
        )
    return found[name]


def delete(kafka: Kafka, name: str) -> None:
    """Delete a topic and its records, for ever, and wait until it is gone."""
    require(kafka, name)
    broker = admin(kafka)
    with asking(kafka):
        broker.delete_topics([name], request_timeout=_TIMEOUT)[name].result()
    _wait_for(kafka, name, there=False)


def start_offsets(kafka: Kafka, topic: str) -> dict[int, int]:
    """Return the offset of the first record that each partition still holds."""
    return _offsets(kafka, {topic: require(kafka, topic)}, end=False)[topic]


def end_offsets(kafka: Kafka, topic: str) -> dict[int, int]:
    """Return the offset that the next record of each partition will have."""
    return _offsets(kafka, {topic: require(kafka, topic)}, end=True)[topic]


def has_records(kafka: Kafka, topic: str, partition: int, first: int, end: int) -> bool:
    """Return whether a partition still has a record from offset `first` on and before `end`.

    An offset need not be a record's: transactions leave marks, and compaction leaves holes.
    """
    starts, ends = start_offsets(kafka, topic), end_offsets(kafka, topic)
    if partition not in starts:
        return False
    first, end = max(first, starts[partition]), min(end, ends[partition])
    if first >= end:
        return False
    found = _read(kafka, topic, {partition: first}, {partition: end}, None, False)
    with closing(found):
        return next(found, None) is not None


def produce(
    kafka: Kafka,
    topic: str,
    messages: Iterable[Message],
    *,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Send messages to a topic that exists, and return how many once all are delivered.

    Each message is on its way as soon as `messages` yields it, so an iterator may wait for a person who types.

    Args:
        kafka: The cluster.
        topic: Where to.
        messages: What to send; never held in memory as a whole.
        rate: The most records in a second; None for as fast as it goes.
        progress: Called after each record with the number sent so far.
        stopped: Asked before each record and while waiting; True ends the sending as if the messages had ended.

    Raises:
        TopicError: The topic is unknown, or a record could not be delivered.
    """
    require(kafka, topic)
    delivery = _Delivery(kafka, topic)
    try:
        for message in paced(messages, rate, stopped, delivery.serve):
            delivery.send(message)
            if progress:
                progress(delivery.sent)
            if delivery.failed:
                break
    except Exception:  # out of `messages`: what came before is sent all the same
        delivery.flush()
        raise
    return delivery.finish()


def produce_together(kafka: Kafka, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Send values to one partition so that they become visible all at once: a reader sees all of them or none."""
    from confluent_kafka import Producer

    require(kafka, topic)
    # All wait for the slowest linger, and flush sends what waits as one request.
    producer = client(Producer, kafka, {"linger.ms": 10_000, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    if producer.flush(_TIMEOUT):
        raise TopicError(f"Records could not be delivered to '{topic}'. Check the broker and send them again.")


def paced(
    messages: Iterable[Message],
    rate: float | None,
    stopped: Callable[[], bool],
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Message]:
    """Yield messages at `rate` in a second, or at once when it is None, until `stopped` says so.

    Args:
        messages: What to yield.
        rate: The most in a second.
        stopped: Asked before each message, and at least every tenth of a second while waiting.
        wait: Called with seconds in which nothing is due.
    """
    begin = time.monotonic()
    for number, message in enumerate(messages):
        while rate and (ahead := begin + number / rate - time.monotonic()) > _AHEAD and not stopped():
            wait(min(ahead, 0.1))
        if stopped():
            return
        yield message


class _Delivery:
    """One producer, and what became of the messages given to it."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        from confluent_kafka import KafkaException, Producer

        self._refused = KafkaException
        self._topic = topic
        self._producer = client(
            Producer,
            kafka,
            {
                "partitioner": "murmur2_random",  # as Java's: a key goes to the same partition whoever sends it
                "enable.idempotence": True,
                "message.timeout.ms": _DELIVERY,
                "message.max.bytes": 2**27,  # the topic says how large a record may be
                "delivery.report.only.error": True,
            },
        )
        self.sent = 0
        self.failed = 0
        self._reason = ""

    def send(self, message: Message) -> None:
        while True:
            try:
                self._producer.produce(self._topic, message.value, message.key, on_delivery=self._on_failure)
                break
            except BufferError:  # the queue is full: let some of it go out
                self.serve(0.1)
                if self.failed:
                    return
            except self._refused as error:
                self._on_failure(kafka_error(error), None)
                self.sent += 1
                return
        self.sent += 1
        self.serve(0)

    def serve(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def flush(self) -> None:
        while self._producer.flush(0.5):  # in short waits, so that Ctrl-C is heard
            pass

    def finish(self) -> int:
        self.flush()
        if self.failed:
            raise TopicError(
                f"{self.failed:,} of {self.sent:,} records could not be delivered to '{self._topic}' "
                f"({self.sent - self.failed:,} were): {self._reason}. Check the broker and send the rest again."
            )
        return self.sent

    def _on_failure(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed += 1
            self._reason = self._reason or error.str()


def read(
    kafka: Kafka,
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
        newest: Only this many, the newest ones, as `tail` does; None for all from the first on.
        limit: Stop after this many.
        follow: Go on waiting for new records, which come as they arrive.

    Raises:
        TopicError: The topic is unknown, or vanished meanwhile.
        BrokerError: The broker no longer answers.
    """
    partitions = {topic: require(kafka, topic)}
    starts, ends = (_offsets(kafka, partitions, end=end)[topic] for end in (False, True))
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
    kafka: Kafka, topic: str, starts: dict[int, int], ends: dict[int, int], newest: int | None, follow: bool
) -> Generator[Record, None, None]:
    from confluent_kafka import Consumer, TopicPartition

    options = {
        "group.id": "respool",  # librdkafka asks for one; nothing joins it
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = client(Consumer, kafka, options)
    try:
        merged = _merged(kafka, consumer, topic, starts, ends)
        # Every partition gave its newest ones: of those, the newest of the topic.
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
    kafka: Kafka, consumer: "confluent_kafka.Consumer", topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[Record]:
    """Yield the records between the offsets, always the oldest of the partitions' next ones.

    A partition that runs ahead of the others is paused, so that memory stays bounded.
    """
    from confluent_kafka import TopicPartition

    waiting: dict[int, deque[Record]] = {one: deque() for one in starts if starts[one] < ends[one]}
    unread = set(waiting)
    paused: set[int] = set()
    consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in waiting])
    while waiting:
        lacking = {one for one, records in waiting.items() if not records}
        if not lacking:
            oldest = min(waiting, key=lambda one: (waiting[one][0].timestamp, one))
            yield waiting[oldest].popleft()
        elif done := lacking - unread:
            for partition in done:
                del waiting[partition]
        else:
            if back := lacking & paused:
                consumer.resume([TopicPartition(topic, one) for one in back])
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
    kafka: Kafka, consumer: "confluent_kafka.Consumer", topic: str
) -> Iterator[tuple[int, int, Record | None]]:
    """Wait for records and yield those that came, with partition and offset; None at the end of a partition."""
    deadline = time.monotonic() + _SILENCE
    while (first := consumer.poll(0.2)) is None:
        if time.monotonic() > deadline:
            raise BrokerError(
                f"The broker at {kafka.bootstrap_servers} sent nothing more of '{topic}' for {_SILENCE:.0f} seconds. "
                "Check that it runs, and read again."
            )
    for message in [first, *consumer.consume(1_000, 0)]:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        yield partition, offset, _record(message, topic)


def _record(message: "confluent_kafka.Message", topic: str) -> Record | None:
    """Return the record of a message; None when it says that a partition has ended."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:
            return None
        raise TopicError(f"Reading '{topic}' failed: {error.str()}. See whether it is still there: respool topic list.")
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


def _partitions(kafka: Kafka) -> dict[str, list[int]]:
    """Return the partitions of every topic."""
    with asking(kafka):
        found = admin(kafka).list_topics(timeout=_TIMEOUT).topics
    return {name: sorted(topic.partitions) for name, topic in found.items()}


def _offsets(kafka: Kafka, partitions: Mapping[str, list[int]], *, end: bool) -> dict[str, dict[int, int]]:
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    offsets: dict[str, dict[int, int]] = {name: {} for name in partitions}
    wanted = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(name, partition): wanted for name, numbers in partitions.items() for partition in numbers}
    if not asked:
        return offsets
    broker = admin(kafka)
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            for at, answer in broker.list_offsets(asked, request_timeout=_TIMEOUT).items():
                offsets[at.topic][at.partition] = answer.result().offset
            return offsets
        except KafkaException as error:
            if (
                not kafka_error(error).retriable() or time.monotonic() > deadline
            ):  # a partition may be changing its leader
                raise unreachable(kafka, error) from error
            time.sleep(0.2)


def _wait_for(kafka: Kafka, name: str, *, there: bool) -> None:
    """Return once the broker's answers agree that a topic is ready, or gone."""
    broker = admin(kafka)
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        with asking(kafka):
            found = broker.list_topics(timeout=_TIMEOUT).topics.get(name)
        if not there and found is None:
            return
        if there and found and found.partitions and all(one.leader >= 0 for one in found.partitions.values()):
            return
        time.sleep(0.02)
    expected = "has no leader yet" if there else "is still there"
    raise TopicError(f"The topic '{name}' {expected} after {_TIMEOUT:.0f} seconds. See: respool broker status.")
