"""What a sink does with the batches that are replayed after a rewind, without a JVM.

Spark's Delta sink and its file sink record the batches that they have, and silently skip a replayed batch: its rows are
lost, and a stateful query writes no state for it. Other sinks write every replayed batch again.
"""

from dataclasses import dataclass

from respool.delta.restore import RestoreTable


@dataclass(frozen=True)
class DeltaAddress:
    """A Delta table.

    Attributes:
        table: Its folder or URL.
        app_id: The `txnAppId` of a foreachBatch function that passes a batch's id as `txnVersion`; None for Spark's
            own Delta sink, which uses the query's id.
    """

    table: str
    app_id: str | None = None


@dataclass(frozen=True)
class FileAddress:
    """A folder of Parquet, JSON, CSV, ORC or text files, with a log of them in `_spark_metadata`."""

    folder: str


@dataclass(frozen=True)
class JdbcAddress:
    """A table of PostgreSQL that records its batches by the last change of the checkpoint.

    Attributes:
        address: The whole address, `jdbc:postgresql://…`, without a password.
    """

    address: str


@dataclass(frozen=True)
class OtherAddress:
    """A sink that records no batch.

    Attributes:
        kind: Its name, for messages.
        text: What it does with a replayed batch.
    """

    kind: str
    text: str


SinkAddress = DeltaAddress | FileAddress | JdbcAddress | OtherAddress


@dataclass(frozen=True)
class MoveSinkFiles:
    """Move a file sink's log entries, then the files that they name, to `_respool/aside`.

    Attributes:
        folder: The sink's folder or URL.
        files: Paths in it, in the order in which they must move.
    """

    folder: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReplayOutcome:
    """What a sink will do with the replayed batches.

    Attributes:
        sink: The sink, for messages.
        text: What will happen.
        blocked: Why the rewind is refused as it is; None when it is possible.
        remedy: What to do about it.
        restore: What `--restore-sink` does; None when it is not needed or not possible.
        new_query_id: Whether the remedy needs a new id for the query.
        others: What the further sinks of the query will do.
    """

    sink: str
    text: str
    blocked: str | None = None
    remedy: str | None = None
    restore: RestoreTable | MoveSinkFiles | None = None
    new_query_id: bool = False
    others: tuple["ReplayOutcome", ...] = ()

    @property
    def every(self) -> tuple["ReplayOutcome", ...]:
        """The outcome of each sink of the query."""
        return (self, *self.others)
