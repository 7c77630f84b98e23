"""Signals and killed processes: a command ends as it should, says so in a few words, and leaves nothing behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from respool.kafka import producer
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from support.checkpoints import unpack
from support.processes import children_of, processes_of

PATIENCE = 180
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes")


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def visit(number: int) -> Message:
    value = f'{{"visit_id": "v{number}", "event_time": "2025-09-04T07:00:00", "page": "home"}}'
    return Message(b"key", value.encode())


@dataclass(frozen=True)
class Stage:
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
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
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


@pytest.fixture
def stage(respool: str, tmp_path: Path, kafka: KafkaCluster, topic: str) -> Stage:
    producer.produce(kafka, topic, [visit(number) for number in range(6)])
    return Stage(respool, tmp_path, kafka, topic)


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended, and that nobody waited for, does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return False


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return what a process prints until its end."""
    text, _ = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in text
    return text.splitlines()


def test_a_signal_to_the_group_while_spark_starts(stage: Stage) -> None:
    with stage.run() as process:
        until(lambda: bool(children_of(process.pid)))
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGTERM)
        lines = lines_of(process)
        assert process.returncode == 0, lines
    assert lines[-1] == "Stopped."
    assert len(lines) <= 2, lines
    assert processes_of(stage.folder) == []


def test_a_signal_to_the_group_during_a_batch_ends_after_it(stage: Stage) -> None:
    with stage.run() as process:
        until((stage.folder / "started-0").exists)
        for _ in range(2):  # as `timeout` does: to the process, then to its group
            os.killpg(process.pid, signal.SIGTERM)
        until((stage.folder / "stopping").exists)
        (stage.folder / "go").touch()
        lines = lines_of(process)
        assert process.returncode == 0, lines
    assert lines[-1] == "Stopped."
    assert len(lines) <= 4, lines
    assert [path.name for path in (stage.checkpoint / "commits").glob("[0-9]*")] == ["0"]
    assert processes_of(stage.folder) == []


def test_a_killed_jvm_is_reported_by_one_message(stage: Stage) -> None:
    with stage.run() as process:
        until((stage.folder / "started-0").exists)
        [jvm] = children_of(process.pid)
        os.kill(jvm, signal.SIGKILL)
        time.sleep(0.5)
        (stage.folder / "go").touch()
        lines = lines_of(process)
        assert process.returncode == 1, lines
    assert lines[-1].startswith(f"error: Spark's JVM (process {jvm}) was killed by signal 9.")
    assert len(lines) <= 3, lines
    until(lambda: processes_of(stage.folder) == [])  # Python workers notice it, too


def test_a_run_that_lost_its_lease_ends_in_the_middle_of_a_batch(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_PIPELINE_LOSES", "1")
    with stage.run() as process:
        lines = lines_of(process)
        assert process.returncode == 1, lines
    assert lines[-1] == f"error: The lease of the checkpoint {stage.checkpoint} is lost."
    assert len(lines) <= 3, lines
    assert not (stage.checkpoint / "commits" / "0").exists()
    until(lambda: processes_of(stage.folder) == [])


def test_no_rewind_while_the_jvm_of_a_killed_run_lives(stage: Stage) -> None:
    (stage.folder / "go").touch()
    with stage.run() as process:
        until((stage.checkpoint / "commits" / "2").exists)
        [jvm] = children_of(process.pid)
        process.kill()
        began = time.monotonic()
        rewind = ("checkpoint", "rewind", "slow", "--to-batch", "1", "--yes", "--stopped")
        with stage.command(*rewind) as change:
            while change.poll() is None:
                time.sleep(0.005)
            assert not lives(jvm), f"{time.monotonic() - began} s"
            assert change.returncode == 0, lines_of(change)
    assert processes_of(stage.folder) == []


def test_a_terminated_command_stops_its_jvm(stage: Stage) -> None:
    checkpoint = unpack(stage.folder, "rocksdb")
    with stage.command("state", str(checkpoint)) as process:
        until(lambda: bool(children_of(process.pid)))
        os.killpg(process.pid, signal.SIGTERM)
        lines = lines_of(process)
        assert process.returncode == 128 + signal.SIGTERM, lines
    assert processes_of(stage.folder) == []
