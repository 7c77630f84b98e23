"""The input of `queries` in Kafka. respool is imported only where it is used, as `queries` runs without it, too."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.queries import Source, events

if TYPE_CHECKING:
    from respool.kafka.cluster import KafkaCluster


def fill_topic(kafka: "KafkaCluster", topic: str, batches: int) -> Source:
    """Write the rows of so many batches to a topic of two partitions, half of each batch to either."""
    from respool.kafka import producer

    values = [json.dumps(event).encode() for number in range(batches) for event in events(number)]
    for partition in range(2):
        producer.produce_together(kafka, topic, values[partition::2], partition)
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}


@contextmanager
def kafka_input(batches: int) -> Iterator[Source]:
    """Start a broker with a topic that holds the rows of so many batches, for the length of a `with` block."""
    from respool.kafka import topics
    from respool.kafka.cluster import KafkaCluster
    from respool.local import broker
    from respool.settings import Settings

    with tempfile.TemporaryDirectory() as home, broker.running(Settings(home=Path(home))) as started:
        kafka = KafkaCluster(started.address)
        topics.create(kafka, "visits", partitions=2)
        yield fill_topic(kafka, "visits", batches)
