"""Where the results of a run go: to the pipeline's own sink, or to a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from respool.errors import ReprocessError
from respool.reprocess.plan import ReprocessPlan
from respool.sinks.console import FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.protocol import KeyedSink, WriteContext
from respool.spark.files import is_occupied, is_occupied_for
from respool.spark.internals import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ResultTarget(Protocol):
    """A place for the results of a run, slice by slice."""

    def take(self, number: int, changes: "DataFrame") -> None:
        """Take the results of a slice; taken again, they take the place of the first ones."""
        ...

    def finish(self, slices: int) -> None:
        """All slices were taken."""
        ...


@dataclass(frozen=True)
class ImmediateTarget:
    """A sink that is told at once.

    Attributes:
        tell: Tells it.
    """

    tell: "Callable[[DataFrame], None]"

    def take(self, number: int, changes: "DataFrame") -> None:
        """Tell the results of a slice."""
        self.tell(changes)

    def finish(self, slices: int) -> None:
        """Nothing is left to do."""


@dataclass(frozen=True)
class StagedTarget:
    """A table or folder that gets all results in one go: until then they are kept beside it.

    Attributes:
        spark: The pipeline's session.
        folder: The table's path or URL.
        run: The run's id.
        write: Takes all results.
    """

    spark: "SparkSession"
    folder: str
    run: str
    write: "Callable[[DataFrame], None]"

    @property
    def _ready(self) -> str:
        return f"{self.folder.rstrip('/')}._respool-{self.run}"  # to overwrite a folder is to remove all in it

    def take(self, number: int, changes: "DataFrame") -> None:
        """Keep the results of a slice."""
        changes.write.mode("overwrite").parquet(f"{self._ready}/{number:06}")

    def finish(self, slices: int) -> None:
        """Write all results in one commit, and remove what was kept."""
        ready = [f"{self._ready}/{number:06}" for number in range(slices)]
        self.write(self.spark.read.parquet(*ready))
        HadoopPath(self.spark, self._ready).delete()


def target_of(spark: "SparkSession", plan: ReprocessPlan, write: WriteContext) -> ResultTarget:
    """Return the pipeline's own sink as a target."""
    sink = plan.pipeline.sink
    assert write.run is not None
    match sink:
        case DeltaSink():
            return StagedTarget(spark, sink.locate(write.home), write.run, lambda rows: sink.correct(rows, write))
        case FunctionSink():
            raise ReprocessError(
                f"The pipeline {plan.pipeline.name} hands its results to a function, batch by batch. Write those of a "
                "span to a folder with --output PATH."
            )
        case KeyedSink():
            return ImmediateTarget(lambda changes: sink.correct(changes, write))
        case _:  # one that knows no keys, such as the console
            return ImmediateTarget(lambda changes: sink.write(changes.select("row.*"), write))


def folder_target(spark: "SparkSession", output: str, run: str) -> ResultTarget:
    """Return a folder as a target: Parquet when its name says so, else a Delta table."""
    kind = "parquet" if output.rstrip("/").endswith(".parquet") else "delta"

    def write(rows: "DataFrame") -> None:
        found = rows.where("value IS NOT NULL").select("row.*")
        writer = found.write.format(kind).mode("overwrite")
        (writer.option("overwriteSchema", "true") if kind == "delta" else writer).save(output)

    return StagedTarget(spark, output, run, write)


def check_output(output: str) -> None:
    """Raise ReprocessError when something is there already; a URL is left to `require_free`."""
    if is_occupied(output):
        raise _occupied(output)


def require_free(spark: "SparkSession", output: str) -> None:
    """Raise ReprocessError when something is at a path or URL already, as Spark sees it."""
    if is_occupied_for(spark, output):
        raise _occupied(output)


def _occupied(output: str) -> ReprocessError:
    return ReprocessError(
        f"{output} is there already. Name a new folder for the results; or, to go on with a run that was stopped while "
        "it wrote there, name it with --run-id."
    )
