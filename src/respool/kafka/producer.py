"""Write records to a topic."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from respool.errors import TopicError
from respool.kafka.cluster import KafkaCluster, kafka_error, make_client
from respool.kafka.topics import TIMEOUT, require_topic
from respool.text import plural

_DELIVERY = 60_000  # milliseconds for a record to be delivered; librdkafka would try for 5 minutes
_AHEAD = 0.005  # seconds that producing may run ahead of its rate: waits shorter than this would only spin


class Message(NamedTuple):
    """A record to send to a topic."""

    key: bytes | None
    value: bytes | None


def produce(
    kafka: KafkaCluster,
    topic: str,
    messages: Iterable[Message],
    *,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Send messages to a topic that exists, and return how many once all are delivered.

    Each message is sent as soon as `messages` yields it, so an iterator may wait for a person who types.

    Args:
        kafka: The cluster.
        topic: The topic.
        messages: The messages; they are not held in memory together.
        rate: The most records in a second; None for no limit.
        progress: Called after each record with the number sent so far.
        stopped: Called before each record and while waiting; True ends the sending as if the messages had ended.

    Raises:
        TopicError: The topic is unknown, or a record could not be delivered.
    """
    require_topic(kafka, topic)
    delivery = _Delivery(kafka, topic)
    try:
        for message in paced(messages, rate, stopped, delivery.serve):
            delivery.send(message)
            if progress:
                progress(delivery.sent)
            if delivery.failed:
                break
    except Exception:  # raised by `messages`: the earlier messages are sent all the same
        delivery.flush()
        raise
    return delivery.finish()


def produce_together(kafka: KafkaCluster, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Send values to one partition so that they become visible together: a reader sees all of them or none."""
    from confluent_kafka import Producer

    require_topic(kafka, topic)
    # All wait for the linger time, and flush sends the waiting records as one request.
    producer = make_client(Producer, kafka, {"linger.ms": 10_000, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    if producer.flush(TIMEOUT):
        raise TopicError(f"Records could not be delivered to '{topic}'. Check the broker and send them again.")


def paced(
    messages: Iterable[Message],
    rate: float | None,
    stopped: Callable[[], bool],
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Message]:
    """Yield messages at `rate` in a second, or without a pause when it is None, until `stopped` returns True.

    Args:
        messages: The messages.
        rate: The most messages in a second.
        stopped: Called before each message, and at least every tenth of a second while waiting.
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
    """A producer, and the outcome of its messages."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        from confluent_kafka import KafkaException, Producer

        self._refused = KafkaException
        self._topic = topic
        self._producer = make_client(
            Producer,
            kafka,
            {
                "partitioner": "murmur2_random",  # as Java's: a key gets the same partition from every client
                "enable.idempotence": True,
                "message.timeout.ms": _DELIVERY,
                "message.max.bytes": 2**27,  # the topic limits the size of a record
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
            except BufferError:  # the queue is full: wait until some of it is sent
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
        while self._producer.flush(0.5):  # in short waits, so that Ctrl-C interrupts it
            pass

    def finish(self) -> int:
        self.flush()
        if self.failed:
            raise TopicError(
                f"{self.failed:,} of {plural(self.sent, 'record')} could not be delivered to '{self._topic}' "
                f"({self.sent - self.failed:,} were): {self._reason}. Check the broker and send the rest again."
            )
        return self.sent

    def _on_failure(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed += 1
            self._reason = self._reason or error.str()
