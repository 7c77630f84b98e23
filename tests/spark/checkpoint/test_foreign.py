"""Queries that respool does not run, on a real Spark: a long batch, sources of other kinds, a Delta schema log."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import RewindPlan, plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.savepoint.store import SavepointStore
from respool.storage.local import LocalReader
from respool.storage.local_lock import processes_in
from support.queries import write_files
from support.savepoints import fork, restore, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATER = timedelta(days=1)


def await_(what: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return result


def plan(checkpoint: Path, batch: int, *, stopped: bool = False) -> RewindPlan:
    """Plan a rewind a day later, as of a checkpoint that respool does not run."""
    world = RewindContext(now=datetime.now(timezone.utc) + LATER, processes=processes_in(checkpoint))
    return plan_rewind(
        CheckpointSnapshot(LocalReader(checkpoint)), RewindRequest(ToBatch(batch), stopped=stopped), world
    )


def why(made: RewindPlan) -> str:
    return " | ".join(f"{refusal.why} {refusal.way_out}" for refusal in made.refusals)


@contextmanager
def started(rows: "DataFrame", checkpoint: Path, mode: str = "append") -> "Iterator[StreamingQuery]":
    query = rows.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def test_a_query_inside_a_long_batch_is_not_rewound(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    write_files(tmp_path / "input", range(2))
    release, checkpoint = tmp_path / "release", tmp_path / "checkpoint"
    schema = "key string, id long, amount long, at timestamp"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / "input"))

    @F.udf("string", useArrow=False)
    def waits(key: str) -> str:
        end = time.monotonic() + 120
        while not release.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return key

    counts = rows.groupBy("key").count().select(waits("key"), "count")
    with started(counts, checkpoint, "update") as query:
        await_(lambda: (checkpoint / "offsets" / "0").exists())
        # Spark need not have a file of the checkpoint open meanwhile: the batch without a commit is what can be seen.
        reasons = why(plan(checkpoint, 0))
        assert "Batch 0 is planned but not committed" in reasons
        assert "--stopped" in reasons
        release.touch()
        query.processAllAvailable()
    await_(lambda: not processes_in(checkpoint))
    assert not plan(checkpoint, 1).refusals


def test_the_lines_of_a_socket_cannot_be_replayed(spark: "SparkSession", tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"one\ntwo\nthree\n")
                    connection.settimeout(60)
                    connection.recv(1)  # until the query ends

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        source = spark.readStream.format("socket").option("host", "127.0.0.1")
        with started(source.option("port", server.getsockname()[1]).load(), tmp_path / "checkpoint") as query:
            assert query.isActive
            await_(lambda: list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    thread.join(60)
    made = plan(tmp_path / "checkpoint", 0)
    assert made.readings[0].kind == "number"
    assert "Memory and socket sources cannot be replayed" in why(made)


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> str:
    """A Delta table whose columns can be renamed."""
    path = str(tmp_path / "table")
    properties = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    spark.sql(f"CREATE TABLE delta.`{path}` (a INT, b INT) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    return path


def rows_of(spark: "SparkSession", table: str, checkpoint: Path) -> list[str]:
    """Run a query that tracks the schema of a Delta table until it has read all, and return the rows that it got.

    Delta ends the query where the schema changes; started again, it continues.
    """
    from pyspark.errors import StreamingQueryException

    texts: list[str] = []

    def collect(frame: "DataFrame", _: int) -> None:
        texts.extend(str(row.asDict()) for row in frame.collect())

    for _ in range(5):
        rows = spark.readStream.format("delta").option("schemaTrackingLocation", str(checkpoint)).load(table)
        writer = rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        with suppress(StreamingQueryException):
            query.awaitTermination(120)
            return texts
        if "METADATA_EVOLUTION" not in str(query.exception()):
            raise AssertionError(query.exception())
    raise AssertionError("the schema changes with every start")


def test_a_restored_and_a_forked_query_find_the_schemas_that_a_delta_source_tracks(
    spark: "SparkSession", tmp_path: Path, table: str
) -> None:
    checkpoint, other = tmp_path / "checkpoint", tmp_path / "other"
    assert rows_of(spark, table, checkpoint) == ["{'a': 1, 'b': 2}"]
    assert list(checkpoint.glob("_schema_log_*/0"))
    saved = save(checkpoint, SavepointStore(str(tmp_path / "store")))
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (3, 4)")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN b TO c")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (5, 6)")
    shutil.rmtree(checkpoint)
    restore(saved, checkpoint)
    fork(saved, other)
    spark.conf.set("spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop", "always")
    try:
        for folder in (checkpoint, other):
            assert rows_of(spark, table, folder) == ["{'a': 3, 'b': 4}", "{'a': 5, 'c': 6}"]
    finally:
        spark.conf.unset("spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop")
