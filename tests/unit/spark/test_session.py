"""Which Python runs the tasks of a session."""

import os
import sys
from typing import Any

import pytest

from respool.spark import internals, session


class FakeBuilder:
    """Builds a session with a master and settings of spark-submit."""

    def __init__(self, master: str, **conf: str) -> None:
        self.sparkContext = self
        self.master = master
        self.pythonExec = os.environ["PYSPARK_PYTHON"]  # as pyspark does
        self._settings = {name.replace("_", "."): value for name, value in conf.items()}

    def config(self, name: str, value: str) -> "FakeBuilder":
        return self

    def getOrCreate(self) -> "FakeBuilder":
        return self

    def getConf(self) -> dict[str, str]:
        return self._settings


def python_of_tasks(monkeypatch: pytest.MonkeyPatch, master: str, **conf: str) -> str:
    with session._default_python() as is_default:
        monkeypatch.setattr("pyspark.sql.SparkSession.builder", FakeBuilder(master, **conf))
        built: Any = session._session({}, is_default)
    return str(built.pythonExec)


@pytest.fixture(autouse=True)
def _no_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(internals, "running_jvm", lambda: None)


def test_local_tasks_run_in_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_of_tasks(monkeypatch, "local[2]") == sys.executable
    assert "PYSPARK_PYTHON" not in os.environ  # another session of this process may be on a cluster


def test_executors_use_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_of_tasks(monkeypatch, "spark://host:7077") == "python3"


def test_executors_use_the_python_that_a_setting_or_a_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_of_tasks(monkeypatch, "yarn", spark_pyspark_python="/opt/python") == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the same path on every host
    assert python_of_tasks(monkeypatch, "spark://host:7077") == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
