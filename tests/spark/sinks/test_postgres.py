"""A pipeline into a real PostgreSQL: types, crashes, rewinds, and what is read back."""

import uuid
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.postgres_server import PASSWORD, PostgresServer
from respool.errors import PipelineError
from respool.sinks.postgres.sink import JdbcSink, recorded_batches
from respool.sinks.protocol import WriteContext
from support.sink_stage import NOWHERE, SinkStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One column for each type of Spark, with a value that a careless conversion would change.
TYPES = (
    "1 AS id",
    "'a \"b\", c\\n\\\\N' AS text",
    "'' AS empty",
    "CAST(NULL AS STRING) AS nothing",
    "true AS flag",
    "CAST(-5 AS TINYINT) AS tiny",
    "CAST(-300 AS SMALLINT) AS small",
    "9007199254740993L AS big",
    "CAST(0.1 AS FLOAT) AS single",
    "0.1D AS precise",
    "CAST('NaN' AS DOUBLE) AS nan",
    "CAST('-Infinity' AS DOUBLE) AS infinite",
    "12345678901234567890.123456789BD AS amount",
    "DATE'2025-03-30' AS day",
    "TIMESTAMP'2025-03-30T02:30:00.123456Z' AS at",
    "TIMESTAMP_NTZ'2025-03-30 02:30:00.000001' AS local",
    "X'00FF5C27' AS bytes",
    "struct(TIMESTAMP'2025-03-30T01:00:00Z' AS start, 'é' AS name) AS nested",
    "array(1, NULL, 3) AS list",
    "map('k', 1.5D) AS dictionary",
)


@pytest.fixture
def stage(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkStage:
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    session = spark.newSession()  # its settings are those of these tests alone
    session.conf.set("spark.sql.shuffle.partitions", "1")
    return SinkStage(session, tmp_path, "id INT, n INT, gone BOOLEAN")


@pytest.fixture
def sink(postgres: PostgresServer) -> JdbcSink:
    return JdbcSink(postgres.url, f"t_{uuid.uuid4().hex[:8]}", key="id", withdrawn="gone", password_env="TEST_PASSWORD")


def held(postgres: PostgresServer, sink: JdbcSink) -> list[Any]:
    return postgres.rows(f"SELECT id, n FROM {sink.table} ORDER BY id")


def context(stage: SinkStage, batch: int | None = 0) -> WriteContext:
    return WriteContext("rows", batch, NOWHERE, stage.settings, query="the query" if batch is not None else None)


def test_a_replay_after_a_crash_changes_nothing_and_a_replay_after_a_rewind_is_written(
    stage: SinkStage, postgres: PostgresServer, sink: JdbcSink
) -> None:
    for batch in range(3):
        stage.feed(batch, [{"id": batch, "n": batch}])
    stage.run(sink)
    with postgres.connect() as connection:
        connection.execute(f"UPDATE {sink.table} SET n = 99".encode())
    stage.forget_commit(2)
    stage.run(sink)
    assert held(postgres, sink) == [(0, 99), (1, 99), (2, 99)]

    stage.rewind(1)
    stage.run(sink)
    assert held(postgres, sink) == [(0, 99), (1, 1), (2, 2)]
    stage.forget_commit(2)
    stage.feed(3, [{"id": 3, "n": 3}])
    stage.run(sink)
    assert held(postgres, sink) == [(0, 99), (1, 1), (2, 2), (3, 3)]


def test_a_withdrawn_result_is_deleted(stage: SinkStage, postgres: PostgresServer, sink: JdbcSink) -> None:
    frame = stage.spark.createDataFrame([(1, 1, False), (2, 2, None)], stage.schema)
    sink.write(frame, context(stage))
    sink.write(stage.spark.createDataFrame([(1, 1, True), (3, 3, True)], stage.schema), context(stage, 1))
    assert held(postgres, sink) == [(2, 2)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_is_read_back_as_it_was_written(
    stage: SinkStage, postgres: PostgresServer, sink: JdbcSink, zone: str
) -> None:
    session = stage.spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    frame = session.range(1).selectExpr(*TYPES)
    sink = replace(sink, withdrawn=None)
    sink.write(frame, context(stage))
    columns = "amount, day, at, local::text, bytes, nested->>'start', list::text"
    assert postgres.rows(f"SELECT {columns} FROM {sink.table}") == [
        (
            Decimal("12345678901234567890.123456789"),
            date(2025, 3, 30),
            datetime(2025, 3, 30, 2, 30, 0, 123456, timezone.utc),
            "2025-03-30 02:30:00.000001",
            b"\x00\xff\x5c\x27",
            "2025-03-30T01:00:00.000Z",
            "[1, null, 3]",
        )
    ]
    published = sink.published(session, context(stage, None), frame.schema).collect()
    expected = sink.render(frame).collect()
    assert [(row.key, row.value) for row in published] == [(row.key, row.value) for row in expected]


def test_corrections_replace_and_delete_rows(stage: SinkStage, postgres: PostgresServer, sink: JdbcSink) -> None:
    sink.write(stage.spark.createDataFrame([(1, 1, False), (2, 2, False)], stage.schema), context(stage))
    changed = sink.render(stage.spark.createDataFrame([(1, 7, False), (2, 2, True)], stage.schema))
    sink.correct(changed, context(stage, None))
    assert held(postgres, sink) == [(1, 7)]
    assert recorded_batches(sink.place, ("the query",)) == {"the query": 0}


def test_a_table_that_was_never_written_holds_nothing(stage: SinkStage, sink: JdbcSink) -> None:
    schema = stage.spark.createDataFrame([], stage.schema).schema
    assert sink.published(stage.spark, context(stage, None), schema).collect() == []


def test_a_type_without_a_counterpart_is_refused(stage: SinkStage, sink: JdbcSink) -> None:
    with pytest.raises(PipelineError, match="The column span has the type interval"):
        sink.write(stage.spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS span"), context(stage))


def test_the_password_is_not_in_the_plan_of_a_rewind(stage: SinkStage, sink: JdbcSink) -> None:
    for batch in range(2):
        stage.feed(batch, [{"id": batch, "n": batch}])
    stage.run(sink)
    done = stage.rewind(1)
    files = [path.read_bytes() for path in (stage.checkpoint / "_respool").rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in data for data in [done.output.encode(), *files])


def test_a_time_of_summer_is_kept(stage: SinkStage, postgres: PostgresServer, sink: JdbcSink) -> None:
    frame = stage.spark.sql("SELECT 1 AS id, 1 AS n, TIMESTAMP'2025-07-01T00:00:00Z' AS at")
    sink = replace(sink, withdrawn=None)
    sink.write(frame, context(stage))
    assert postgres.rows(f"SELECT at FROM {sink.table}") == [(datetime(2025, 7, 1, tzinfo=timezone.utc),)]
