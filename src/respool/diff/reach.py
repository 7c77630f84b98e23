"""How far a query has read, by its checkpoint; no JVM."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from respool.checkpoint.files import Reader
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.sources import kafka_parts

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Reach:
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


def read_reach(files: Reader) -> Reach:
    """Return how far the query of a checkpoint has read."""
    checkpoint = Checkpoint(files)
    if not checkpoint.commits:
        return Reach(files.root, None, None, {})
    batch = checkpoint.commits[-1]
    planned = checkpoint.planned(batch)
    watermark = _EPOCH + timedelta(milliseconds=planned.watermark_ms) if planned.watermark_ms else None
    ends = {place: end for source in planned.sources for place, end in kafka_parts(source.end).items()}
    return Reach(files.root, batch, watermark, ends)


def unequal(a: Reach, b: Reach) -> str | None:
    """Return what one query has read and the other has not, for people; None when both have read the same.

    A partition that one of them does not know yet is taken as not read at all.
    """
    places = {*a.ends, *b.ends}
    ahead = {place: a.ends.get(place, 0) - b.ends.get(place, 0) for place in places}
    only_a = sum(count for count in ahead.values() if count > 0)
    only_b = -sum(count for count in ahead.values() if count < 0)
    if only_a and only_b:
        return f"A has read {_records(only_a)} that B has not, and B {_records(only_b)} that A has not"
    if only_a or only_b:
        behind, count = ("B", only_a) if only_a else ("A", only_b)
        return f"{behind} has read {_records(count)} less"
    if a.watermark != b.watermark:
        return f"Both have read the same, but the watermark of {'B' if _earlier(b, a) else 'A'} is earlier"
    return None


def _earlier(one: Reach, other: Reach) -> bool:
    return one.watermark is None or (other.watermark is not None and one.watermark < other.watermark)


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"
