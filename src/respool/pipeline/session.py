"""The Spark session that a pipeline runs in."""

from typing import TYPE_CHECKING

from respool.pipeline.code_files import code_files
from respool.pipeline.definition import Pipeline
from respool.spark.cluster import is_cluster
from respool.spark.session import session_for
from respool.spark.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_session(spark: "SparkSession", pipeline: Pipeline) -> "SparkSession":
    """Return a new session of the same application for a pipeline; on a cluster, its code is shipped to executors."""
    if is_cluster(spark):
        ship(spark, code_files(pipeline))
    return session_for(spark, pipeline.timezone, pipeline.spark)
