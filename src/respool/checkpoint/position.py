"""How far a query has read, by its checkpoint; no JVM."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.format.model import OffsetLogEntry
from respool.format.positions import kafka_parts
from respool.storage.folder import FolderReader
from respool.storage.open import open_reader

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
    planned = checkpoint.planned(batch)
    watermark = _EPOCH + timedelta(milliseconds=planned.watermark_ms) if planned.watermark_ms else None
    ends = {place: end for source in planned.sources for place, end in kafka_parts(source.end).items()}
    return QueryPosition(files.root, batch, watermark, ends)


def ends_of_batches(checkpoint: str, topic: str, batches: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return batch, partition and next offset of those batches that the checkpoint still knows."""
    snapshot = CheckpointSnapshot(open_reader(checkpoint))
    return [
        (batch, partition, end)
        for batch in batches
        if snapshot.has("offsets", batch)
        for partition, end in kafka_ends(snapshot.planned(batch), topic).items()
    ]


def kafka_ends(planned: OffsetLogEntry, topic: str) -> dict[int, int]:
    """Return where each partition of a topic ends in a planned batch."""
    parts = {place: end for source in planned.sources for place, end in kafka_parts(source.end).items()}
    return {partition: end for (name, partition), end in parts.items() if name == topic}
