"""Pipelines that read no Kafka, run as a user runs them: without a broker."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool
from respool import (
    BrokerError,
    CheckpointError,
    DeltaSink,
    DeltaSource,
    FileSource,
    FunctionSink,
    Input,
    KafkaSink,
    Pipeline,
    RateSource,
    Settings,
    SparkSource,
)
from respool.checkpoint.ownership import read_run_record
from respool.storage.open import open_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LYON, OSLO = {"shop": "Lyon", "amount": 2.5}, {"shop": "Oslo", "amount": 1.0}
SALES = "shop STRING, amount DOUBLE"


@pytest.fixture
def here(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a home without a broker."""
    return replace(settings, home=tmp_path / "home")


class Rows(list[dict[str, Any]]):
    """The rows of each batch, as a sink."""

    def sink(self) -> FunctionSink:
        return FunctionSink(lambda frame, batch: self.extend(row.asDict() for row in frame.collect()), "a list")

    def take(self) -> list[dict[str, Any]]:
        taken = sorted(self, key=str)
        self.clear()
        return taken


@pytest.fixture
def rows() -> Rows:
    return Rows()


def run(spark: "SparkSession", settings: Settings, pipeline: Pipeline) -> None:
    respool.run(pipeline, available_now=True, settings=settings, spark=spark)


def add(folder: Path, name: str, *values: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("".join(json.dumps(value) + "\n" for value in values))


def test_files_are_read_as_they_appear_and_each_once(
    spark: "SparkSession", here: Settings, rows: Rows, tmp_path: Path
) -> None:
    pipeline = Pipeline("files", source=FileSource(str(tmp_path / "in"), SALES, format="json"), sink=rows.sink())
    add(tmp_path / "in", "a", LYON)
    run(spark, here, pipeline)
    assert rows.take() == [LYON]
    add(tmp_path / "in", "b", OSLO)
    run(spark, here, pipeline)
    assert rows.take() == [OSLO]
    record = read_run_record(open_reader(here.checkpoint_of("files")))
    assert record is not None
    assert record.topic == f"json files in {tmp_path / 'in'}"


def test_a_delta_table_is_read_as_rows_and_as_changes(
    spark: "SparkSession", here: Settings, rows: Rows, tmp_path: Path
) -> None:
    table = str(tmp_path / "sales")
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({SALES}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.createDataFrame([("Lyon", 2.5)], SALES).write.format("delta").mode("append").save(table)
    run(spark, here, Pipeline("rows", source=DeltaSource(table), sink=rows.sink()))
    assert rows.take() == [LYON]

    changes = Pipeline(
        "changes",
        source=DeltaSource(table, change_feed=True, starting=2),
        transform=lambda feed: feed.select("shop", "_change_type", "_commit_version"),
        sink=rows.sink(),
    )
    spark.sql(f"UPDATE delta.`{table}` SET amount = 3.0")
    run(spark, here, changes)
    assert [(row["_change_type"], row["_commit_version"]) for row in rows.take()] == [
        ("update_postimage", 2),
        ("update_preimage", 2),
    ]


def test_a_static_table_is_joined_as_it_is_when_a_batch_runs(
    spark: "SparkSession", here: Settings, rows: Rows, tmp_path: Path
) -> None:
    shops = str(tmp_path / "shops")
    spark.createDataFrame([("Lyon", "3e")], "shop STRING, district STRING").write.format("delta").save(shops)

    def located(sales: "DataFrame", shops: "DataFrame") -> "DataFrame":
        return sales.join(shops, "shop").select("shop", "district")

    sales = Input(FileSource(str(tmp_path / "in"), SALES, format="json"))
    pipeline = Pipeline(
        "located",
        inputs={"sales": sales, "shops": Input(DeltaSource(shops), static=True)},
        transform=located,
        sink=rows.sink(),
    )
    add(tmp_path / "in", "a", LYON, OSLO)
    run(spark, here, pipeline)
    assert rows.take() == [{"shop": "Lyon", "district": "3e"}]
    spark.createDataFrame([("Oslo", "Frogner")], "shop STRING, district STRING").write.format("delta").mode(
        "append"
    ).save(shops)
    add(tmp_path / "in", "b", OSLO)
    run(spark, here, pipeline)
    assert rows.take() == [{"shop": "Oslo", "district": "Frogner"}]


def test_generated_rows_are_the_same_when_a_rewind_replays_them(
    spark: "SparkSession", here: Settings, rows: Rows
) -> None:
    pipeline = Pipeline("rate", source=RateSource(3, advance="1 minute"), sink=rows.sink())
    run(spark, here, pipeline)
    first = rows.take()
    assert [row["value"] for row in first] == [0, 1, 2]
    respool.Checkpoint("rate", settings=here).rewind(to_batch=0)
    run(spark, here, pipeline)
    assert rows.take()[:3] == first


def test_any_source_of_spark(spark: "SparkSession", here: Settings, rows: Rows, tmp_path: Path) -> None:
    add(tmp_path / "in", "a", LYON)
    source = SparkSource("json", {"path": str(tmp_path / "in")}, schema=SALES)
    run(spark, here, Pipeline("any", source=source, sink=rows.sink()))
    assert rows.take() == [LYON]


def test_without_a_broker_a_kafka_sink_is_refused_and_another_source_is_too(
    spark: "SparkSession", here: Settings, rows: Rows, tmp_path: Path
) -> None:
    source = FileSource(str(tmp_path / "in"), SALES, format="json")
    with pytest.raises(BrokerError, match="No broker runs for the home"):
        run(spark, here, Pipeline("files", source=source, sink=KafkaSink("t", key=("shop",))))
    add(tmp_path / "in", "a", LYON)
    run(spark, here, Pipeline("files", source=source, sink=DeltaSink("sales", key=("shop",))))
    with pytest.raises(CheckpointError, match="belongs to the pipeline files, which reads json files"):
        run(spark, here, Pipeline("files", source=RateSource(), sink=rows.sink()))
