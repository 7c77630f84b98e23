"""A real standalone Spark cluster, a master and two workers of one core each, from pyspark's own jars.

Everything listens on 127.0.0.1. The Python of the executors has numpy, pandas, pyarrow and protobuf and nothing else:
neither respool nor a test's modules are there, unless they are shipped.
"""

import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from respool.spark import internals
from support.processes import children_of, ending_with_the_tests

_PATIENCE = 120
# What Spark's workers import, as an administrator would have installed it on the hosts of a cluster.
_OF_EXECUTORS = ("numpy*", "pandas", "pandas-*", "pyarrow*", "google", "dateutil", "pytz", "six.py", "tzdata")
# Small enough for a machine that runs other tests as well.
SPARK = {
    "spark.driver.memory": "640m",
    "spark.executor.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
}


@dataclass
class SparkWorker:
    """A worker: a host of the cluster.

    Attributes:
        process: Its process, which leads a group with its executors.
        folder: Its work folder, with the logs of executors.
    """

    process: "subprocess.Popen[bytes]"
    folder: Path

    def executors(self) -> list[int]:
        """Return the processes of its executors."""
        return [
            child
            for child in children_of(self.process.pid)
            if b"CoarseGrainedExecutorBackend" in _read(Path(f"/proc/{child}/cmdline"))
        ]

    def kill(self) -> None:
        """End it with its executors, as a host that loses power."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class StandaloneCluster:
    """The processes of a cluster.

    Attributes:
        address: The master, as `spark://127.0.0.1:port`.
        page: The master's web page.
        python: The Python of the executors.
        folder: Where logs and work folders are.
        workers: The workers that were started.
    """

    address: str
    page: str
    python: Path
    folder: Path
    workers: list[SparkWorker] = field(default_factory=list)

    @property
    def spark(self) -> dict[str, str]:
        """Spark's settings of an application on this cluster."""
        return {**SPARK, "spark.pyspark.python": str(self.python)}

    def start_worker(self) -> SparkWorker:
        """Start a worker of one core, and wait until it is registered."""
        number = len(self.workers)
        folder = self.folder / f"worker-{number}"
        words = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        process, log = _start("worker.Worker", [*words, "--work-dir", str(folder), self.address], folder)
        worker = SparkWorker(process, folder)
        self.workers.append(worker)
        _await(process, log, "Successfully registered with master")
        return worker

    def complete(self) -> None:
        """Start as many workers as are missing of two."""
        while len([worker for worker in self.workers if worker.process.poll() is None]) < 2:
            self.start_worker()

    def executors(self) -> list[int]:
        """Return the processes of all executors."""
        return [executor for worker in self.workers for executor in worker.executors()]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """Run a cluster of two workers; no process of it is left behind."""
    python = executor_python(folder / "python")
    words = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master, log = _start("master.Master", words, folder / "master")
    cluster: StandaloneCluster | None = None
    try:
        address = _await(master, log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        page = _await(master, log, r"MasterWebUI.* started at (http://127\.0\.0\.1:\d+)")
        cluster = StandaloneCluster(address, page, python, folder)
        cluster.complete()
        yield cluster
    finally:
        for worker in cluster.workers if cluster is not None else ():
            worker.kill()
        with suppress(ProcessLookupError):
            os.killpg(master.pid, signal.SIGKILL)
        master.wait()


def executor_python(folder: Path) -> Path:
    """Make an environment without respool, and return its Python."""
    venv.create(folder, with_pip=False)
    [site] = folder.glob("lib/python*/site-packages")
    own = next(Path(place) for place in sys.path if (Path(place) / "pyspark").is_dir())
    for pattern in _OF_EXECUTORS:
        for package in own.glob(pattern):
            (site / package.name).symlink_to(package)
    python = folder / "bin" / "python"
    probe = subprocess.run([python, "-c", "import pandas, pyarrow, respool"], env={}, capture_output=True, text=True)
    assert "No module named 'respool'" in probe.stderr, probe.stderr
    return python


def await_true(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {_PATIENCE} s"
        time.sleep(0.05)


def _start(name: str, words: list[str], folder: Path) -> "tuple[subprocess.Popen[bytes], Path]":
    """Start a daemon of Spark, in an environment without that of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    home = internals.spark_home()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON", "VIRTUAL_ENV"))
    }
    environ |= {
        "PATH": os.defpath,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.worker.timeout=20",
    }
    if java := os.environ.get("JAVA_HOME"):
        environ["JAVA_HOME"] = java
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ending_with_the_tests(
                [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{name}", *words]
            ),
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process, log


def _await(process: "subprocess.Popen[bytes]", log: Path, pattern: str) -> str:
    """Wait for a line in a log, and return the group of its pattern."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        text = log.read_text(errors="replace")
        if match := re.search(pattern, text):
            return match[match.re.groups]
        assert process.poll() is None, text[-3000:]
        time.sleep(0.05)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


def _read(file: Path) -> bytes:
    with suppress(OSError):
        return file.read_bytes()
    return b""
