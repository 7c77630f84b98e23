"""The data model of a checkpoint.

Batch N is planned in `offsets/N` and finished in `commits/N`. It reads version N of the state and writes version N + 1;
version 0 is empty.

A checkpoint does not record the version of Spark. But every batch records settings in `offsets`, and each version of
Spark records more of them: the newest batch shows which versions can have written it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple

from respool.format.positions import kafka_parts
from respool.text import number_ranges

StateKind = Literal["delta", "snapshot", "changelog", "zip"]
MOST_PARTITIONS = 100_000  # of a query's state; larger than in any real query
SNAPSHOTS: frozenset[StateKind] = frozenset(
    {"snapshot", "zip"}
)  # complete; the other kinds are increments to the previous version
TESTED = "4.0 to 4.2"

_PREFIX = "spark.sql.streaming."
_PROVIDER = f"{_PREFIX}stateStore.providerClass"
_PROVIDERS = ("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider")
_SPARK = "org.apache.spark.sql.execution.streaming."
# A setting, the versions that record it but none of the settings above it, and whether respool is tested with them.
_SINCE = (
    ("stateStore.rowChecksum.enabled", "4.2 or later", True),
    ("stateStore.encodingFormat", "4.0 or 4.1", True),
    ("statefulOperator.useStrictDistribution", "3.1 to 3.5", False),
    ("stateStore.rocksdb.formatVersion", "3.2", False),
    ("stateStore.compression.codec", "3.1", False),
    ("join.stateFormatVersion", "3.0", False),
    ("aggregation.stateFormatVersion", "2.4", False),
)
_OLDEST = "2.3 or older"


@dataclass(frozen=True)
class SourceOffsets:
    """How far one source was read.

    Attributes:
        source: Its number in the query, or its name.
        end: The position as the source wrote it, decoded from JSON; None when it has not been read yet.
    """

    source: str
    end: Any


@dataclass(frozen=True)
class OffsetLogEntry:
    """One file of `offsets`: what a batch reads.

    Attributes:
        version: The version of the file's format.
        watermark_ms: The watermark at which the batch ran.
        timestamp_ms: The time at which it was planned.
        conf: Spark's settings that are fixed in the checkpoint.
        sources: The end position of each source, in the order of the query.
    """

    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[SourceOffsets, ...]

    def end(self, source: str) -> Any:
        """Return the position of a source; None when it has none."""
        return next((entry.end for entry in self.sources if entry.source == source), None)

    def kafka_ends(self) -> dict[tuple[str, int], int]:
        """Return the next Kafka offsets to read after the batch, by topic and partition."""
        return {partition: end for source in self.sources for partition, end in kafka_parts(source.end).items()}


@dataclass(frozen=True)
class CommitLogEntry:
    """One file of `commits`: the result of a batch.

    Attributes:
        version: The version of the file's format.
        next_watermark_ms: The watermark for the next batch.
        state_ids: The unique id of the state written, by operator, partition and store; empty in state format 1.
    """

    version: int
    next_watermark_ms: int
    state_ids: Mapping[int, tuple[tuple[str, ...], ...]]


class StateFile(NamedTuple):
    """A file of a state store.

    Attributes:
        version: The version of the state that it completes.
        uid: The unique id in its name, in state format 2; else None.
        kind: Its kind.
        name: Its name.
    """

    version: int
    uid: str | None
    kind: StateKind
    name: str


@dataclass(frozen=True)
class StateStore:
    """The files of one store of one partition of one operator.

    Attributes:
        operator: The number of the stateful operator.
        partition: The number of the partition.
        name: The store's name; `default` unless the operator has several.
        folder: The folder of its files.
        files: Its files, by version.
        tables: The names of its SST files.
        strange: Other files in the folder that Spark would treat as state files.
    """

    operator: int
    partition: int
    name: str
    folder: str
    files: tuple[StateFile, ...]
    tables: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Its name in messages."""
        store = "" if self.name == "default" else f", store {self.name}"
        return f"operator {self.operator}, partition {self.partition}{store}"


@dataclass(frozen=True)
class OperatorMetadata:
    """The metadata of a stateful operator.

    Attributes:
        name: Spark's name for this kind of operator.
        stores: The names of its stores, in the order of its unique ids.
        properties: The properties in metadata version 2, such as the variables of transformWithState.
    """

    name: str
    stores: tuple[str, ...]
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class InclusiveRange:
    """Versions or batches from `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, number: int) -> bool:
        """Return whether a number is in the range."""
        return self.first <= number <= self.last


def intersect(some: Iterable[InclusiveRange], others: Iterable[InclusiveRange]) -> list[InclusiveRange]:
    """Return the ranges of numbers that are both in one of `some` and in one of `others`."""
    bounds = ((max(a.first, b.first), min(a.last, b.last)) for a, b in product(some, others))
    return [InclusiveRange(first, last) for first, last in bounds if first <= last]


def spans(numbers: Sequence[int]) -> list[InclusiveRange]:
    """Return sorted numbers as runs without a gap."""
    runs: list[InclusiveRange] = []
    if not numbers:
        return runs
    if numbers[-1] - numbers[0] + 1 == len(numbers):  # no gap at all, the common case
        return [InclusiveRange(numbers[0], numbers[-1])]
    start = numbers[0]
    for before, after in pairwise(numbers):
        if after != before + 1:
            runs.append(InclusiveRange(start, before))
            start = after
    runs.append(InclusiveRange(start, numbers[-1]))
    return runs


def spans_text(ranges: Iterable[InclusiveRange]) -> str:
    """Return ranges as text: '3, 5 to 12'."""
    return number_ranges((span.first, span.last) for span in ranges)


@dataclass(frozen=True)
class WriterVersions:
    """The versions of Spark that can have written a batch.

    Attributes:
        versions: The versions, as text.
        tested: Whether respool is tested with them.
    """

    versions: str
    tested: bool

    @property
    def warning(self) -> str | None:
        """A warning about versions that respool is not tested with; None for tested versions."""
        if self.tested:
            return None
        return (
            f"By the settings in offsets, Spark {self.versions} wrote this checkpoint. respool is tested with Spark "
            f"{TESTED}; older checkpoints are read by the same rules, untested."
        )


def writer_of(planned: OffsetLogEntry) -> WriterVersions:
    """Return which versions of Spark can have written a batch."""
    if planned.version > 1:
        return WriterVersions("4.2 or later", True)
    for name, versions, tested in _SINCE:
        if f"{_PREFIX}{name}" in planned.conf:
            return WriterVersions(versions, tested)
    return WriterVersions(_OLDEST, False)


def unknown_provider(conf: Mapping[str, str]) -> str | None:
    """Return the class of the state store in a batch's settings when respool cannot read its files; else None."""
    name = conf.get(_PROVIDER)
    if name is None or (name.startswith(_SPARK) and name.rpartition(".")[2] in _PROVIDERS):
        return None
    return name


def unreadable_provider(provider: str) -> str:
    """Return the message about a state store that respool cannot read."""
    return (
        f"The query keeps its state with {provider}, which respool cannot read; "
        f"it reads Spark's {' and '.join(_PROVIDERS)}"
    )
