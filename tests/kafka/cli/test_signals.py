"""Signals and killed processes: a command ends as it should, reports it briefly, and leaves nothing behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from respool.kafka import producer
from respool.kafka.cluster import KafkaCluster
from support.checkpoints import unpack
from support.processes import children_of, processes_of, runs
from support.slow_stage import SlowStage, lines_of, until, visit

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes")

_GRACE = 60  # seconds; of a machine that does nothing else, it takes a few


@pytest.fixture
def stage(respool: str, tmp_path: Path, kafka: KafkaCluster, topic: str) -> SlowStage:
    producer.produce(kafka, topic, [visit(number) for number in range(6)])
    return SlowStage(respool, tmp_path, kafka, topic)


def test_a_signal_to_the_group_while_spark_starts(stage: SlowStage) -> None:
    with stage.run() as process:
        until(lambda: bool(children_of(process.pid)))
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGTERM)
        lines = lines_of(process)
        assert process.returncode == 0, lines
    assert lines[-1] == "Stopped."
    assert len(lines) <= 2, lines
    assert processes_of(stage.folder) == []


def test_a_signal_at_any_moment_of_the_start_ends_the_run_within_seconds(stage: SlowStage) -> None:
    for delay in (0.5, 1.5, 2.5, 4.0, 6.0):
        with stage.run() as process:
            time.sleep(delay)
            sent = time.monotonic()
            (stage.folder / "go").touch()
            process.terminate()
            lines = lines_of(process)
            assert process.returncode == 0, lines
            assert time.monotonic() - sent < _GRACE, lines
        assert lines[-1] == "Stopped."
        assert processes_of(stage.folder) == []


def test_a_batch_that_does_not_end_in_time_is_interrupted(stage: SlowStage) -> None:
    with stage.run("--stop-within", "2s") as process:
        until((stage.folder / "started-0").exists)
        process.terminate()
        sent = time.monotonic()
        lines = lines_of(process)  # "go" never appears
        assert process.returncode == 0, lines
        assert time.monotonic() - sent < _GRACE
    assert lines[-2:] == ["slow: the batch has not ended within 2 s and is interrupted.", "Stopped."]
    assert not list((stage.checkpoint / "commits").glob("[0-9]*"))
    until(lambda: processes_of(stage.folder) == [])


def test_a_signal_to_the_group_during_a_batch_ends_after_it(stage: SlowStage) -> None:
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


def test_a_killed_jvm_is_reported_by_one_message(stage: SlowStage) -> None:
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


def test_a_run_that_lost_its_lease_ends_in_the_middle_of_a_batch(
    stage: SlowStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_PIPELINE_LOSES", "1")
    with stage.run() as process:
        lines = lines_of(process)
        assert process.returncode == 1, lines
    assert lines[-1] == f"error: The lease of the checkpoint {stage.checkpoint} is lost."
    assert len(lines) <= 3, lines
    assert not (stage.checkpoint / "commits" / "0").exists()
    until(lambda: processes_of(stage.folder) == [])


def test_no_rewind_while_the_jvm_of_a_killed_run_lives(stage: SlowStage) -> None:
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
            assert not runs(jvm), f"{time.monotonic() - began} s"
            assert change.returncode == 0, lines_of(change)
    assert processes_of(stage.folder) == []


def test_a_terminated_command_stops_its_jvm(stage: SlowStage) -> None:
    checkpoint = unpack(stage.folder, "rocksdb")
    with stage.command("state", str(checkpoint)) as process:
        until(lambda: bool(children_of(process.pid)))
        os.killpg(process.pid, signal.SIGTERM)
        lines = lines_of(process)
        assert process.returncode == 128 + signal.SIGTERM, lines
    assert processes_of(stage.folder) == []
