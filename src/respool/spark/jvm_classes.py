"""respool's own classes for Spark's JVM, as jars; and an archive of all classes, so that the JVM starts in less time.

- Hadoop without its native library, as pyspark has it, starts programs to set permissions and to detect links on the
  local disk: a dozen for each small file of a checkpoint. `QuickFileSystem` and `QuickFs` do that within the JVM; what
  they write is the same.
- `JsonReader` reads JSON from its bytes, with Jackson, in a third to a half of the time of Spark's `from_json`: see
  `respool.decoders.json`.
- `S3LogStore` commits to Delta tables on S3 by conditional writes, so that several processes can write a table. It has
  a jar of its own, which belongs to `spark.jars`: it needs Delta's classes, which are not on the JVM's class path.

After changing them, run `python -m respool.spark.jvm_classes` to build the jars again; this needs a JDK.

A JVM with a class data archive maps thousands of classes, in place of reading and checking each of them. The archive is
written once for a Java and a pyspark, by a background process when respool has stopped Spark for the first time, next
to the jars:

    $XDG_CACHE_HOME/respool/jars/classes-<hash of what it is made of>-<its size>.jsa

A JVM ignores an archive that is missing or does not fit. Only a truncated archive would crash it: its size is part of
its name, and a file of another size is not used. With a user's own option about shared classes, such as -Xshare:off in
spark.driver.extraJavaOptions, respool neither writes nor uses an archive.
"""

import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from respool.local import jars
from respool.local.java import program
from respool.settings import Settings

_HERE = Path(__file__).parent
_SOURCES = _HERE / "java"
JAR = _HERE / "own-classes.jar"
S3_JAR = _HERE / "s3-classes.jar"
# Settings of Spark in a JVM that has the jar on its class path.
CONF = {
    "spark.hadoop.fs.file.impl": "respool.QuickFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "respool.QuickFs",
}
# Settings of Spark for Delta tables on S3, in a JVM that has its jar and Hadoop's s3a.
S3_CONF = {
    "spark.delta.logStore.s3a.impl": "respool.S3LogStore",
    "spark.delta.logStore.s3.impl": "respool.S3LogStore",
}
_DIGEST = "sources.sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever the jar is built


def sources_digest() -> str:
    """Return a digest of the Java sources."""
    digest = hashlib.sha256()
    for file in sorted(_SOURCES.rglob("*.java")):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def jar_digest() -> str:
    """Return the digest of the sources that the jars were built from."""
    digests = set()
    for file in (JAR, S3_JAR):
        with zipfile.ZipFile(file) as jar:
            digests.add(jar.read(_DIGEST).decode("ascii"))
    return " and ".join(sorted(digests))


def build() -> None:
    """Compile the sources, and put them into the jars."""
    spec = find_spec("pyspark")
    javac = shutil.which("javac")
    if javac is None or spec is None or not spec.submodule_search_locations:
        sys.exit("Building the jar needs a JDK 17 or newer, with javac on the PATH, and pyspark.")
    libraries = (Path(spec.submodule_search_locations[0]) / "jars", *_libraries())
    path = ":".join(f"{folder}/*" for folder in libraries)
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(file) for file in sorted(_SOURCES.rglob("*.java"))]
        command = [
            javac,
            "--release",
            "17",
            "-Xlint:all,-path",
            "-cp",
            path,
            "-d",
            folder,
            *sources,
        ]
        subprocess.run(command, check=True)
        classes = sorted(Path(folder).rglob("*.class"))
        for target, is_of_s3 in ((JAR, False), (S3_JAR, True)):
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as jar:
                for file in classes:
                    if file.name.startswith("S3") == is_of_s3:
                        _add(jar, file.relative_to(folder).as_posix(), file.read_bytes())
                _add(jar, _DIGEST, sources_digest().encode("ascii"))


def _libraries() -> Iterator[Path]:
    for paths in (jars.spark_jars(Settings()), jars.s3_jars(Settings())):
        yield paths[0].parent


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    jar.writestr(entry, data)


# Otherwise a JVM prints on its standard output why it does not use an archive.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def find_archive() -> Path | None:
    """Return the complete archive, if it exists."""
    candidates = jars.cache().glob(f"{archive_name()}-*.jsa")
    return next((file for file in candidates if file.name == is_whole(file)), None)


def archive_name() -> str:
    """Return the start of the archive's name: it changes with everything that the archive is made of."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or [""]
    parts = (program().resolve(), Path(places[0]) / "jars", JAR)
    inputs = "".join(f"{part} {part.stat().st_mtime_ns}\n" for part in parts)
    return f"classes-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"


def is_whole(file: Path) -> str:
    """Return the name that a file of this size has as an archive."""
    return f"{archive_name()}-{file.stat().st_size}.jsa"


def is_archive_wanted(java_options: str) -> bool:
    """Return whether the options that a user gives to the JVM leave the archive to respool."""
    return re.search(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit", java_options) is None


def archive_options() -> list[str]:
    """Return the JVM's options to use the archive; none while it does not exist."""
    with contextlib.suppress(OSError):
        archive = find_archive()
        if archive is not None:
            return [f'"-XX:SharedArchiveFile={archive}"', *SILENT]
    return []


def make_archive_later() -> None:
    """Start a process that writes a missing archive, and do not wait for it."""
    with contextlib.suppress(OSError):
        if find_archive() is not None or failed_mark().exists():
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


if __name__ == "__main__":
    build()
