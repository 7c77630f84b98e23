"""Write the class data archive that lets Spark start faster."""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from respool.local import jars
from respool.spark.internals import jvm_process
from respool.spark.jvm_classes import SILENT, archive_name, failed_mark, find_archive, is_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NICE = 10  # other processes of the machine have priority


def make() -> None:
    """Write the archive, unless it exists or another process writes it; after a failure it is not tried again."""
    cache = jars.cache()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "classes.lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if find_archive() is not None:
            return
        for old in (
            *cache.glob(".classes-*"),
            *cache.glob(f"{archive_name()}-*"),
        ):  # unfinished or truncated
            old.unlink(missing_ok=True)
        part = cache / f".{archive_name()}"
        try:
            _write(part)
            part.replace(cache / is_whole(part))
        except Exception:
            failed_mark().touch()
            raise
        finally:
            part.unlink(missing_ok=True)


def _write(part: Path) -> None:
    """Run a small query, whose JVM writes the classes that it has loaded when it ends."""
    from respool.settings import Settings
    from respool.spark.session import spark_session

    os.nice(_NICE)
    conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={part}" {" ".join(SILENT)}'}
    with tempfile.TemporaryDirectory() as home:
        with spark_session(Settings(home=Path(home), master="local[2]", spark=conf), patience=120) as session:
            _query(session, home)
            process = jvm_process()
        code = None if process is None else process.returncode
        if code != 0 or not part.is_file():
            raise OSError(f"the JVM ended with {code}, and without an archive")


def _query(spark: "SparkSession", folder: str) -> None:
    """Run a query like a pipeline's: a stream with a watermark and windows, a state, and a function for every batch."""
    from pyspark.sql import functions as F

    rows = spark.range(99).select((F.col("id") * 60).cast("timestamp").alias("time"), F.to_json(F.struct("id")))
    rows.write.parquet(f"{folder}/table")
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/table").withWatermark("time", "1 minute")
    counts = stream.groupBy(F.window("time", "10 minutes")).count()
    writer = counts.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.foreachBatch(
        lambda frame, batch: frame.write.format("noop").mode("append").save()
    ).start().awaitTermination()


if __name__ == "__main__":
    make()
