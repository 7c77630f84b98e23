"""The input of the queries: files, or records in Kafka. What a batch reads depends on its number alone."""

import json
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.kafka.cluster import KafkaCluster

EVENT = "key STRING, id INT, amount INT, at TIMESTAMP"
ROWS_PER_FILE = 8
_FIRST_FILE = 1_757_000_000  # when the first file was written, in seconds since 1970; the others a second later each

Source = Mapping[str, str]


def write_files(folder: Path, numbers: range, flavour: str = "") -> Source:
    """Write input files, one for each batch; another flavour has other rows, at the same times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        file = folder / f"{number:03}.json"
        file.write_text("".join(json.dumps(event) + "\n" for event in events(number, flavour)))
        os.utime(file, (_FIRST_FILE + number, _FIRST_FILE + number))
    return {"path": str(folder)}


def events(number: int, flavour: str = "") -> list[dict[str, Any]]:
    """Return the events of a file. Time advances by a minute from file to file."""
    chance = random.Random(f"{flavour}{number}")
    return [
        {
            "key": f"k{chance.randrange(6)}",
            "id": chance.randrange(40),
            "amount": chance.randrange(100),
            "at": f"2025-09-04T{7 + number // 60:02}:{number % 60:02}:{chance.randrange(60):02}Z",
        }
        for _ in range(ROWS_PER_FILE)
    ]


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
