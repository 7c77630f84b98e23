"""Records that a query has not read and that Kafka no longer has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from respool.checkpoint.snapshot import read_position
from respool.errors import CheckpointError, TopicError
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.locations import local_path
from respool.pipeline.definition import Pipeline
from respool.storage.open import open_reader
from respool.text import plural

Place = tuple[str, int]  # a topic and a partition
_MANY = 5  # ranges that are listed individually


@dataclass(frozen=True)
class ExpiredRange:
    """Offsets of a partition that were not read and are no longer in Kafka: from `start` to `end`, exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        """The topic and the partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        """Return it for messages."""
        return f"{self.topic}-{self.partition}: {self.start:,} to {self.end - 1:,}"


def place_of(name: str) -> Place:
    """Return the topic and the partition of a name such as `orders-0`."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def expired_before_start(checkpoint: str, pipeline: Pipeline, kafka: KafkaCluster) -> list[ExpiredRange]:
    """Return what a query would skip when it resumes; empty for a query that has committed no batch.

    Args:
        checkpoint: Its checkpoint.
        pipeline: The pipeline; topics that may not be skipped are left out.
        kafka: The cluster.
    """
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return []
    try:
        ends = read_position(open_reader(checkpoint)).ends
    except CheckpointError:
        return []  # Spark may reach a store that this process cannot
    return expired(ends, skippable(pipeline, {topic for topic, _ in ends}), kafka)


def skippable(pipeline: Pipeline, names: Iterable[str]) -> set[str]:
    """Return the topics, of these, whose lost records a pipeline skips."""
    sources = [source for source in pipeline.kafka_sources if source.on_data_loss == "skip"]
    return {name for name in names if any(source.matches(name) for source in sources)}


def expired(ends: Mapping[Place, int], names: set[str], kafka: KafkaCluster) -> list[ExpiredRange]:
    """Return the offsets between the next ones to read and the first ones that Kafka has.

    Args:
        ends: The next offset to read, by topic and partition.
        names: The topics to ask for.
        kafka: The cluster.
    """
    first: dict[Place, int] = {}
    for name in names:
        try:
            first |= {(name, number): offset for number, offset in topics.start_offsets(kafka, name).items()}
        except TopicError:
            continue  # Spark reports a topic that is gone
    return [
        ExpiredRange(*place, start=end, end=first[place])
        for place, end in sorted(ends.items())
        if first.get(place, 0) > end
    ]


def skipped_in(
    ranges: Mapping[Place, tuple[int, int]], rows: int, names: set[str], kafka: KafkaCluster
) -> list[ExpiredRange]:
    """Return what a finished batch may have skipped: offsets of its ranges that Kafka no longer has.

    Offsets without a record, such as markers of transactions, are no loss; nor are records that expired after they
    were read. So only a batch that read fewer records than its ranges have offsets can have skipped some.

    Args:
        ranges: The first offset and the end offset of the batch, by topic and partition.
        rows: How many records it read.
        names: The topics whose lost records are skipped.
        kafka: The cluster.
    """
    if not names or rows >= sum(end - start for start, end in ranges.values()):
        return []
    lost = expired({place: start for place, (start, _) in ranges.items()}, names, kafka)
    ends = {place: end for place, (_, end) in ranges.items()}
    return [ExpiredRange(each.topic, each.partition, each.start, min(each.end, ends[each.place])) for each in lost]


def report(pipeline: str, lost: Iterable[ExpiredRange]) -> str:
    """Return the note about skipped offsets."""
    ranges = list(lost)
    count = sum(each.end - each.start for each in ranges)
    more = f"; and {len(ranges) - _MANY} more partitions" if ranges[_MANY:] else ""
    return (
        f"{pipeline} skips up to {plural(count, 'record')} that it has not read and that Kafka no longer has, at "
        f"offsets {'; '.join(map(str, ranges[:_MANY]))}{more}."
    )
