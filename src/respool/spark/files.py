"""Files and folders as Spark sees them: a commit of a Delta table, a folder for results."""

from pathlib import Path
from typing import TYPE_CHECKING

from respool.locations import absolute, local_path
from respool.spark.internals import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_delta_commit(spark: "SparkSession", table: str, version: int) -> str | None:
    """Return a commit of the table's log, or None when that version does not exist yet."""
    name = f"{table}/_delta_log/{version:020}.json"
    if table.startswith("/") and Path(name).parent.is_dir():  # quicker than through the JVM
        try:
            return Path(name).read_text(encoding="utf-8", errors="replace")  # what is not UTF-8 is not JSON either
        except FileNotFoundError:
            return None
    return HadoopPath(spark, name).read_text()


def locate_output(output: str) -> str:
    """Return the location of a folder for results: an absolute path, or a URL."""
    return absolute(output)


def is_occupied(output: str) -> bool:
    """Return whether a path of this machine is a file or a folder that is not empty; for a URL, False."""
    path = local_path(output)
    return path is not None and (path.is_file() or (path.is_dir() and any(path.iterdir())))


def is_occupied_for(spark: "SparkSession", output: str) -> bool:
    """Return whether a path or URL is a file or a folder that is not empty, as Spark sees it."""
    return HadoopPath(spark, output).is_occupied()
