"""The path of a record, on a real Spark."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.running.dataflow import start_query
from respool.sinks.console import ConsoleSink
from respool.spark.failures import innermost_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = Pipeline("rate", "none", transform=lambda rows: rows, sink=ConsoleSink())


def rate(spark: "SparkSession", name: str, each: Input) -> "DataFrame":
    return spark.readStream.format("rate").load()


def test_a_query_that_is_stopped_within_a_batch_prints_no_stack_trace(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark overflows its stack when it looks for an interruption in a long error."""
    writing = threading.Event()

    def write_slowly(rows: "DataFrame", batch: int) -> None:
        slow = spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', CAST(60000 AS BIGINT))")
        writing.set()
        slow.write.format("noop").mode("overwrite").save()

    query = start_query(spark, PIPELINE, rate, write_slowly, str(tmp_path / "checkpoint"))
    assert writing.wait(60)
    query.stop()
    assert query.exception() is None
    assert "StackOverflowError" not in capfd.readouterr().err


def test_a_long_java_error_still_names_its_cause(spark: "SparkSession", tmp_path: Path) -> None:
    def fail(rows: "DataFrame", batch: int) -> None:
        jvm = spark._jvm
        assert jvm is not None
        deep = jvm.java.lang.IllegalStateException("no such shop")
        jvm.java.util.concurrent.CompletableFuture.failedFuture(deep).get()

    query = start_query(spark, PIPELINE, rate, fail, str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="no such shop") as failed:
        query.awaitTermination(60)
    assert "no such shop" in innermost_message(str(failed.value))
