"""A session on a Spark cluster: its executors and their logs, how much runs at once, and the code that it is sent.

Executors that have not installed Python code get it as zip files, by `SparkContext.addPyFile`.
"""

import atexit
import hashlib
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from respool.errors import MachineError
from respool.spark import connect, internals

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_PATIENCE = 10.0  # seconds for a master to accept a connection; Spark alone would try for a minute
_FIRST = 10.0  # seconds without an executor, after which the wait is reported
_OTHERS = 2.0  # seconds without another executor, after which no more are expected
_ASK_AGAIN = 0.1  # seconds
_SHOWN = 4  # addresses of logs in a message
_LOCAL = re.compile(r"local(\[|$)")


@dataclass(frozen=True)
class Executor:
    """A process of a cluster that runs tasks.

    Attributes:
        name: Its id in the application.
        cores: How many tasks it runs at once.
        log: The address of the log that its tasks print to; empty when the cluster shows none.
    """

    name: str
    cores: int
    log: str


def is_local(master: str) -> bool:
    """Return whether a master runs all tasks in the driver's own JVM."""
    return _LOCAL.match(master) is not None


def is_cluster(spark: "SparkSession") -> bool:
    """Return whether tasks of a session run outside of this machine's driver; a Spark Connect server is not asked."""
    return not connect.is_connect(spark) and not is_local(_master(spark))


def require_master(master: str) -> None:
    """Raise MachineError when no host of a `spark://` address accepts connections."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE):
                return
        except (OSError, ValueError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    raise MachineError(
        f"No Spark master answers at {master} ({'; '.join(reasons)}). Start it, or correct the address in --master, "
        "as spark://HOST:PORT; 'local[*]' needs no cluster."
    )


def executors(spark: "SparkSession") -> list[Executor]:
    """Return the executors that have registered with a session's application, and still run."""
    return [Executor(name, cores, log) for name, cores, log in internals.running_executors(spark)]


def wait_for_executors(
    spark: "SparkSession",
    patience: timedelta | None,
    is_stopping: Callable[[], bool],
    on_note: Callable[[str], None],
) -> list[Executor]:
    """Return the executors of an application once they have registered; Spark starts them in the background.

    With dynamic allocation they start with the first tasks, and are not awaited.

    Args:
        spark: A session on a cluster.
        patience: How long to wait for the first one; None for ever.
        is_stopping: Returns whether to return at once.
        on_note: Called when none has registered for a while.

    Raises:
        MachineError: None has registered in time.
    """
    if _setting(spark, "spark.dynamicAllocation.enabled", "false") == "true":
        return executors(spark)
    began = changed = time.monotonic()
    wanted, noted = _declared_cores(spark), False
    registered: list[Executor] = []
    while not is_stopping():
        now, before, registered = time.monotonic(), len(registered), executors(spark)
        changed = now if len(registered) != before else changed
        cores = sum(executor.cores for executor in registered)
        if registered and (cores >= (wanted or cores + 1) or now - changed >= _OTHERS):
            break
        if not registered and patience is not None and now - began > patience.total_seconds():
            raise MachineError(_no_executor(spark, now - began))
        if not registered and not noted and now - began > _FIRST:
            on_note(f"{_no_executor(spark, now - began)} Waiting …")
            noted = True
        time.sleep(_ASK_AGAIN)
    return registered


def cores_of(spark: "SparkSession", registered: Sequence[Executor]) -> int | None:
    """Return how many tasks of an application run at once; None when it is not limited.

    Args:
        spark: A session on a cluster.
        registered: Its executors, as far as they have registered.
    """
    cores = [sum(executor.cores for executor in registered), _declared_cores(spark) or 0]
    return max(cores) or None


def describe_logs(registered: Sequence[Executor]) -> str:
    """Return where the output of tasks is, as a sentence."""
    logs = [executor.log for executor in registered if executor.log]
    if not logs:
        return "Tasks print to the logs of their executors; the cluster's web page has them."
    more = f", and {len(logs) - _SHOWN} more" if len(logs) > _SHOWN else ""
    return f"Tasks print to the logs of their executors: {' '.join(logs[:_SHOWN])}{more}"


def _declared_cores(spark: "SparkSession") -> int | None:
    """Return the cores that the settings ask for; None when they leave that to the cluster."""
    each = int(_setting(spark, "spark.executor.cores", "1"))
    if _setting(spark, "spark.dynamicAllocation.enabled", "false") == "true":
        most = _setting(spark, "spark.dynamicAllocation.maxExecutors", "")
        return int(most) * each if most else None
    if _master(spark).startswith("spark://"):
        most = _setting(spark, "spark.cores.max", "")
        return int(most) if most else None
    return int(_setting(spark, "spark.executor.instances", "2")) * each  # Spark's default on YARN and Kubernetes


def _master(spark: "SparkSession") -> str:
    return str(spark.sparkContext.master)


def _setting(spark: "SparkSession", name: str, default: str) -> str:
    return spark.sparkContext.getConf().get(name, default) or default


def _no_executor(spark: "SparkSession", seconds: float) -> str:
    memory = _setting(spark, "spark.executor.memory", "1g")
    return (
        f"No executor has registered with {_master(spark)} in {seconds:.0f} s: the cluster has no free core, or no "
        f"worker with {memory} of memory. Stop another application there, or lower spark.executor.memory "
        "or spark.cores.max in the [spark] table of respool.toml."
    )


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
