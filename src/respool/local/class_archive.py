"""An archive of the classes that Spark loads, so that its JVM starts in less time.

A JVM that has it maps thousands of classes, in place of reading and checking each of them. It is made once for a Java
and a pyspark, by a process of its own when respool has stopped Spark for the first time, and kept beside the jars:

    $XDG_CACHE_HOME/respool/jars/classes-<hash of what it is made of>-<its size>.jsa

A JVM that does not find it, or finds that it does not fit, goes on without; only one that was cut short would crash it,
and is left alone. Whoever gives the JVM an option of their own about shared classes, such as -Xshare:off in
spark.driver.extraJavaOptions, has neither.
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

from respool.local import jars, own_classes
from respool.local.java import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NICE = 10  # whatever else the machine does comes first
# A JVM says on its standard output why it leaves an archive alone.
_SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def find() -> Path | None:
    """Return the archive that is there, whole."""
    found = jars.cache().glob(f"{_name()}-*.jsa")
    return next((file for file in found if file.name == _whole(file)), None)


def _name() -> str:
    """Return how the archive's name begins: it changes with all that the archive is made of."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or [""]
    parts = (program().resolve(), Path(places[0]) / "jars", own_classes.JAR)
    told = "".join(f"{part} {part.stat().st_mtime_ns}\n" for part in parts)
    return f"classes-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _whole(file: Path) -> str:
    """Return the name that a file of this size has as an archive."""
    return f"{_name()}-{file.stat().st_size}.jsa"


def is_wanted(java_options: str) -> bool:
    """Tell whether the options that a user gives to the JVM leave the archive to respool."""
    return re.search(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit", java_options) is None


def options() -> list[str]:
    """Return the JVM's options to use the archive; none as long as it is not there."""
    with contextlib.suppress(OSError):
        found = find()
        if found is not None:
            return [f'"-XX:SharedArchiveFile={found}"', *_SILENT]
    return []


def make_later() -> None:
    """Start a process that makes the archive when it is missing, and do not wait for it."""
    with contextlib.suppress(OSError):
        if find() is not None or _failed().exists():
            return
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=jars.cache(),
            start_new_session=True,
        )


def make() -> None:
    """Make the archive, unless it is there or another process makes it; what fails once is not tried again."""
    cache = jars.cache()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "classes.lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if find() is not None:
            return
        for old in (*cache.glob(".classes-*"), *cache.glob(f"{_name()}-*")):  # what was not finished, or was cut short
            old.unlink(missing_ok=True)
        part = cache / f".{_name()}"
        try:
            _write(part)
            part.replace(cache / _whole(part))
        except Exception:
            _failed().touch()
            raise
        finally:
            part.unlink(missing_ok=True)


def _failed() -> Path:
    return jars.cache() / f"{_name()}.failed"


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
