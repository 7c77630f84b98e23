"""How many partitions the state of a new query has: its first batch fixes the number in the checkpoint."""

from typing import TYPE_CHECKING

from respool.pipeline.definition import Pipeline
from respool.spark import cluster
from respool.storage.open import new_writer
from respool.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from respool.spark.cluster import Executor

PARTITIONS = "spark.sql.shuffle.partitions"
_FOR_EACH = 2  # state partitions for a partition of the topic: more tasks than that have little to do


def suggest(cores: int | None, topic_partitions: int) -> int:
    """Return the number of state partitions for a topic.

    Every partition costs a task and a commit in each batch, however few records there are. So there are as many as
    tasks run at once, and at most twice as many as tasks read the topic.

    Args:
        cores: How many tasks run at once; None when that is not limited.
        topic_partitions: How many partitions the topic has.
    """
    most = _FOR_EACH * max(topic_partitions, 1)
    return most if cores is None else max(1, min(cores, most))


def is_given(spark: "SparkSession", pipeline: Pipeline, checkpoint: str) -> bool:
    """Return whether the number is given: by the user, by the pipeline, or by the first batch of the checkpoint."""
    given = PARTITIONS in pipeline.spark or spark.sparkContext.getConf().contains(PARTITIONS)
    return given or bool(new_writer(checkpoint).names("offsets"))


def tasks_at_once(spark: "SparkSession", executors: "Sequence[Executor]") -> int | None:
    """Return how many tasks run at once; None when that is not limited."""
    if cluster.is_cluster(spark):
        return cluster.cores_of(spark, executors)
    return spark.sparkContext.defaultParallelism


def describe(pipeline: Pipeline, chosen: int, cores: int | None, topic_partitions: int) -> str:
    """Return a sentence about a number that was chosen."""
    where = f"{plural(cores, 'core')}, " if cores is not None else ""
    return (
        f"{pipeline.name}: its state is in {plural(chosen, 'partition')} ({where}"
        f"{plural(topic_partitions, 'partition')} of {pipeline.topic}). The checkpoint keeps this number; to choose "
        f"another, set {PARTITIONS} before the first start."
    )
