"""Sets of offsets of a topic partition, in little memory: a bit for each offset, and nothing for a full block."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT = 16
_BLOCK = 1 << _SHIFT  # offsets in a block
_FULL = np.full(_BLOCK // 8, 255, np.uint8)  # stands for every block that has all its offsets


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return it as text."""
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Offsets from `start` on, up to but not including `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start

    def __str__(self) -> str:
        """Return it as text, both ends included."""
        return f"{self.start:,}" if self.size == 1 else f"{self.start:,} to {self.end - 1:,}"


class OffsetSet:
    """The offsets that were added, and those that were added more than once.

    Attributes:
        added: How many offsets were added, counting repeated additions.
        distinct: How many different offsets were added.
    """

    def __init__(self) -> None:
        """Create an empty set."""
        self.added = 0
        self.distinct = 0
        self._once: dict[int, NDArray[np.uint8]] = {}
        self._more: dict[int, NDArray[np.uint8]] = {}

    def add(self, offsets: "NDArray[np.int64]") -> None:
        """Add offsets in any order, none of them below 0."""
        self.added += len(offsets)
        if len(offsets) > 1 and not bool(np.all(offsets[1:] > offsets[:-1])):
            offsets, counts = np.unique(offsets, return_counts=True)
            _mark(self._more, offsets[counts > 1])
        self.distinct += len(offsets) - _mark(self._once, offsets, self._more)

    def ranges(self) -> list[OffsetRange]:
        """Return all offsets of the set."""
        return _ranges(self._once)

    def doubled(self) -> list[OffsetRange]:
        """Return the offsets that were added more than once."""
        return _ranges(self._more)


def gaps(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the gaps between ranges in rising order that do not touch."""
    return [OffsetRange(before.end, after.start) for before, after in pairwise(ranges)]


def shared(some: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that two lists of ranges, both rising, have in common."""
    common: list[OffsetRange] = []
    at = other = 0
    while at < len(some) and other < len(others):
        both = OffsetRange(max(some[at].start, others[other].start), min(some[at].end, others[other].end))
        if both.size > 0:
            common.append(both)
        if some[at].end < others[other].end:
            at += 1
        else:
            other += 1
    return common


def without(some: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ranges that are not in others; both lists are in rising order."""
    if not some:
        return []
    ends = [some[0].start, *(bound for excluded in others for bound in excluded), some[-1].end]
    # The offsets before, between and after the others.
    outside = [OffsetRange(start, end) for start, end in zip(ends[::2], ends[1::2], strict=True)]
    return shared(some, [part for part in outside if part.size > 0])


def joined(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """Return at most `most` ranges that cover the given ranges, in rising order: the nearest ranges are joined."""
    distances = sorted(
        range(1, len(ranges)), key=lambda at: ranges[at].start - ranges[at - 1].end, reverse=True
    )  # of each range to the range before it
    cuts = [0, *sorted(distances[: most - 1]), len(ranges)]
    return [OffsetRange(ranges[first].start, ranges[after - 1].end) for first, after in pairwise(cuts) if first < after]


def total(ranges: Iterable[OffsetRange]) -> int:
    """Return how many offsets ranges have together."""
    return sum(part.size for part in ranges)


def _mark(
    blocks: "dict[int, NDArray[np.uint8]]",
    offsets: "NDArray[np.int64]",
    again: "dict[int, NDArray[np.uint8]] | None" = None,
) -> int:
    """Mark offsets in rising order, and return how many were marked already; those are marked in `again`."""
    if not len(offsets):
        return 0
    numbers = offsets >> _SHIFT
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    repeated = 0
    for part in np.split(offsets, cuts):
        number = int(part[0]) >> _SHIFT
        flags = np.zeros(_BLOCK, bool)
        flags[part & (_BLOCK - 1)] = True
        bits = np.packbits(flags, bitorder="little")
        before = blocks.get(number)
        if before is not None:
            both = before & bits
            if both.any():
                repeated += int(np.unpackbits(both).sum())
                if again is not None:
                    again[number] = both | again[number] if number in again else both
            bits |= before
        blocks[number] = _FULL if bool((bits == 255).all()) else bits
    return repeated


def _ranges(blocks: "dict[int, NDArray[np.uint8]]") -> list[OffsetRange]:
    starts: list[int] = []
    ends: list[int] = []
    for number in sorted(blocks):
        base = number << _SHIFT
        if blocks[number] is _FULL:
            first, after = [base], [base + _BLOCK]
        else:
            edges = np.diff(np.unpackbits(blocks[number], bitorder="little").astype(np.int8), prepend=0, append=0)
            first, after = ((np.flatnonzero(edges == step) + base).tolist() for step in (1, -1))
        if ends and ends[-1] == first[0]:  # continues the block before
            ends.pop()
            first = first[1:]
        starts += first
        ends += after
    return [OffsetRange(*bounds) for bounds in zip(starts, ends, strict=True)]
