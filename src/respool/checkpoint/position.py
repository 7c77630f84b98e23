"""How far a query has read, from its checkpoint; no JVM."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.storage.folder import FolderReader
from respool.storage.open import open_reader
from respool.times import EPOCH


@dataclass(frozen=True)
class QueryPosition:
    """How far a query has read.

    Attributes:
        checkpoint: Its checkpoint.
        batch: Its newest finished batch; None when it has finished none.
        watermark: The watermark at which that batch ran; None while there was none.
        ends: The next offset to be read, by topic and partition.
    """

    checkpoint: str
    batch: int | None
    watermark: datetime | None
    ends: Mapping[tuple[str, int], int]


def read_position(files: FolderReader) -> QueryPosition:
    """Return how far the query of a checkpoint has read."""
    checkpoint = CheckpointSnapshot(files)
    if not checkpoint.commits:
        return QueryPosition(files.root, None, None, {})
    batch = checkpoint.commits[-1]
    watermark_ms = checkpoint.planned(batch).watermark_ms
    watermark = EPOCH + timedelta(milliseconds=watermark_ms) if watermark_ms else None
    return QueryPosition(files.root, batch, watermark, checkpoint.kafka_ends(batch))


def ends_of_batches(checkpoint: str, topic: str, batches: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return batch, partition and next offset for each of the batches whose file in `offsets` is kept."""
    snapshot = CheckpointSnapshot(open_reader(checkpoint))
    return [
        (batch, partition, end)
        for batch in batches
        if snapshot.has("offsets", batch)
        for partition, end in topic_ends(snapshot.kafka_ends(batch), topic).items()
    ]


def topic_ends(ends: Mapping[tuple[str, int], int], topic: str) -> dict[int, int]:
    """Return the next offsets of the partitions of a topic."""
    return {partition: end for (name, partition), end in ends.items() if name == topic}
