"""Private parts of Spark and py4j, each with the Spark versions that it was tested with."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.locations import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def read_delta_commit(spark: "SparkSession", table: str, version: int) -> str | None:
    """Return a commit of the table's log, or None when there is none of that version yet."""
    from py4j.protocol import Py4JJavaError

    name = f"{table}/_delta_log/{version:020}.json"
    if table.startswith("/") and Path(name).parent.is_dir():  # quicker than through the JVM
        try:
            return Path(name).read_text(encoding="utf-8", errors="replace")  # what is not UTF-8 is not JSON either
        except FileNotFoundError:
            return None
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(name)
    try:
        stream = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).open(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise
    try:
        text: str = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        return text
    finally:
        stream.close()


def locate_output(output: str) -> str:
    """Return where a folder for results is to be: an absolute path, or a URL."""
    return output if scheme_of(output) is not None else str(Path(output).expanduser().absolute())


def is_occupied(output: str) -> bool:
    """Return whether something is at a path of this machine already; for a URL, False."""
    path = Path(output)
    return scheme_of(output) is None and (path.is_file() or (path.is_dir() and any(path.iterdir())))


def is_occupied_for(spark: "SparkSession", output: str) -> bool:
    """Return whether something is at a path or URL already, as Spark sees it."""
    filesystem, path = hadoop_filesystem(spark, output)
    return bool(filesystem.exists(path) and len(filesystem.listStatus(path)))


def hadoop_filesystem(spark: "SparkSession", location: str) -> tuple[Any, Any]:
    """Return Hadoop's filesystem of a path or URL, and Hadoop's path."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path


def stop_after_batch(query: "StreamingQuery", jvm: Any) -> None:
    """Stop a query once its running batch is committed, and start no other.

    `query.stop()` alone interrupts the running batch. Spark's own loop ends before the next batch when the query's
    state says so, which only its internals can set; `stop()` then ends the wait for the next trigger.
    """
    internal: Any = query
    ended = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$")
    internal._jsq.streamingQuery().state().set(getattr(ended, "MODULE$"))
    while query.status["isTriggerActive"]:
        time.sleep(0.02)
    query.stop()
