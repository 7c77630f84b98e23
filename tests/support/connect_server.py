"""A real Spark Connect server, from pyspark's own jars, as a process."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from respool.local import jars
from respool.settings import Settings
from respool.spark import internals, jvm_classes

_PATIENCE = 120


@contextmanager
def connect_server(settings: Settings, folder: Path) -> Iterator[str]:
    """Run a server with the jars that respool needs; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        "spark.master": "local[2]",
        "spark.jars": ",".join(map(str, (*jars.spark_jars(settings), jvm_classes.JAR))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    properties = folder / "connect.conf"
    properties.write_text("".join(f"{name}={value}\n" for name, value in conf.items()), encoding="utf-8")
    program = os.path.join(internals.spark_home(), "bin", "spark-submit")
    words = ["--properties-file", str(properties), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    log = folder / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *words, "spark-internal"],
            cwd=folder,
            env={**environ, "SPARK_CONNECT_MODE": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, port, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    try:
                        process.wait(20)
                    except subprocess.TimeoutExpired:
                        continue


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-3000:])
