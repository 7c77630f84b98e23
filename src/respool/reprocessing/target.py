"""The targets of a run: the pipeline's own sink, or a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from respool.errors import ReprocessError
from respool.locations import for_spark, is_occupied
from respool.reprocessing.plan import ReprocessPlan
from respool.settings import Settings
from respool.sinks.console import FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.files import FileSink
from respool.sinks.protocol import KeyedSink, WriteContext
from respool.sinks.several import SeveralSinks
from respool.spark.internals import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ResultTarget(Protocol):
    """Receives the results of a run, slice by slice."""

    def write_slice(self, number: int, changes: "DataFrame") -> None:
        """Write the changes of a slice; written again, they replace the earlier changes."""
        ...

    def finish(self, slices: int) -> None:
        """Finish after all slices are written."""
        ...


@dataclass(frozen=True)
class ImmediateTarget:
    """Publishes each slice immediately.

    Attributes:
        publish: Publishes changes.
    """

    publish: "Callable[[DataFrame], None]"

    def write_slice(self, number: int, changes: "DataFrame") -> None:
        """Publish the changes of a slice."""
        self.publish(changes)

    def finish(self, slices: int) -> None:
        """Do nothing: every slice is published."""


@dataclass(frozen=True)
class StagedTarget:
    """Writes all slices to a table or folder in one commit; until then they are staged next to it.

    Attributes:
        spark: The pipeline's session.
        folder: The table's path or URL.
        run: The run's id.
        write: Writes all changes.
    """

    spark: "SparkSession"
    folder: str
    run: str
    write: "Callable[[DataFrame], None]"

    def __post_init__(self) -> None:
        """Refuse a session that could not delete the staged files, before any is written."""
        HadoopPath(self.spark, self._staged)

    @property
    def _staged(self) -> str:
        return f"{for_spark(self.folder)}._respool-{self.run}"  # not inside: overwriting a folder empties it

    def write_slice(self, number: int, changes: "DataFrame") -> None:
        """Stage the changes of a slice."""
        changes.write.mode("overwrite").parquet(f"{self._staged}/{number:06}")

    def finish(self, slices: int) -> None:
        """Write all changes in one commit, and remove the staged files."""
        staged = [f"{self._staged}/{number:06}" for number in range(slices)]
        self.write(self.spark.read.parquet(*staged))
        HadoopPath(self.spark, self._staged).delete()


def target_of(spark: "SparkSession", plan: ReprocessPlan, write: WriteContext) -> ResultTarget:
    """Return the pipeline's own sink as a target."""
    sink = plan.pipeline.sink
    assert write.run is not None
    match sink:
        case SeveralSinks():
            raise choose_sink(plan.pipeline.name, sink, write.settings)
        case FileSink() | DeltaSink(key=()):
            raise ReprocessError(
                f"The pipeline {plan.pipeline.name} writes to the {sink.describe()}, where results have no key: its "
                "rows would be written a second time. Write the results of a span to a folder with --output PATH."
            )
        case DeltaSink():
            return StagedTarget(spark, sink.locate(write.settings), write.run, lambda rows: sink.correct(rows, write))
        case FunctionSink():
            raise ReprocessError(
                f"The pipeline {plan.pipeline.name} passes its results to a function, batch by batch. Write the "
                "results of a span to a folder with --output PATH."
            )
        case KeyedSink():
            return ImmediateTarget(lambda changes: sink.correct(changes, write))
        case _:  # a sink without keys, such as the console
            return ImmediateTarget(lambda changes: sink.write(changes.select("row.*"), write))


def choose_sink(pipeline: str, sinks: SeveralSinks, settings: Settings) -> ReprocessError:
    """Return the error of a pipeline of several sinks of which none was chosen."""
    return ReprocessError(
        f"The pipeline {pipeline} has several sinks. Choose one with --sink: "
        f"{', '.join(sinks.addresses(settings)) or 'none can be read back'}."
    )


def folder_target(spark: "SparkSession", output: str, run: str) -> ResultTarget:
    """Return a folder as a target: Parquet if its name ends in .parquet, otherwise a Delta table."""
    kind = "parquet" if output.rstrip("/").endswith(".parquet") else "delta"

    def write(rows: "DataFrame") -> None:
        writer = rows.where("value IS NOT NULL").select("row.*").write.format(kind).mode("overwrite")
        (writer.option("overwriteSchema", "true") if kind == "delta" else writer).save(for_spark(output))

    return StagedTarget(spark, output, run, write)


def check_output(output: str) -> None:
    """Raise ReprocessError when a path is not empty; `require_free` checks URLs."""
    if is_occupied(output):
        raise _occupied(output)


def require_free(spark: "SparkSession", output: str) -> None:
    """Raise ReprocessError when a path or URL is not empty, as Spark sees it."""
    if HadoopPath(spark, output).is_occupied():
        raise _occupied(output)


def _occupied(output: str) -> ReprocessError:
    return ReprocessError(
        f"{output} already exists. Name a new folder for the results; or, to resume a run that was stopped while it "
        "wrote there, name the run with --run-id."
    )
