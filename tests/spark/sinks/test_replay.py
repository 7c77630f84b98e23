"""Rewind queries with sinks that remember batches, and run them again: no row is skipped or duplicated."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from respool.cli.app import app
from respool.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Respool = Callable[..., Result]
_CONF = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}


@pytest.fixture
def checkpoint_command(tmp_path: Path) -> Respool:
    """Runs `respool checkpoint` on the query's checkpoint."""

    def run(command: str, *words: str) -> Result:
        line = ["checkpoint", command, str(tmp_path / "checkpoint"), *words, "--yes"]
        return CliRunner().invoke(app, [*line, "--stopped"] if command == "rewind" else line)

    return run


def succeed(done: Result) -> None:
    assert done.exception is None, done.output


def refusal(done: Result) -> str:
    assert isinstance(done.exception, CheckpointError), done.output
    return " ".join(done.output.split())


def feed(home: Path, *batches: int) -> None:
    """Put one file for each batch: five new rows, and one of an earlier file."""
    (home / "in").mkdir(exist_ok=True)
    for batch in batches:
        ids = [*range(batch * 5, batch * 5 + 5), max(0, batch * 5 - 3)]
        file = home / "in" / f"{batch:04}.json"
        file.write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in ids))
        os.utime(file, (1_757_000_000 + batch,) * 2)


def run(spark: "SparkSession", home: Path, write: "Callable[[DataStreamWriter], DataStreamWriter]") -> None:
    """Run the query until its input ends, one file a batch: each id once, which takes state."""
    stream = spark.readStream.schema("id INT").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    writer = stream.dropDuplicates(["id"]).writeStream
    query = write(writer.option("checkpointLocation", str(home / "checkpoint")))
    query.trigger(availableNow=True).start().awaitTermination()


def to_delta(home: Path) -> "Callable[[DataStreamWriter], DataStreamWriter]":
    return lambda writer: writer.format("delta").option("path", str(home / "table"))


def session(spark: "SparkSession", conf: Mapping[str, str] | None = None) -> "SparkSession":
    own = spark.newSession()
    for name, value in {**_CONF, **(conf or {})}.items():
        own.conf.set(name, value)
    return own


def delta_ids(spark: "SparkSession", home: Path) -> list[int]:
    return sorted(row[0] for row in spark.read.format("delta").load(str(home / "table")).select("id").collect())


def query_id(home: Path) -> str:
    return str(json.loads((home / "checkpoint" / "metadata").read_text())["id"])


def test_a_delta_table_follows_its_query(spark: "SparkSession", tmp_path: Path, checkpoint_command: Respool) -> None:
    spark, sink = session(spark), ("--sink", f"delta:{tmp_path}/table")
    feed(tmp_path, *range(3))
    run(spark, tmp_path, to_delta(tmp_path))
    name, everything = query_id(tmp_path), list(range(15))
    assert delta_ids(spark, tmp_path) == everything

    message = refusal(checkpoint_command("rewind", "--to-batch", "1", *sink))
    assert "would skip batches 1 to 2" in message
    assert "--restore-sink" in message

    succeed(checkpoint_command("rewind", "--to-batch", "1", *sink, "--restore-sink"))
    assert delta_ids(spark, tmp_path) == list(range(5))
    succeed(checkpoint_command("undo"))
    run(spark, tmp_path, to_delta(tmp_path))  # as if nothing had happened: nothing to do
    assert delta_ids(spark, tmp_path) == everything

    for batch in (2, 0):  # the second rewind goes behind the first; batch 0 made the table
        succeed(checkpoint_command("rewind", "--to-batch", str(batch), *sink, "--restore-sink"))
        run(spark, tmp_path, to_delta(tmp_path))
        assert delta_ids(spark, tmp_path) == everything
    assert query_id(tmp_path) == name


def test_a_delta_table_that_spark_restores(spark: "SparkSession", tmp_path: Path, checkpoint_command: Respool) -> None:
    """The alternative where respool cannot write the table; and a later rewind to a batch under the older id."""
    spark, sink = session(spark), ("--sink", f"delta:{tmp_path}/table")
    table = f"delta.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {table} (id INT) USING delta TBLPROPERTIES ('delta.enableRowTracking'='true')")
    feed(tmp_path, *range(2))
    run(spark, tmp_path, to_delta(tmp_path))
    message = refusal(checkpoint_command("rewind", "--to-batch", "1", *sink, "--restore-sink"))
    assert "RESTORE TABLE … TO VERSION AS OF 1 in Spark" in message
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    old = query_id(tmp_path)
    succeed(checkpoint_command("rewind", "--to-batch", "1", *sink, "--new-query-id"))
    assert query_id(tmp_path) != old
    run(spark, tmp_path, to_delta(tmp_path))
    assert delta_ids(spark, tmp_path) == list(range(10))

    message = refusal(checkpoint_command("rewind", "--to-batch", "0", *sink, "--restore-sink"))
    assert "RESTORE TABLE … TO VERSION AS OF 0 in Spark" in message  # before batch 0, under the older id


def test_a_function_that_writes_delta_under_its_own_app_id(
    spark: "SparkSession", tmp_path: Path, checkpoint_command: Respool
) -> None:
    def append(frame: "DataFrame", batch: int) -> None:
        writer = frame.write.format("delta").mode("append").option("txnAppId", "mine").option("txnVersion", batch)
        writer.save(str(tmp_path / "table"))

    spark = session(spark)
    feed(tmp_path, *range(2))
    run(spark, tmp_path, lambda writer: writer.foreachBatch(append))
    sink = ("--sink", f"delta:{tmp_path}/table?txnAppId=mine")
    assert "would skip batches 1 to 1" in refusal(checkpoint_command("rewind", "--to-batch", "1", *sink))
    succeed(checkpoint_command("rewind", "--to-batch", "1", *sink, "--restore-sink"))
    assert delta_ids(spark, tmp_path) == list(range(5))
    run(spark, tmp_path, lambda writer: writer.foreachBatch(append))
    assert delta_ids(spark, tmp_path) == list(range(10))


def to_files(home: Path) -> "Callable[[DataStreamWriter], DataStreamWriter]":
    return lambda writer: writer.format("json").option("path", str(home / "out"))


def file_ids(spark: "SparkSession", home: Path) -> list[int]:
    """Return what Spark sees; whoever else looks into the folder sees the same."""
    seen = sorted(row[0] for row in spark.read.json(str(home / "out")).select("id").collect())
    lines = [line for file in (home / "out").glob("part-*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == seen
    return seen


def test_a_file_sink_follows_its_query(spark: "SparkSession", tmp_path: Path, checkpoint_command: Respool) -> None:
    spark = session(spark, {"spark.sql.streaming.fileSink.log.compactInterval": "2"})
    sink = ("--sink", f"files:{tmp_path}/out")
    feed(tmp_path, *range(4))
    run(spark, tmp_path, to_files(tmp_path))
    everything = list(range(20))
    assert file_ids(spark, tmp_path) == everything
    assert {"1.compact", "3.compact"} <= set(os.listdir(tmp_path / "out" / "_spark_metadata"))
    assert "would skip batches 3 to 3" in refusal(checkpoint_command("rewind", "--to-batch", "3", *sink))

    succeed(checkpoint_command("rewind", "--to-batch", "3", *sink, "--restore-sink"))
    assert file_ids(spark, tmp_path) == list(range(15))
    succeed(checkpoint_command("undo"))
    run(spark, tmp_path, to_files(tmp_path))
    assert file_ids(spark, tmp_path) == everything

    for batch in (3, 1):  # after a compacted entry, and before any
        succeed(checkpoint_command("rewind", "--to-batch", str(batch), *sink, "--restore-sink"))
        run(spark, tmp_path, to_files(tmp_path))
        assert file_ids(spark, tmp_path) == everything
