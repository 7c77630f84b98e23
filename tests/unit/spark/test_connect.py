"""Spark Connect without a server: who is asked, what is refused, and that no secret is shown."""

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from respool.errors import MachineError, SettingsError
from respool.operations.check import check_settings
from respool.operations.context import session
from respool.reprocessing.target import StagedTarget
from respool.settings import Settings
from respool.spark import connect
from respool.spark.internals import HadoopPath
from respool.spark.session import any_session, spark_session
from support.checkpoints import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_CONNECT_MODE"):
        monkeypatch.delenv(name, raising=False)


def test_the_server_is_named_by_the_master_the_settings_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect.server_of(Settings()) is None
    monkeypatch.setenv("SPARK_REMOTE", "sc://environment:1")
    assert connect.server_of(Settings()) == "sc://environment:1"
    assert connect.server_of(Settings(spark={"spark.remote": "sc://table:1"})) == "sc://table:1"
    assert connect.server_of(Settings(master="sc://master:1")) == "sc://master:1"


def test_a_token_is_never_shown() -> None:
    assert connect.shown("sc://host:15002/;token=abc;user_id=me") == "sc://host:15002"
    assert connect.shown("sc://me:abc@host:15002") == "sc://host:15002"


def test_what_needs_a_jvm_refuses_connect_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, problem in (
        (Settings(master="sc://host:1/;token=abc"), "The master sc://host:1 is a Spark Connect server"),
        (Settings(spark={"spark.remote": "sc://host:1"}), "asks for Spark Connect"),
        (Settings(spark={"spark.api.mode": "connect"}), "asks for Spark Connect"),
    ):
        with pytest.raises(SettingsError) as refused, spark_session(settings):
            pass
        assert problem in str(refused.value)
        assert "\n" not in str(refused.value)
        assert "abc" not in str(refused.value)
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:1")
    with pytest.raises(SettingsError, match="env -u SPARK_REMOTE"):
        check_settings(Settings())
    check_settings(Settings(), jvm=False)


def test_a_callers_session_on_a_server_is_refused_where_a_jvm_is_needed() -> None:
    remote = cast("SparkSession", type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})())
    with pytest.raises(SettingsError, match="make the session without `remote`"), session(Settings(), remote, print):
        pass
    with session(Settings(), remote, print, jvm=False) as active:
        assert active is remote
    with pytest.raises(SettingsError, match="out cannot be checked over Spark Connect"):
        HadoopPath(remote, "out")
    with pytest.raises(SettingsError, match="cannot be checked over Spark Connect"):  # before anything is staged
        StagedTarget(remote, "table", "run", lambda rows: None)


def test_a_server_that_does_not_answer_is_reported_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{free.getsockname()[1]}"
    refused = pytest.raises(MachineError, match=f"No Spark Connect server answers at {address}: Connection refused")
    with refused, any_session(Settings(master=f"{address}/;token=abc")):
        pass


def test_checkpoints_and_savepoints_need_no_spark(respool: str, tmp_path: Path) -> None:
    checkpoint = str(unpack(tmp_path, "stateless"))
    environ = {**os.environ, "SPARK_REMOTE": "sc://127.0.0.1:1", "JAVA_HOME": "/nowhere"}
    for words in (
        ("checkpoint", "show", checkpoint),
        ("checkpoint", "verify", checkpoint),
        ("checkpoint", "rewind", checkpoint, "--last", "1", "--dry-run", "--stopped", "--allow-data-loss"),
        ("savepoint", "create", checkpoint, "monday"),
        ("savepoint", "list"),
        ("savepoint", "verify", "monday"),
    ):
        ran = subprocess.run([respool, *words], cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert ran.returncode == 0, (words, ran.stdout + ran.stderr)
