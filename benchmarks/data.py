"""The events: generated once for each size into a topic of two partitions; the expected results are in a file."""

import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.truth import Notes, Truth
from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.visits.generator import VisitsPlan, generate

PARTITIONS = 2
PAGES = 16


@dataclass(frozen=True)
class Data:
    """Events in a topic.

    Attributes:
        topic: The topic; the key of a record is its visit.
        truth: The expected results.
    """

    topic: str
    truth: Truth

    @property
    def events(self) -> int:
        """The number of events."""
        return self.truth.events


def prepare(kafka: KafkaCluster, folder: Path, events: int, visits: int, say: Callable[[str], None]) -> Data:
    """Return events with so many concurrent visits; they are generated unless the topic contains them.

    Args:
        kafka: The broker.
        folder: Where the expected results are stored; it belongs to the broker's data.
        events: The number of events.
        visits: The number of concurrent visits.
        say: Prints progress.
    """
    topic = f"visits-{events}-{visits}"
    kept = folder / f"{topic}.pickle"
    if kept.exists() and topics.topic_exists(kafka, topic):
        truth: Truth = pickle.loads(kept.read_bytes())  # noqa: S301  (only written below)
        if sum(topics.end_offsets(kafka, topic).values()) == truth.events:
            return Data(topic, truth)
    if topics.topic_exists(kafka, topic):  # an earlier run was interrupted
        topics.delete(kafka, topic)
    begin = time.monotonic()
    topics.create(kafka, topic, PARTITIONS)
    notes = Notes()
    plan = VisitsPlan(count=events, visits=visits, pages_per_visit=PAGES)
    producer.produce(kafka, topic, _noted(generate(plan), notes))
    truth = notes.truth()
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(pickle.dumps(truth))
    say(f"Generated {events:,} events, {visits:,} concurrent visits, in {time.monotonic() - begin:.0f} s.")
    return Data(topic, truth)


def forget(kafka: KafkaCluster, folder: Path, data: Data) -> None:
    """Delete events that are no longer needed."""
    topics.delete(kafka, data.topic)
    (folder / f"{data.topic}.pickle").unlink(missing_ok=True)


def tidy(kafka: KafkaCluster, folder: Path) -> None:
    """Delete the folders and topics of failed and interrupted runs."""
    clear(folder / "runs")
    for topic in topics.list_topics(kafka):
        if not topic.name.startswith("visits-"):
            topics.delete(kafka, topic.name)


def clear(folder: Path) -> None:
    """Delete a run's folder."""
    shutil.rmtree(folder, ignore_errors=True)


def _noted(messages: Iterator[Message], notes: Notes) -> Iterator[Message]:
    for message in messages:
        assert message.key is not None
        assert message.value is not None
        notes.add(message.key, message.value)
        yield message
