"""Several processes write one Delta table on S3 at the same time: no commit is lost."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from respool.archive.table import optimize
from respool.delta.log import DeltaLog
from respool.locations import for_spark
from respool.spark.internals import set_application_defaults
from respool.storage.object_store import delta_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parents[2]
# Commits in all, by two JVMs and delta-rs: RACE_COMMITS=200 pytest tests/spark/delta
_COMMITS = int(os.environ.get("RACE_COMMITS", "60"))
HERE = ANOTHER_SPARK = _COMMITS // 6
DELTA_RS = _COMMITS - HERE - ANOTHER_SPARK


@contextmanager
def writer(engine: str, table: str, count: int) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "support.delta_writer", engine, table, engine, str(count)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def stream(of: "IO[str] | None") -> "IO[str]":
    assert of is not None
    return of


def test_commits_of_several_processes_are_all_kept(spark: "SparkSession", s3a: str) -> None:
    table = f"{s3a}/race"
    spark.sql(f"CREATE TABLE delta.`{for_spark(table)}` (writer STRING, number LONG) USING delta")
    with ExitStack() as stack:
        started = [
            stack.enter_context(writer(engine, table, count))
            for engine, count in (("spark", ANOTHER_SPARK), ("delta-rs", DELTA_RS))
        ]
        for process in started:
            assert stream(process.stdout).readline() == "ready\n"
        for process in started:
            stream(process.stdin).write("go\n")
            stream(process.stdin).flush()
        for number in range(HERE):
            rows = spark.range(number, number + 1, 1, 1).selectExpr("'here' AS writer", "id AS number")
            rows.write.format("delta").mode("append").save(for_spark(table))
            if number == HERE // 2:
                optimize(spark, table)  # as `respool archive optimize` does, while the others append
        for process in started:
            assert process.wait(240) == 0
    counts = {"here": HERE, "spark": ANOTHER_SPARK, "delta-rs": DELTA_RS}
    opened = DeltaTable(table, storage_options=delta_options(table))
    rows_there: list[dict[str, Any]] = opened.to_pyarrow_table().to_pylist()
    assert sorted((row["writer"], row["number"]) for row in rows_there) == sorted(
        (name, number) for name, count in counts.items() for number in range(count)
    )
    log = DeltaLog(table)
    commits = [log.commit(version) for version in range(opened.version() + 1)]
    assert all(commits)
    appended = [commit for commit in commits if commit is not None and commit.operation == "WRITE"]
    assert len(appended) == sum(counts.values())


@pytest.mark.parametrize("scheme", ["s3a", "s3"])
def test_a_version_is_written_once(spark: "SparkSession", s3a: str, scheme: str) -> None:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{scheme}{s3a.removeprefix('s3')}/_delta_log/00000000000000000000.json")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    conf.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    name = spark.sparkContext.getConf().get(f"spark.delta.logStore.{scheme}.impl")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = conf
    store = loader.loadClass(name).getConstructors()[0].newInstance(arguments)

    def write(line: str, overwrite: bool = False) -> None:
        store.write(path, jvm.java.util.ArrayList([line]).iterator(), overwrite, conf)

    write("first")
    write("first")  # an answer was lost, and the client repeats the write
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        write("second")
    write("third", overwrite=True)
    lines = store.read(path, conf)
    assert lines.next() == "third"
    assert not lines.hasNext()
    assert [file.getPath().getName() for file in store.listFrom(path, conf)] == [path.getName()]


def test_an_application_that_runs_already_gets_the_log_store(spark: "SparkSession") -> None:
    jvm: Any = spark._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    assert set_application_defaults(spark, {"spark.respool.test": "respool.S3LogStore"})
    assert conf.get("spark.respool.test") == "respool.S3LogStore"
    assert set_application_defaults(spark, {"spark.respool.test": "a.Missing"})  # what is set stays
    assert conf.get("spark.respool.test") == "respool.S3LogStore"
    assert not set_application_defaults(spark, {"spark.respool.other": "a.Missing"})
    assert not conf.contains("spark.respool.other")
