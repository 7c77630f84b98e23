"""Several sinks of one computation: a batch is computed once, and each sink is as safe as it is alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.sinks.console import FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.files import FileSink
from respool.sinks.protocol import WriteContext
from respool.sinks.several import SeveralSinks
from support.sink_stage import NOWHERE, SinkStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def stage(spark: "SparkSession", tmp_path: Path) -> SinkStage:
    session = spark.newSession()  # its settings are those of these tests alone
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    made = SinkStage(session, tmp_path)
    for batch in range(3):
        made.feed(batch, [{"id": batch * 2}, {"id": batch * 2 + 1}])
    return made


@dataclass
class Crash:
    """A function that fails once, as a crash between two sinks."""

    at: int

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        if batch == self.at:
            self.at = -1
            raise RuntimeError("a crash between two sinks")


def appended(stage: SinkStage) -> list[int]:
    return sorted(row.id for row in stage.spark.read.format("delta").load(f"{stage.home}/results/table").collect())


def filed(stage: SinkStage) -> list[int]:
    return sorted(row.id for row in stage.spark.read.parquet(f"{stage.home}/results/files").collect())


@pytest.mark.parametrize("batch", [0, 2])
def test_a_crash_between_two_sinks_is_replayed_to_both(stage: SinkStage, batch: int) -> None:
    from pyspark.errors import StreamingQueryException

    crash = FunctionSink(Crash(batch), "fails")
    sinks = (DeltaSink("table", mode="append"), crash, FileSink("files"))
    with pytest.raises(StreamingQueryException, match="a crash between two sinks"):
        stage.run(*sinks)
    assert appended(stage) == list(range(batch * 2 + 2))
    stage.run(*sinks)
    assert (appended(stage), filed(stage)) == (list(range(6)), list(range(6)))
    stage.feed(3, [{"id": 0}, {"id": 9}])  # the state has each id
    stage.run(*sinks)
    assert (appended(stage), filed(stage)) == ([*range(6), 9], [*range(6), 9])


def test_a_batch_is_computed_once(stage: SinkStage) -> None:
    from pyspark.sql import functions as F

    computed = stage.spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        computed.add(1)
        return value

    counted = F.udf(count, "int", useArrow=False).asNondeterministic()
    frames: list[int] = []

    def collect(rows: "DataFrame", batch: int) -> None:
        frames.append(len(rows.collect()))

    functions = (FunctionSink(collect, "first"), FunctionSink(collect, "second"))
    sinks = SeveralSinks((*functions, DeltaSink("table", key="id")))
    rows = stage.spark.range(10).select(counted(F.col("id").cast("int")).alias("id"))
    sinks.write(rows, WriteContext("rows", 0, NOWHERE, stage.settings, query="the query"))
    assert frames == [10, 10]
    assert computed.value == 10
    assert appended(stage) == list(range(10))


def test_a_rewind_restores_every_sink_that_records_batches(stage: SinkStage) -> None:
    sinks = (DeltaSink("table", mode="append"), FileSink("files"), DeltaSink("keyed", key="id"))
    stage.run(*sinks)
    refused = stage.command("rewind", "--to-batch", "1")
    assert "Delta table" in str(refused.exception)
    assert "The folder" in str(refused.exception)
    stage.rewind(1, "--restore-sink")
    assert (appended(stage), filed(stage)) == ([0, 1], [0, 1])
    stage.run(*sinks)
    assert (appended(stage), filed(stage)) == (list(range(6)), list(range(6)))
    assert stage.spark.read.format("delta").load(f"{stage.home}/results/keyed").count() == 6
