"""A cluster's address, and the wait for its executors."""

import socket
from datetime import timedelta
from typing import Any

import pytest

from respool.errors import MachineError
from respool.spark import cluster, internals
from respool.spark.cluster import Executor


class FakeConf(dict[str, str]):
    """Settings of an application, as `SparkContext.getConf` returns them."""


class FakeSession:
    def __init__(self, master: str = "spark://host:7077", **conf: str) -> None:
        self.sparkContext = self
        self.master = master
        self._settings = FakeConf({name.replace("_", "."): value for name, value in conf.items()})

    def getConf(self) -> FakeConf:
        return self._settings


def wait(session: Any, patience: float | None = None, notes: list[str] | None = None) -> list[Executor]:
    limit = None if patience is None else timedelta(seconds=patience)
    return cluster.wait_for_executors(session, limit, lambda: False, (notes if notes is not None else []).append)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        *(("local", True), ("local[2]", True), ("local[*, 4]", True)),
        *(("spark://h:1", False), ("yarn", False), ("local-cluster[2,1,1024]", False), ("k8s://https://h", False)),
    ],
)
def test_only_local_masters_run_tasks_in_the_driver(master: str, local: bool) -> None:
    assert cluster.is_local(master) is local


def test_a_master_that_does_not_answer_is_reported_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MachineError, match=rf"No Spark master answers at spark://127.0.0.1:{port} \(.*refused"):
        cluster.require_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(MachineError, match="as spark://HOST:PORT"):
        cluster.require_master("spark://127.0.0.1")
    cluster.require_master("yarn")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster.require_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


def test_the_wait_ends_when_the_declared_cores_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [[], [("0", 1, "")], [("0", 1, ""), ("1", 1, "")]]
    monkeypatch.setattr(internals, "running_executors", lambda _: answers.pop(0))
    assert wait(FakeSession(spark_cores_max="2")) == [Executor("0", 1, ""), Executor("1", 1, "")]
    assert answers == []


def test_no_executor_is_an_error_after_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "running_executors", lambda _: [])
    with pytest.raises(MachineError, match="no worker with 4g of memory"):
        wait(FakeSession(spark_executor_memory="4g"), patience=0)


def test_a_wait_for_the_first_executor_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [*([[]] * 5), [("0", 2, "")]]
    monkeypatch.setattr(internals, "running_executors", lambda _: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(cluster, "_FIRST", 0.0)
    monkeypatch.setattr(cluster, "_OTHERS", 0.0)
    notes: list[str] = []
    assert wait(FakeSession(), notes=notes) == [Executor("0", 2, "")]
    [note] = notes
    assert note.startswith("No executor has registered with spark://host:7077 in ")
    assert note.endswith("Waiting …")


def test_with_dynamic_allocation_no_executor_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "running_executors", lambda _: [])
    session: Any = FakeSession(spark_dynamicAllocation_enabled="true", spark_executor_cores="4")
    assert wait(session) == []
    assert cluster.cores_of(session, []) is None
    session.getConf()["spark.dynamicAllocation.maxExecutors"] = "5"
    assert cluster.cores_of(session, []) == 20


@pytest.mark.parametrize(("master", "cores"), [("spark://h:1", 3), ("yarn", 8)])
def test_cores_are_those_that_registered_or_those_that_were_asked_for(master: str, cores: int) -> None:
    session: Any = FakeSession(master, spark_executor_instances="4", spark_executor_cores="2")
    assert cluster.cores_of(session, [Executor("0", 1, ""), Executor("1", 2, "")]) == cores


def test_the_addresses_of_logs_are_few() -> None:
    logs = [Executor(str(number), 1, f"http://w{number}/log") for number in range(6)]
    sentence = cluster.describe_logs(logs)
    assert sentence.endswith("http://w0/log http://w1/log http://w2/log http://w3/log, and 2 more")
    assert "web page" in cluster.describe_logs([Executor("0", 1, "")])
