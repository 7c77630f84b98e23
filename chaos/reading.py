"""Topics read to their end, without Spark."""

import time
from typing import Any

from chaos.truth import Published


class Topics:
    """The topics of a broker."""

    def __init__(self, address: str) -> None:
        """Store the broker's address."""
        self._address = address

    def names(self) -> list[str]:
        """Return the names of all topics except Kafka's internal topics."""
        consumer = self._consumer()
        try:
            return sorted(name for name in consumer.list_topics(timeout=30).topics if not name.startswith("__"))
        finally:
            consumer.close()

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of every partition; none for a topic that does not exist."""
        consumer = self._consumer()
        try:
            return {partition: end for partition, (_, end) in self._bounds(consumer, topic).items()}
        finally:
            consumer.close()

    def read(self, topic: str, seconds: float = 120) -> list[Published]:
        """Return all records, each partition in the order of its offsets."""
        return [record for record, _ in self.read_with_headers(topic, seconds)]

    def newest(self, topic: str, count: int, seconds: float = 30) -> list[Published]:
        """Return the newest records of every partition."""
        return [record for record, _ in self.read_with_headers(topic, seconds, count)]

    def read_with_headers(
        self, topic: str, seconds: float = 120, newest: int | None = None
    ) -> list[tuple[Published, dict[str, bytes]]]:
        """Return all records with their headers; raise TimeoutError if they cannot be read in time.

        Args:
            topic: The topic.
            seconds: The time limit.
            newest: The number of newest records of every partition; None for all records.
        """
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        records: list[tuple[Published, dict[str, bytes]]] = []
        try:
            bounds = self._bounds(consumer, topic)
            if newest is not None:
                bounds = {number: (max(begin, end - newest), end) for number, (begin, end) in bounds.items()}
            left = {number: end for number, (begin, end) in bounds.items() if begin < end}
            consumer.assign([TopicPartition(topic, number, bounds[number][0]) for number in left])
            deadline = time.monotonic() + seconds
            while left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"topic {topic} could not be read to its end within {seconds:.0f} s")
                for message in consumer.consume(1000, 1.0):
                    if message.error():
                        continue
                    partition, offset = message.partition(), message.offset()
                    record = Published(message.key() or b"", message.value(), partition, offset)
                    records.append((record, dict(message.headers() or [])))
                    if offset + 1 >= left.get(partition, 0):
                        left.pop(partition, None)
        finally:
            consumer.close()
        return records

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._address,
                "log_level": 0,
                "group.id": "chaos",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def _bounds(self, consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
        from confluent_kafka import TopicPartition

        partitions = consumer.list_topics(timeout=30).topics.get(topic)
        numbers = sorted(partitions.partitions) if partitions is not None else []
        return {number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30) for number in numbers}
