"""An archive of the classes that Spark loads, so that its JVM starts in less time.

A JVM that has it maps thousands of classes, in place of reading and checking each of them. It is made once for a Java
and a pyspark, by a process of its own when respool has stopped Spark for the first time, and kept beside the jars:

    $XDG_CACHE_HOME/respool/jars/classes-<hash of what it is made of>-<its size>.jsa

A JVM that does not find it, or finds that it does not fit, goes on without; only one that was cut short would crash it,
and is left alone. Whoever gives the JVM an option of their own about shared classes, such as -Xshare:off in
spark.driver.extraJavaOptions, has neither.
"""

import contextlib
import hashlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from respool.local import jars
from respool.local.java import program
from respool.spark import jvm_classes

# A JVM says on its standard output why it leaves an archive alone.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def find() -> Path | None:
    """Return the archive that is there, whole."""
    candidates = jars.cache().glob(f"{archive_name()}-*.jsa")
    return next((file for file in candidates if file.name == is_whole(file)), None)


def archive_name() -> str:
    """Return how the archive's name begins: it changes with all that the archive is made of."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or [""]
    parts = (program().resolve(), Path(places[0]) / "jars", jvm_classes.JAR)
    inputs = "".join(f"{part} {part.stat().st_mtime_ns}\n" for part in parts)
    return f"classes-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"


def is_whole(file: Path) -> str:
    """Return the name that a file of this size has as an archive."""
    return f"{archive_name()}-{file.stat().st_size}.jsa"


def is_wanted(java_options: str) -> bool:
    """Tell whether the options that a user gives to the JVM leave the archive to respool."""
    return re.search(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit", java_options) is None


def options() -> list[str]:
    """Return the JVM's options to use the archive; none as long as it is not there."""
    with contextlib.suppress(OSError):
        archive = find()
        if archive is not None:
            return [f'"-XX:SharedArchiveFile={archive}"', *SILENT]
    return []


def make_later() -> None:
    """Start a process that makes the archive when it is missing, and do not wait for it."""
    with contextlib.suppress(OSError):
        if find() is not None or failed_mark().exists():
            return
        subprocess.Popen(
            [sys.executable, "-m", "respool.spark.class_archive_build"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=jars.cache(),
            start_new_session=True,
        )


def failed_mark() -> Path:
    """Return the file that marks a failed attempt to write the archive."""
    return jars.cache() / f"{archive_name()}.failed"
