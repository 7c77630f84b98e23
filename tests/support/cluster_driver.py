"""A machine with respool that uses a cluster: commands as processes, in a folder of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from respool.kafka.cluster import KafkaCluster
from support.cluster import StandaloneCluster


@dataclass(frozen=True)
class Driver:
    """A machine on which respool is installed, and which is not part of the cluster.

    Attributes:
        cluster: The cluster that it uses.
        kafka: The tests' broker.
        folder: Its working folder, with respool.toml and the home.
    """

    cluster: StandaloneCluster
    kafka: KafkaCluster
    folder: Path

    def configure(self, **spark: str) -> None:
        """Write respool.toml, with settings of Spark in addition to those of the cluster."""
        lines = [f'bootstrap_servers = "{self.kafka.bootstrap_servers}"', f'home = "{self.folder / "home"}"', "[spark]"]
        lines += [
            f"{json.dumps(name)} = {json.dumps(value)}" for name, value in {**self.cluster.spark, **spark}.items()
        ]
        (self.folder / "respool.toml").write_text("\n".join(lines) + "\n")

    def start(self, *words: str, local: bool = False) -> "subprocess.Popen[str]":
        """Start `respool run`, on the cluster or in a local Spark."""
        master = "local[2]" if local else self.cluster.address
        return self.start_program(sys.executable, "-m", "respool", "run", *words, "--master", master)

    def start_program(self, *command: str) -> "subprocess.Popen[str]":
        """Start a program in the working folder, without any setting of the tests' own Python."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as `activate` does
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, local: bool = False) -> tuple[str, str]:
        """Run `respool run` to its end, and return its output and its standard error."""
        return ended(self.start(*words, local=local))


def ended(process: "subprocess.Popen[str]", code: int = 0) -> tuple[str, str]:
    """Wait for the end of a process, and return its output and its standard error."""
    with process:
        try:
            output, error = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == code, f"{output[-1500:]}\n{error[-3500:]}"
    return output, error


def batches_of(process: "subprocess.Popen[str]") -> Iterator[int]:
    """Yield the batches that a run with `--json` reports, until it ends."""
    assert process.stdout is not None
    for line in process.stdout:
        yield int(json.loads(line)["batch"])
