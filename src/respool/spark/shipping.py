"""Python code to the executors of a cluster, which have not installed it: zip files, by `SparkContext.addPyFile`."""

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from respool.errors import MachineError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever the zip is made
_PY_FILES = "spark.submit.pyFiles"
_NATIVE = (".so", ".pyd", ".dylib")
_COMPILED = (".pyc", ".pyo")
# The zips that each application has.
_shipped: "WeakKeyDictionary[SparkContext, set[str]]" = WeakKeyDictionary()


def ship(spark: "SparkSession", roots: Iterable[Path]) -> None:
    """Let tasks of an application import packages and modules of this process; each version of one is shipped once.

    Args:
        spark: A session on a cluster.
        roots: Folders of packages and files of modules, each as it would be in a folder of `sys.path`.
    """
    from pyspark import SparkFiles

    context = spark.sparkContext
    shipped = _shipped.setdefault(context, set())
    here = SparkFiles.getRootDirectory()
    for root in roots:
        archive = _zip(root)
        if archive.name in shipped:
            continue
        context.addPyFile(str(archive))
        # In this process, the code is imported from where it is.
        sys.path[:] = [place for place in sys.path if place != os.path.join(here, archive.name)]
        shipped.add(archive.name)
    by_user = (os.path.basename(file) for file in context.getConf().get(_PY_FILES, "").split(",") if file)
    _import_on_driver(context, [os.path.join(here, name) for name in (*sorted(shipped), *by_user)])


def _import_on_driver(context: "SparkContext", files: list[str]) -> None:
    """Let the Python worker that Spark starts on the driver import what executors import.

    With the first batch of transformWithState, Spark runs its processor in a worker of the driver, to which it passes
    no files. Its PYTHONPATH comes with the function. The paths do not exist on other hosts.
    """
    others = [place for place in context.environment.get("PYTHONPATH", "").split(os.pathsep) if place not in files]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*others, *files)))


def has_native_code(root: Path) -> bool:
    """Return whether a package has a compiled module, which cannot be imported from a zip."""
    return any(path.suffix in _NATIVE for path in _files(root))


def _zip(root: Path) -> Path:
    """Write a package or module to a zip, whose name has a digest of its content."""
    digest = hashlib.sha256()
    entries = []
    for path in sorted(_files(root)):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise MachineError(
                f"{path} cannot be read, to ship it to the executors of the cluster: {error.strerror}. Make it "
                "readable, or move it out of the package."
            ) from error
        name = path.relative_to(root.parent).as_posix()
        digest.update(f"{name}\n{len(data)}\n".encode() + data)
        entries.append((name, data))
    archive = _folder() / f"{root.stem}-{digest.hexdigest()[:12]}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
            for name, data in entries:
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                written.writestr(entry, data)
    return archive


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of a package without hidden and compiled ones, or the file of a module."""
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        yield from (Path(folder) / name for name in names if not name.startswith(".") and not name.endswith(_COMPILED))


@lru_cache
def _folder() -> Path:
    """Return a folder that lasts as long as this process: executors that start later get their copies from it."""
    folder = Path(tempfile.mkdtemp(prefix="respool-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
