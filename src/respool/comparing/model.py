"""The request and the result of a comparison; plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from respool.checkpoint.snapshot import QueryPosition
from respool.errors import DiffError
from respool.savepoint.manifest import SavepointManifest

Kind = Literal["kafka", "delta"]
DiffVerdict = Literal["differ", "only_a", "only_b"]
VERDICTS: tuple[DiffVerdict, ...] = ("differ", "only_a", "only_b")


@dataclass(frozen=True)
class ComparedOutput:
    """One of the two outputs that are compared.

    Attributes:
        kind: A Kafka topic or a Delta table.
        place: The topic, or the table's path or URL.
        key: The columns that identify a row; empty when they are not known.
        pipeline: The pipeline that writes it, when it was named by its checkpoint.
        timezone: The zone in which that pipeline renders times.
        position: The position up to which that pipeline has read.
    """

    kind: Kind
    place: str
    key: tuple[str, ...] = ()
    pipeline: str = ""
    timezone: str = ""
    position: QueryPosition | None = None

    @property
    def address(self) -> str:
        """Its kind and location, machine-readable."""
        return f"{self.kind}:{self.place}"

    def __str__(self) -> str:
        """Return its kind and location, human-readable."""
        return f"{'topic' if self.kind == 'kafka' else 'table'} {self.place}"


@dataclass(frozen=True)
class Cutoff:
    """Which rows are compared: those that either output has written after a moment.

    >>> respool.Cutoff(batch=7).batch
    7

    Attributes:
        batch: A record of a topic is compared when its header names a later batch.
        time: A record whose header names no batch is compared when its timestamp is not earlier. A row of a table is
            compared when it differs from the version of that time.
        offsets: A record without such a header, of the topic `output`, is compared from these offsets on, by
            partition, regardless of its time.
        version: A row of the table `output` is compared when it differs from this version.
        output: The output of these offsets and this version, as `ComparedOutput.address`; None for A.
    """

    batch: int | None = None
    time: datetime | None = None
    offsets: Mapping[int, int] | None = None
    version: int | None = None
    output: str | None = None


@dataclass(frozen=True)
class DiffRequest:
    """Which outputs to compare, and how.

    Attributes:
        a: The first output.
        b: The second output.
        since: Which rows are compared.
        key: The columns that identify a row; empty for those that the pipelines define.
        ignore: Columns that are not compared.
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
        """Return the columns by which rows are matched; empty for the keys of records, or for whole rows.

        Raises DiffError when the two outputs have no common key.
        """
        if self.key:
            return self.key
        if self.mixed:
            table, topic = (self.a, self.b) if self.a.kind == "delta" else (self.b, self.a)
            if not (table.key or topic.key):
                raise DiffError(
                    f"To compare the {topic} with the {table}, respool must know which columns identify a row. Name "
                    "them with --key, or name the pipelines instead of their outputs."
                )
            return table.key or topic.key
        if self.a.kind == "kafka":
            return ()
        if self.a.key and self.b.key and self.a.key != self.b.key:
            raise DiffError(
                f"The rows of the {self.a} are identified by {', '.join(self.a.key)}, those of the {self.b} by "
                f"{', '.join(self.b.key)}. Name the columns that identify a row in both with --key."
            )
        return self.a.key or self.b.key


@dataclass(frozen=True)
class RowDifference:
    """A row that differs, or that only one output has.

    Attributes:
        verdict: Which of these.
        key: Its key as text; None for a row without a key.
        a: Its columns in A, each as JSON; None when A lacks the row.
        b: Its columns in B, each as JSON; None when B lacks the row.
        columns: The columns that differ, with their values in A and in B, as JSON; None for a missing value.
        rows: The number of such rows: above 1 only for rows without a key.
    """

    verdict: DiffVerdict
    key: str | None
    a: Mapping[str, str] | None
    b: Mapping[str, str] | None
    columns: Mapping[str, tuple[str | None, str | None]]
    rows: int = 1


@dataclass(frozen=True)
class DiffSummary:
    """The numbers of equal and different rows.

    Attributes:
        equal: Rows that are the same.
        differ: Rows that both have, with different values.
        only_a: Rows that only A has.
        only_b: Rows that only B has.
        columns: The number of rows that differ in each column, the highest first.
    """

    equal: int
    differ: int
    only_a: int
    only_b: int
    columns: Mapping[str, int]

    @property
    def different(self) -> int:
        """The number of rows that are not equal."""
        return self.differ + self.only_a + self.only_b


def cutoff_after(manifest: SavepointManifest) -> Cutoff:
    """Return the cutoff after which rows of an output were written since a savepoint."""
    sink = manifest.sink
    offsets = {int(number): end for number, end in sink.offsets.items()} if sink.offsets is not None else None
    return Cutoff(manifest.batch, manifest.created, offsets, sink.version, sink.output)
