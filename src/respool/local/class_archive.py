"""An archive of the classes that Spark loads, so that its JVM starts in less time.

A JVM that has it maps thousands of classes, in place of reading and checking each of them. It is made once for a Java
and a pyspark, by a process of its own when respool has stopped Spark for the first time, and kept beside the jars:

    $XDG_CACHE_HOME/respool/jars/classes-<hash>.jsa

A JVM that does not find it, or finds that it does not fit, goes on without. Whoever gives the JVM an option of their
own about shared classes, such as -Xshare:off in spark.driver.extraJavaOptions, has neither.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.local import jars, quick_files
from respool.local.java import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NICE = 10  # whatever else the machine does comes first
# A JVM says on its standard output why it leaves an archive alone.
_SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def file() -> Path:
    """Return where the archive is, or will be. Its name changes with all that it is made of."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or [""]
    parts = (program().resolve(), Path(places[0]) / "jars", quick_files.JAR)
    told = "".join(f"{part} {part.stat().st_mtime_ns}\n" for part in parts)
    return jars.cache() / f"classes-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa"


def is_wanted(java_options: str) -> bool:
    """Tell whether the options that a user gives to the JVM leave the archive to respool."""
    return re.search(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit", java_options) is None


def options() -> list[str]:
    """Return the JVM's options to use the archive; none as long as it is not there."""
    with contextlib.suppress(OSError):
        found = file()
        if found.is_file():
            return [f'"-XX:SharedArchiveFile={found}"', *_SILENT]
    return []


def make_later() -> None:
    """Start a process that makes the archive when it is missing, and do not wait for it."""
    with contextlib.suppress(OSError):
        wanted = file()
        if wanted.exists() or _failed(wanted).exists():
            return
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=wanted.parent,
            start_new_session=True,
        )


def make() -> None:
    """Make the archive, unless it is there or another process makes it; what fails once is not tried again."""
    wanted = file()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with open(wanted.parent / "classes.lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        for old in wanted.parent.glob(".classes-*"):  # what a killed process left
            old.unlink(missing_ok=True)
        if wanted.exists():
            return
        part = wanted.with_name(f".{wanted.name}")
        try:
            _write(part)
            part.replace(wanted)
        except Exception:
            _failed(wanted).touch()
            raise
        finally:
            part.unlink(missing_ok=True)


def _failed(wanted: Path) -> Path:
    return wanted.with_suffix(".failed")


def _write(part: Path) -> None:
    """Run a small query, and let its JVM write the classes that it has loaded as it ends."""
    from pyspark import SparkContext

    from respool.local.session import spark_session
    from respool.settings import Settings

    os.nice(_NICE)
    conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={part}" {" ".join(_SILENT)}'}
    with tempfile.TemporaryDirectory() as home:
        with spark_session(Settings(home=Path(home), master="local[2]", spark=conf), patience=120) as session:
            _query(session, home)
            jvm: Any = SparkContext._gateway
        if jvm.proc.returncode != 0 or not part.is_file():
            raise OSError(f"the JVM ended with {jvm.proc.returncode}, and without an archive")


def _query(spark: "SparkSession", folder: str) -> None:
    """Do what pipelines do: a stream with a watermark and windows, a state, and a function for every batch."""
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
