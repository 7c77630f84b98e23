"""What is compared, and what is found; plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from respool.checkpoint.position import QueryPosition
from respool.errors import DiffError
from respool.savepoint.manifest import SavepointManifest

Kind = Literal["kafka", "delta"]
DiffVerdict = Literal["differ", "only_a", "only_b"]
VERDICTS: tuple[DiffVerdict, ...] = ("differ", "only_a", "only_b")


@dataclass(frozen=True)
class ComparedOutput:
    """One of the two outputs.

    Attributes:
        kind: A Kafka topic or a Delta table.
        place: The topic, or the table's path or URL.
        key: The columns that identify a row, as far as they are known.
        pipeline: The pipeline that writes it, when it was named by its checkpoint.
        timezone: The zone in which that pipeline renders times.
        reach: How far that pipeline has read.
    """

    kind: Kind
    place: str
    key: tuple[str, ...] = ()
    pipeline: str = ""
    timezone: str = ""
    reach: QueryPosition | None = None

    @property
    def address(self) -> str:
        """Where it is, for programs."""
        return f"{self.kind}:{self.place}"

    def __str__(self) -> str:
        """Return it for people."""
        return f"{'topic' if self.kind == 'kafka' else 'table'} {self.place}"


@dataclass(frozen=True)
class Cutoff:
    """Which rows count: those written after a moment. A row that either side has written since is compared.

    Attributes:
        batch: A record of a topic counts when its header names a later batch.
        time: A record whose header names no batch counts when its timestamp is not earlier. A row of a table counts
            when it is not the same in the version of that time.
        offsets: Such a record of the topic `output` counts from these offsets on, by partition, whatever its time.
        version: A row of the table `output` counts when it is not the same in this version.
        output: Whose offsets and version these are, as `Side.address`; None for A.
    """

    batch: int | None = None
    time: datetime | None = None
    offsets: Mapping[int, int] | None = None
    version: int | None = None
    output: str | None = None


@dataclass(frozen=True)
class DiffRequest:
    """What is to be compared.

    Attributes:
        a: The one.
        b: The other.
        since: Which rows count.
        key: The columns that identify a row, in place of what is known; none to take what is known.
        ignore: Columns that are left out.
    """

    a: ComparedOutput
    b: ComparedOutput
    since: Cutoff = field(default_factory=Cutoff)
    key: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @property
    def mixed(self) -> bool:
        """Whether a topic is compared with a table."""
        return self.a.kind != self.b.kind

    def key_columns(self) -> tuple[str, ...]:
        """Return the columns by which rows are compared; none for the keys of records, or for whole rows.

        Raises DiffError when the two sides do not go together.
        """
        if self.key:
            return self.key
        if self.mixed:
            table, topic = (self.a, self.b) if self.a.kind == "delta" else (self.b, self.a)
            if not (table.key or topic.key):
                raise DiffError(
                    f"The {topic} is to be compared with the {table}, and nothing tells which columns identify a row. "
                    "Name them with --key, or name the pipelines in place of what they write."
                )
            return table.key or topic.key
        if self.a.kind == "kafka":
            return ()
        if self.a.key and self.b.key and self.a.key != self.b.key:
            raise DiffError(
                f"The rows of the {self.a} are known by {', '.join(self.a.key)}, those of the {self.b} by "
                f"{', '.join(self.b.key)}. Name the columns to compare them by with --key."
            )
        return self.a.key or self.b.key


@dataclass(frozen=True)
class RowDifference:
    """A row that differs, or that only one side has.

    Attributes:
        verdict: Which of these.
        key: Its key as text; None for a row that has none.
        a: Its columns in A, each as JSON; None when A lacks it.
        b: Its columns in B.
        columns: Those that differ, with their values in A and in B, as JSON; None for one that is not there.
        rows: How many such rows there are: more than one only for rows without a key.
    """

    verdict: DiffVerdict
    key: str | None
    a: Mapping[str, str] | None
    b: Mapping[str, str] | None
    columns: Mapping[str, tuple[str | None, str | None]]
    rows: int = 1


@dataclass(frozen=True)
class DiffSummary:
    """How many rows are alike and how many are not.

    Attributes:
        equal: Rows that are the same.
        differ: Rows that both have, with other values.
        only_a: Rows that only A has.
        only_b: Rows that only B has.
        columns: How many rows differ in each column, the most first.
    """

    equal: int
    differ: int
    only_a: int
    only_b: int
    columns: Mapping[str, int]

    @property
    def different(self) -> int:
        """How many rows are not alike."""
        return self.differ + self.only_a + self.only_b


def cutoff_after(manifest: SavepointManifest) -> Cutoff:
    """Return which rows of an output count as written after a savepoint."""
    sink = manifest.sink
    offsets = {int(one): end for one, end in sink.offsets.items()} if sink.offsets is not None else None
    return Cutoff(manifest.batch, manifest.created, offsets, sink.version, sink.output)
