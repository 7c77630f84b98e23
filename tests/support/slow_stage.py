"""A folder in which `respool run` runs the slow pipeline as a process, as a shell starts it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from support.processes import children_of

PATIENCE = 180


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def visit(number: int) -> Message:
    value = f'{{"visit_id": "v{number}", "event_time": "2025-09-04T07:00:00", "page": "home"}}'
    return Message(b"key", value.encode())


@dataclass(frozen=True)
class SlowStage:
    """A folder of its own, with a home in it, and a topic of six records."""

    respool: str
    folder: Path
    kafka: KafkaCluster
    topic: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "home" / "checkpoints" / "slow"

    @contextmanager
    def command(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """Run a command in a process group of its own, as a shell does; what is left of it is killed."""
        environ = {
            **os.environ,
            "SLOW_PIPELINE_FOLDER": str(self.folder),
            "SLOW_PIPELINE_TOPIC": self.topic,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            [self.respool, *words, "--home", str(self.folder / "home")],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            for pid in (*children_of(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate(timeout=PATIENCE)

    def run(self, *more: str) -> "AbstractContextManager[subprocess.Popen[str]]":
        line = ("run", "support.slow_pipeline:slow", "--no-dead-letter", *more)
        return self.command(*line, "--bootstrap-servers", self.kafka.bootstrap_servers)


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return what a process prints until its end."""
    text, _ = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in text
    return text.splitlines()
