"""Results on the console, or passed to a function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.sinks.protocol import WriteContext
from respool.spark.internals import rows_as_table
from respool.text import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ConsoleSink:
    """Rows as tables on standard output, batch by batch, as Spark's own console sink draws them.

    Attributes:
        rows: How many rows of a batch are shown.

    >>> respool.ConsoleSink(rows=5).describe()
    'console'
    """

    rows: int = 20

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return "console"

    def identity(self) -> Identity:
        """Return the identity of standard output."""
        return Identity("console", {})

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return "Results are printed again."

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Nothing to create."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Print the batch; all rows are collected first, so that every state partition is committed."""
        table = rows_as_table(frame, self.rows)
        line = "-" * 43
        title = f"Batch: {write.batch}" if write.run is None else f"Run: {write.run}"
        print(f"{line}\n{title}\n{line}\n{printable(table)}", flush=True)


@dataclass(frozen=True)
class FunctionSink:
    """Rows to a function of the pipeline's author, called for every batch.

    Attributes:
        function: Takes the batch's rows and its id. It must read every partition of the rows.
        summary: A few words for `respool pipelines`.

    >>> respool.FunctionSink(lambda rows, batch: rows.foreach(print), "prints each row").describe()
    'prints each row'
    """

    function: Callable[["DataFrame", int], None]
    summary: str

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return self.summary

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return "The function is called again, with the same batch ids."

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Nothing to create."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Call the function."""
        assert write.batch is not None
        self.function(frame, write.batch)
