"""Different results never share a key, and times of whole milliseconds are rendered as Spark does by default."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.delta import DeltaSink
from respool.sinks.kafka import KafkaSink
from respool.sinks.protocol import WriteContext, json_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
COLUMNS = (
    "at",
    "CAST(at AS TIMESTAMP_NTZ) AS ntz",
    "struct(at AS start, 'x' AS name) AS `a.b``c`",
    "array(at, NULL) AS list",
    "map('k', struct(at AS deep)) AS map",
    "map('k', array(1)) AS counts",
    "CAST(NULL AS STRUCT<at: TIMESTAMP>) AS nothing",
    "array(array(struct(at AS deepest))) AS nested",
    "'2025-09-04T07:00:00.123456Z' AS text",
    "CAST(NULL AS TIMESTAMP) AS none",
    "CAST(NULL AS ARRAY<TIMESTAMP>) AS no_list",
)


def rows(spark: "SparkSession", *micros: int) -> "DataFrame":
    times = [(START + timedelta(microseconds=micro),) for micro in micros]
    return spark.createDataFrame(times, "at TIMESTAMP").selectExpr(*COLUMNS)


@pytest.fixture(scope="module")
def paris(spark: "SparkSession") -> "SparkSession":
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    return session


def test_whole_milliseconds_are_rendered_as_spark_renders_them(paris: "SparkSession") -> None:
    frame = rows(paris, 0, 1000, 123_000, 999_000)
    names = ", ".join(f"`{name.replace('`', '``')}`" for name in frame.columns)
    rendered = frame.selectExpr(f"to_json(struct({names})) AS spark", f"{json_of(frame.schema, frame.columns)} AS own")
    for row in rendered.collect():
        assert row.own == row.spark


def test_microseconds_are_kept_wherever_a_time_stands(paris: "SparkSession") -> None:
    frame = rows(paris, 123_456)
    (row,) = frame.selectExpr(f"{json_of(frame.schema, frame.columns)} AS text").collect()
    text, local = "2025-09-04T09:00:00.123456+02:00", "2025-09-04T09:00:00.123456"
    assert json.loads(row.text) == {
        "at": text,
        "ntz": local,
        "a.b`c": {"start": text, "name": "x"},
        "list": [text, None],
        "map": {"k": {"deep": text}},
        "counts": {"k": [1]},
        "nested": [[{"deepest": text}]],
        "text": "2025-09-04T07:00:00.123456Z",
    }
    (row,) = frame.selectExpr(f"{json_of(frame.schema, ['AT'], 'Asia/Tokyo')} AS text").collect()
    assert json.loads(row.text) == {"AT": "2025-09-04T16:00:00.123456+09:00"}


def test_only_the_time_that_has_microseconds_shows_them(spark: "SparkSession") -> None:
    frame = rows(spark, 123_456).selectExpr("struct(date_trunc('hour', at) AS start, at AS end) AS window")
    (row,) = frame.selectExpr(f"{json_of(frame.schema, ['window'])} AS text").collect()
    assert row.text == '{"window":{"start":"2025-09-04T07:00:00.000Z","end":"2025-09-04T07:00:00.123456Z"}}'


@pytest.mark.parametrize("sink", [KafkaSink("t", key=("ntz", "at")), DeltaSink("t", key=("ntz",))])
def test_results_of_the_same_millisecond_have_keys_of_their_own(
    spark: "SparkSession", sink: KafkaSink | DeltaSink
) -> None:
    rendered = sink.render(rows(spark, 123_456, 123_789, 123_000)).collect()
    assert len({bytes(row.key) for row in rendered}) == 3


def test_what_a_table_holds_is_rendered_as_what_is_computed(spark: "SparkSession", tmp_path: Path) -> None:
    sink = DeltaSink("results", key=("ntz",))
    write = WriteContext("p", 0, KafkaCluster("nowhere:1"), Settings(home=tmp_path))
    frame = rows(spark, 123_456, 123_789).select("at", "ntz")
    sink.write(frame, write)
    held: list[Any] = sink.published(spark, write, frame.schema).select("key", "value").collect()
    assert sorted(map(tuple, held)) == sorted(map(tuple, sink.render(frame).select("key", "value").collect()))


@hypothesis_settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(micros=st.sets(st.integers(-6 * 10**14, 10**16), min_size=50))  # before, offsets of Paris have seconds
def test_a_rendered_time_is_read_back_exactly(paris: "SparkSession", micros: set[int]) -> None:
    times = paris.createDataFrame([(micro,) for micro in micros], "micros BIGINT").selectExpr(
        "micros", "timestamp_micros(micros) AS at"
    )
    read = times.selectExpr(
        "micros", f"unix_micros(from_json({json_of(times.schema, ['at'])}, 'at TIMESTAMP').at) AS back"
    )
    assert all(row.micros == row.back for row in read.collect())
