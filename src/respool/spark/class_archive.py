"""An archive of the classes that Spark loads, so that its JVM starts in less time.

A JVM with an archive maps thousands of classes, in place of reading and checking each of them. The archive is written
once for a Java and a pyspark, by a background process when respool has stopped Spark for the first time, next to the
jars:

    $XDG_CACHE_HOME/respool/jars/classes-<hash of what it is made of>-<its size>.jsa

A JVM ignores an archive that is missing or does not fit. Only a truncated archive would crash it: its size is part of
its name, and a file of another size is not used. With a user's own option about shared classes, such as -Xshare:off in
spark.driver.extraJavaOptions, respool neither writes nor uses an archive.
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

# Otherwise a JVM prints on its standard output why it does not use an archive.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def find() -> Path | None:
    """Return the complete archive, if it exists."""
    candidates = jars.cache().glob(f"{archive_name()}-*.jsa")
    return next((file for file in candidates if file.name == is_whole(file)), None)


def archive_name() -> str:
    """Return the start of the archive's name: it changes with everything that the archive is made of."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or [""]
    parts = (program().resolve(), Path(places[0]) / "jars", jvm_classes.JAR)
    inputs = "".join(f"{part} {part.stat().st_mtime_ns}\n" for part in parts)
    return f"classes-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"


def is_whole(file: Path) -> str:
    """Return the name that a file of this size has as an archive."""
    return f"{archive_name()}-{file.stat().st_size}.jsa"


def is_wanted(java_options: str) -> bool:
    """Return whether the options that a user gives to the JVM leave the archive to respool."""
    return re.search(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit", java_options) is None


def options() -> list[str]:
    """Return the JVM's options to use the archive; none while it does not exist."""
    with contextlib.suppress(OSError):
        archive = find()
        if archive is not None:
            return [f'"-XX:SharedArchiveFile={archive}"', *SILENT]
    return []


def make_later() -> None:
    """Start a process that writes a missing archive, and do not wait for it."""
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
