"""What a run changes in its pipelines; and how many partitions the state of a new query has."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.errors import PipelineError
from respool.locations import canonical_location, local_path
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from respool.sinks.console import ConsoleSink
from respool.sinks.protocol import ForkableSink
from respool.spark import cluster
from respool.storage.open import new_writer
from respool.text import plural
from respool.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from respool.spark.cluster import Executor


_BOUNDED = timedelta(minutes=5)  # how long a run that ends on its own waits for Kafka by default


@dataclass(frozen=True)
class RunOptions:
    """What a run changes in its pipelines.

    Attributes:
        available_now: Process the available records, then stop.
        trigger: The time from batch to batch, in place of the pipeline's own.
        max_offsets_per_trigger: How many records a batch reads at most, in place of the pipeline's own.
        checkpoint: The checkpoint's folder or URL, in place of the default under the home; for a single pipeline.
        console: Print the results in place of writing them to the pipeline's sink.
        sink_suffix: Write to a topic or table whose name is that of the pipeline's own with this suffix.
        dead_letter: Write rejected records to the topic `<topic>-rejected`.
        timezone: The zone of all pipelines, in place of their own.
        give_up_after: How long a query may fail for a transient cause before it counts as failed. None waits for ever,
            or 5 minutes with `available_now`.
        fail_fast: Stop all pipelines when one has failed.
        stop_within: How long a running batch may last after a request to stop, before it is interrupted; None for ever.
    """

    available_now: bool = False
    trigger: timedelta | None = None
    max_offsets_per_trigger: int | None = None
    checkpoint: str | None = None
    console: bool = False
    dead_letter: bool = True
    timezone: str | None = None
    sink_suffix: str | None = None
    give_up_after: timedelta | None = None
    fail_fast: bool = False
    stop_within: timedelta | None = None

    @property
    def patience(self) -> timedelta | None:
        """How long to wait for a transient cause to pass; None for ever."""
        if self.give_up_after is None and self.available_now:
            return _BOUNDED
        return self.give_up_after

    def checkpoint_of(self, pipeline: Pipeline, settings: Settings) -> str:
        """Return the checkpoint's folder or URL of a pipeline in this run."""
        if self.checkpoint and not pipeline.is_companion:
            is_local = local_path(self.checkpoint) is not None
            return self.checkpoint if is_local else canonical_location(self.checkpoint)
        return settings.checkpoint_of(pipeline.name)

    def trigger_of(self, pipeline: Pipeline) -> dict[str, bool | str]:
        """Return the trigger of a pipeline in this run, as arguments of Spark's `trigger`."""
        if self.available_now:
            return {"availableNow": True}
        interval = self.trigger
        if interval is None:
            interval = parse_duration(pipeline.trigger) if pipeline.trigger else timedelta(0)
        return {"processingTime": f"{int(interval.total_seconds() * 1000)} milliseconds"}

    def apply(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline as this run changes it."""
        changed = replace(pipeline, timezone=self.timezone) if self.timezone else pipeline
        if self.sink_suffix:
            if not isinstance(pipeline.sink, ForkableSink):
                raise PipelineError(
                    f"The pipeline {pipeline.name} writes to {pipeline.sink.describe()}, which cannot take a suffix. "
                    "Leave --sink-suffix out, or print the results with --console."
                )
            changed = replace(changed, sink=pipeline.sink.with_suffix(self.sink_suffix))
        return replace(changed, sink=ConsoleSink()) if self.console else changed


PARTITIONS = "spark.sql.shuffle.partitions"
_FOR_EACH = 2  # state partitions for a partition of the topic: more tasks than that have little to do


def suggested_partitions(cores: int | None, topic_partitions: int) -> int:
    """Return the number of state partitions for a topic.

    Every partition costs a task and a commit in each batch, however few records there are. So there are as many as
    tasks run at once, and at most twice as many as tasks read the topic.

    Args:
        cores: How many tasks run at once; None when that is not limited.
        topic_partitions: How many partitions the topic has.
    """
    most = _FOR_EACH * max(topic_partitions, 1)
    return most if cores is None else max(1, min(cores, most))


def has_partitions(spark: "SparkSession", pipeline: Pipeline, checkpoint: str) -> bool:
    """Return whether the number is given: by the user, by the pipeline, or by the first batch of the checkpoint."""
    given = PARTITIONS in pipeline.spark or spark.sparkContext.getConf().contains(PARTITIONS)
    return given or bool(new_writer(checkpoint).names("offsets"))


def tasks_at_once(spark: "SparkSession", executors: "Sequence[Executor]") -> int | None:
    """Return how many tasks run at once; None when that is not limited."""
    if cluster.is_cluster(spark):
        return cluster.cores_of(spark, executors)
    return spark.sparkContext.defaultParallelism


def partitions_note(pipeline: Pipeline, chosen: int, cores: int | None, topic_partitions: int) -> str:
    """Return a sentence about a number that was chosen."""
    where = f"{plural(cores, 'core')}, " if cores is not None else ""
    return (
        f"{pipeline.name}: its state is in {plural(chosen, 'partition')} ({where}"
        f"{plural(topic_partitions, 'partition')} of {pipeline.topic}). The checkpoint keeps this number; to choose "
        f"another, set {PARTITIONS} before the first start."
    )
