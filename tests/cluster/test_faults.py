"""Killed processes of a cluster change no result, and the checkpoint can be changed afterwards as any other."""

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import respool
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from support.cluster import StandaloneCluster, await_true
from support.cluster_driver import Driver, batches_of, ended
from support.processes import children_of, runs

START = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
EVENTS = 1_800
IN_A_BATCH = 150
TOPIC = "cluster-visits"


@dataclass(frozen=True)
class SessionsRun:
    """The pipeline `sessions`, which keeps its state in Python workers on the executors.

    Attributes:
        driver: The machine that runs it.
        checkpoint: Its checkpoint.
    """

    driver: Driver
    checkpoint: Path

    @property
    def settings(self) -> Settings:
        kafka = self.driver.kafka.bootstrap_servers
        return replace(Settings(), home=self.driver.folder / "home", bootstrap_servers=kafka)

    def words(self, output: str = "", *more: str) -> list[str]:
        sets = ["--set", f"topic={TOPIC}", "--set", f"output_topic={TOPIC}-out{output}"]
        sizes = ["--available-now", "--no-dead-letter", "--max-offsets-per-trigger", str(IN_A_BATCH)]
        return ["sessions", *sets, *sizes, "--json", *more]

    def committed(self) -> list[int]:
        return sorted(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))

    def results(self, output: str = "", start: int = 0) -> dict[bytes, bytes]:
        """Return what a consumer that upserts by key has, of the records from an offset on."""
        latest: dict[bytes, bytes] = {}
        for record in consumer.read(self.driver.kafka, f"{TOPIC}-out{output}"):
            if record.offset < start:
                continue
            assert record.key is not None
            latest.pop(record.key, None)
            if record.value is not None:
                latest[record.key] = record.value
        return latest


def send(kafka: KafkaCluster, first: int, last: int) -> None:
    """Send an event for every six seconds, to the partitions in turn; a visit has ten, four minutes apart."""
    for partition in (0, 1):
        values: Iterable[dict[str, str]] = (
            {"visit_id": f"v{number // 400}-{number % 40}", "event_time": str(START + timedelta(seconds=6 * number))}
            for number in range(first + partition, last, 2)
        )
        producer.produce_together(kafka, TOPIC, [json.dumps(value).encode() for value in values], partition)


@pytest.fixture(scope="module")
def survived(
    standalone: StandaloneCluster, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> SessionsRun:
    """A run during which a worker, an executor and the driver were killed, and which was stopped by a signal."""
    topics.create(kafka, TOPIC, partitions=2)
    for output in ("", "-fork"):  # in one partition, records are in the order of their batches
        topics.create(kafka, f"{TOPIC}-out{output}", partitions=1)
    send(kafka, 0, EVENTS)
    driver = Driver(standalone, kafka, tmp_path_factory.mktemp("driver"))
    driver.configure()
    run = SessionsRun(driver, driver.folder / "home" / "checkpoints" / "sessions")

    with driver.start(*run.words()) as process:
        for batch in batches_of(process):
            if batch == 1:
                standalone.workers[-1].kill()
                standalone.complete()
            elif batch == 4:
                await_true(lambda: len(standalone.executors()) == 2, "the start of another executor")
                os.kill(standalone.executors()[0], signal.SIGKILL)
            elif batch == 6:
                of_driver = children_of(process.pid)
                process.kill()
        assert process.wait() == -signal.SIGKILL, process.stderr and process.stderr.read()
    await_true(lambda: not any(map(runs, of_driver)), "the end of the driver's JVM")
    before = run.committed()[-1]
    reported = []
    with driver.start(*run.words()) as process:
        for batch in batches_of(process):
            reported.append(batch)
            if len(reported) == 1:
                process.terminate()
    assert process.returncode == 0
    # Each batch that was committed is reported, also the last one before the stop.
    assert reported == [batch for batch in run.committed() if batch > before]
    assert len(reported) < 4
    driver.run(*run.words())
    return run


def test_results_are_those_of_a_local_run(survived: SessionsRun) -> None:
    log = (survived.driver.folder / "home" / "logs" / "spark.log").read_text()
    assert "Lost executor" in log
    words = survived.words("-local", "--checkpoint", str(survived.driver.folder / "local"))
    topics.create(survived.driver.kafka, f"{TOPIC}-out-local", partitions=1)
    survived.driver.run(*words, local=True)
    local = survived.results("-local")
    assert survived.results() == local
    assert len(local) > EVENTS / 10 / 2  # most visits have ended


def test_the_first_start_chose_the_partitions_and_the_checkpoint_keeps_them(survived: SessionsRun) -> None:
    assert {folder.name for folder in (survived.checkpoint / "state" / "0").glob("[0-9]*")} == {"0", "1"}
    summary = respool.Checkpoint("sessions", settings=survived.settings).summary()
    assert summary.settings["shuffle partitions"] == "2"


def test_a_rewind_an_undo_a_savepoint_and_a_fork(survived: SessionsRun) -> None:
    checkpoint = respool.Checkpoint("sessions", settings=survived.settings)
    savepoint = respool.Savepoints(settings=survived.settings).create(checkpoint, "kept")
    assert savepoint.verify().ok
    committed, results = survived.committed(), survived.results()
    checkpoint.rewind(to_batch=5)
    assert survived.committed()[-1] == 4
    checkpoint.apply(checkpoint.plan_undo())
    assert survived.committed() == committed
    assert checkpoint.verify().ok

    checkpoint.rewind(to_batch=5)
    survived.driver.cluster.complete()
    survived.driver.run(*survived.words())
    assert survived.results() == results
    assert checkpoint.verify().ok

    send(survived.driver.kafka, EVENTS, EVENTS + 400)
    end = topics.end_offsets(survived.driver.kafka, f"{TOPIC}-out")[0]
    survived.driver.run(*survived.words())
    forked = ["--from-savepoint", "kept", "--checkpoint", str(survived.driver.folder / "fork")]
    survived.driver.run(*survived.words("", *forked, "--sink-suffix", "-fork"))
    assert survived.results("-fork") == survived.results(start=end)
    assert len(survived.results("-fork")) > 20


def test_a_cluster_without_room_is_reported_and_nothing_runs(driver: Driver, kafka: KafkaCluster, topic: str) -> None:
    driver.configure(**{"spark.executor.memory": "50g"})
    words = ["--available-now", "--set", f"topic={topic}", "--set", f"output_topic={topic}-out"]
    _, error = ended(driver.start("visit-counts", *words, "--give-up-after", "2s"), code=1)
    assert f"error: No executor has registered with {driver.cluster.address}" in error
    assert "or no worker with 50g of memory" in error
    assert not (driver.folder / "home" / "checkpoints" / "visit-counts" / "offsets").exists()
