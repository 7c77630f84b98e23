"""Which Spark is installed, and whose jars it needs."""

from pathlib import Path

import pytest

from respool.errors import MachineError
from respool.local import jars
from respool.settings import Settings
from respool.spark import installed

JAR = Path("/jars/delta.jar")


@pytest.fixture(autouse=True)
def _jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "spark_jars", lambda settings: [JAR])


def of(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(installed, "version", lambda: version)


def test_the_jars_are_those_of_the_locked_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jars.spark_version().rpartition(".")[0] in installed.SUPPORTED
    of(monkeypatch, jars.spark_version())
    assert installed.own_jars(Settings()) == [JAR]


def test_another_spark_needs_jars_that_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    of(monkeypatch, "4.1.4")
    with pytest.raises(MachineError, match=r"are for Spark 4\.2; pyspark 4\.1\.4 is installed.*spark\.jars\.packages"):
        installed.own_jars(Settings())
    named = Settings(spark={"spark.jars.packages": "io.delta:delta-spark_2.13:4.1.0"})
    assert installed.own_jars(named) == []


def test_a_spark_that_is_not_supported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    of(monkeypatch, "3.5.1")
    with pytest.raises(MachineError, match=r"pyspark 3\.5\.1 is installed; expected one of the versions 4\.0"):
        installed.own_jars(Settings(spark={"spark.jars": "x.jar"}))
    of(monkeypatch, "")
    with pytest.raises(MachineError, match=r"pip install 'respool\[spark\]'"):
        installed.require("This run")
