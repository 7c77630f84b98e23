"""respool's own classes for Spark's JVM, as a jar that is part of respool.

- Hadoop without its native library, as pyspark has it, starts programs to set permissions and to detect links on the
  local disk: a dozen for each small file of a checkpoint. `QuickFileSystem` and `QuickFs` do that within the JVM; what
  they write is the same.
- `JsonReader` reads JSON from its bytes, with Jackson, in a third to a half of the time of Spark's `from_json`: see
  `respool.decoders.json`.

After changing them, run `python -m respool.spark.jvm_classes` to build the jar again; this needs a JDK.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCES = _HERE / "java"
JAR = _HERE / "own-classes.jar"
# Settings of Spark in a JVM that has the jar on its class path.
CONF = {
    "spark.hadoop.fs.file.impl": "respool.QuickFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "respool.QuickFs",
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
    """Return the digest of the sources that the jar was built from."""
    with zipfile.ZipFile(JAR) as jar:
        return jar.read(_DIGEST).decode("ascii")


def build() -> None:
    """Compile the sources, and put them into the jar."""
    spec = find_spec("pyspark")
    javac = shutil.which("javac")
    if javac is None or spec is None or not spec.submodule_search_locations:
        sys.exit("Building the jar needs a JDK 17 or newer, with javac on the PATH, and pyspark.")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(file) for file in sorted(_SOURCES.rglob("*.java"))]
        command = [javac, "--release", "17", "-Xlint:all,-path", "-cp", f"{jars}/*", "-d", folder, *sources]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
            for file in sorted(Path(folder).rglob("*.class")):
                _add(jar, file.relative_to(folder).as_posix(), file.read_bytes())
            _add(jar, _DIGEST, sources_digest().encode("ascii"))


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    jar.writestr(entry, data)


if __name__ == "__main__":
    build()
