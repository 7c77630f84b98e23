"""JVMs that start quickly: many live for seconds only, in the tests and in the processes that tests start.

Run as a program, it starts Spark once and writes an archive of the classes that Spark loads. A JVM that finds the
archive maps them, in half of the time that it takes to read them; one that does not find it goes on without.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

# The JVM's slow, thorough compiler would never pay off, and few threads serve two cores best.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def options(archive: Path) -> str:
    """Return what to put into JDK_JAVA_OPTIONS, for JVMs that use the archive once it is there."""
    return f"{_QUICK} -Xlog:disable -XX:SharedArchiveFile={archive}"


@contextmanager
def archive_in(folder: Path) -> Iterator[Path]:
    """Return where the archive is or will be; write it meanwhile when it is missing and no other process does."""
    import pyspark

    from respool.local.java import find_java
    from respool.spark import jvm_classes

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"spark-{pyspark.__version__}-java-{find_java().version}-{jvm_classes.jar_digest()[:8]}.jsa"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        process = None
        if not file.exists() and _alone(lock.fileno()) and not file.exists():
            environ = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
            process = subprocess.Popen([sys.executable, __file__, str(file)], env=environ, stdout=subprocess.DEVNULL)
        try:
            yield file
        finally:
            if process is not None:
                process.wait()


def _alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write(file: Path) -> NoReturn:
    """Write the archive, the classes that a small query loads, and end the process."""
    from pyspark import SparkContext

    from respool.settings import Settings
    from respool.spark.session import spark_session

    new = file.with_suffix(".new")
    spark = {"spark.driver.extraJavaOptions": f"{_QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={new}"}
    with tempfile.TemporaryDirectory() as home:
        starting = spark_session(Settings(home=Path(home), spark=spark))
        session = starting.__enter__()
        session.range(9).selectExpr("id % 2 AS rest").groupBy("rest").count().write.parquet(f"{home}/table")
        # The JVM writes the archive as it ends, which takes longer than respool waits for its end.
        gateway: Any = SparkContext._gateway
        session.stop()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    new.replace(file)
    os._exit(0)  # nothing is left to stop


if __name__ == "__main__":
    write(Path(sys.argv[1]))
