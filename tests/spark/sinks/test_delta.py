"""The modes of a Delta sink: appended once, overwritten by window, with a layout and a schema that may grow."""

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from respool.errors import CheckpointError, PipelineError
from respool.sinks.delta import DeltaSink
from respool.sinks.protocol import WriteContext
from support.sink_stage import NOWHERE, SinkStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEVEN = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)


@pytest.fixture
def stage(spark: "SparkSession", tmp_path: Path) -> SinkStage:
    session = spark.newSession()  # its settings are those of these tests alone
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    return SinkStage(session, tmp_path)


def held(stage: SinkStage, table: str = "out") -> list[Any]:
    return sorted(
        tuple(row) for row in stage.spark.read.format("delta").load(f"{stage.home}/results/{table}").collect()
    )


def write(stage: SinkStage, sink: DeltaSink, batch: int, frame: "DataFrame") -> None:
    sink.write(frame, WriteContext("rows", batch, NOWHERE, stage.settings, query="the query"))


def test_appended_batches_come_once_after_a_crash_and_after_a_rewind(stage: SinkStage) -> None:
    sink = DeltaSink("out", mode="append")
    for batch in range(4):
        stage.feed(batch, [{"id": batch}])
    stage.run(sink)
    stage.forget_commit(3)
    stage.feed(4, [{"id": 4}])
    stage.run(sink)
    assert held(stage) == [(n,) for n in range(5)]

    refused = stage.command("rewind", "--to-batch", "2")
    assert isinstance(refused.exception, CheckpointError)
    assert "silently" in str(refused.exception)
    stage.rewind(2, "--restore-sink")
    assert held(stage) == [(0,), (1,)]
    stage.run(sink)
    assert held(stage) == [(n,) for n in range(5)]


def test_a_window_is_overwritten_as_a_whole(stage: SinkStage) -> None:
    sink = DeltaSink("out", mode="overwrite", overwrite_by="window")

    def totals(hour: int, **shops: int) -> "DataFrame":
        rows = [((SEVEN.replace(hour=hour), SEVEN.replace(hour=hour + 1)), shop, n) for shop, n in shops.items()]
        return stage.spark.createDataFrame(rows, "window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, shop STRING, n INT")

    write(stage, sink, 0, totals(7, Lyon=1, Metz=1).union(totals(8, Lyon=5)))
    write(stage, sink, 1, totals(7, Lyon=2))
    write(stage, sink, 1, totals(7, Lyon=2))  # a replay
    write(stage, sink, 2, totals(9, Lyon=2).limit(0))
    assert [(row[1], row[2]) for row in held(stage)] == [("Lyon", 2), ("Lyon", 5)]


@pytest.mark.parametrize("column", ["text", "day", "number", "amount", "flag"])
def test_groups_of_any_simple_type_are_overwritten(stage: SinkStage, column: str) -> None:
    frame = stage.spark.sql(
        "SELECT * FROM VALUES ('it''s', DATE'2025-01-01', 1L, 1.50BD, true, 1), (NULL, NULL, NULL, NULL, NULL, 2) "
        "AS t(text, day, number, amount, flag, n)"
    )
    sink = DeltaSink("out", mode="overwrite", overwrite_by=column)
    write(stage, sink, 0, frame)
    write(stage, sink, 1, frame.selectExpr("text", "day", "number", "amount", "flag", "n + 10 AS n"))
    assert sorted(row[-1] for row in stage.spark.read.format("delta").load(f"{stage.home}/results/out").collect()) == [
        11,
        12,
    ]


def test_a_group_of_another_type_is_refused(stage: SinkStage) -> None:
    with pytest.raises(PipelineError, match="overwrite_by names `a`"):
        write(stage, DeltaSink("out", mode="overwrite", overwrite_by="a"), 0, stage.spark.sql("SELECT array(1) AS a"))


def test_a_new_table_is_partitioned_or_clustered(stage: SinkStage) -> None:
    frame = stage.spark.sql("SELECT 1 AS id, 'd1' AS day")
    write(stage, DeltaSink("parts", mode="append", partition_by="day"), 0, frame)
    write(stage, DeltaSink("clusters", mode="append", cluster_by=("day", "id")), 0, frame)
    assert DeltaTable(f"{stage.home}/results/parts").metadata().partition_columns == ["day"]
    detail = stage.spark.sql(f"DESCRIBE DETAIL delta.`{stage.home}/results/clusters`").first()
    assert detail is not None
    assert detail.clusteringColumns == ["day", "id"]
    assert held(stage, "clusters") == [(1, "d1")]


@pytest.mark.parametrize(
    "sink",
    [
        DeltaSink("out", key="id", evolve_schema=True),
        DeltaSink("out", mode="append", evolve_schema=True),
        DeltaSink("out", mode="overwrite", overwrite_by="id", evolve_schema=True),
    ],
    ids=lambda sink: sink.mode,
)
def test_new_columns_are_added_when_the_schema_may_change(stage: SinkStage, sink: DeltaSink) -> None:
    write(stage, sink, 0, stage.spark.sql("SELECT 1 AS id"))
    write(stage, sink, 1, stage.spark.sql("SELECT 2 AS id, 'new' AS note"))
    assert sorted(map(str, held(stage))) == ["(1, None)", "(2, 'new')"]


def test_new_columns_are_refused_otherwise(stage: SinkStage) -> None:
    sink = DeltaSink("out", key="id")
    write(stage, sink, 0, stage.spark.sql("SELECT 1 AS id"))
    with pytest.raises(PipelineError, match=r"has no column note.*evolve_schema"):
        write(stage, sink, 1, stage.spark.sql("SELECT 2 AS id, 'new' AS note"))
    assert held(stage) == [(1,)]
