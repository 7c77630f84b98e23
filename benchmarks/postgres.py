"""Postgres: rows upserted into a table of PostgreSQL by the sink, each batch in one transaction.

Every second batch inserts new keys, and the batch after it replaces them. The server runs on this machine and shares
its cores.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import postgres_server
from benchmarks.postgres_server import PASSWORD, PostgresServer
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.postgres.sink import JdbcSink
from respool.sinks.protocol import WriteContext
from respool.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VARIABLE = "RESPOOL_BENCH_PASSWORD"
_ROWS = 200_000  # of a batch


def measure_all(home: Path, runs: int, rows_of_batch: int = _ROWS) -> list[dict[str, Any]]:
    """Return a row for each batch, after a warm-up; raise PostgresMissing when there is no PostgreSQL."""
    os.environ[_VARIABLE] = PASSWORD
    try:
        with postgres_server.running() as server, spark_session(Settings(home=home, master="local[2]")) as spark:
            sink = JdbcSink(server.url, "totals", key=("shop", "day"), password_env=_VARIABLE)
            return [
                {"run": run, "does": does, **_batch(spark, sink, server, 2 * run + at, rows_of_batch)}
                for run in range(runs + 1)
                for at, does in enumerate(("insert", "update"))
            ][2:]
    finally:
        del os.environ[_VARIABLE]


def _batch(spark: "SparkSession", sink: JdbcSink, server: PostgresServer, batch: int, rows: int) -> dict[str, Any]:
    frame = _totals(spark, batch, rows)
    write = WriteContext("totals", batch, KafkaCluster("nowhere:1"), Settings(), query="bench")
    before = time.monotonic()
    sink.write(frame, write)
    seconds = time.monotonic() - before
    written = server.rows(f"SELECT count(*) FROM totals WHERE batch = {batch}")[0][0]  # noqa: S608  (a number)
    status = "right" if written == rows else "wrong"
    return {"status": status, "rows": rows, "seconds": round(seconds, 3), "load": round(os.getloadavg()[0], 2)}


def _totals(spark: "SparkSession", batch: int, rows: int) -> "DataFrame":
    first = batch // 2 * rows  # an update has the keys of the insert before it
    return spark.range(first, first + rows).selectExpr(
        "concat('shop ', id % 1000) AS shop",
        "date_add(DATE'2000-01-01', CAST(id DIV 1000 AS INT)) AS day",
        "rand() * 1000 AS total",
        "id * 7 AS orders",
        "timestamp_micros(id * 1000000) AS last",
        f"{batch} AS batch",
    )
