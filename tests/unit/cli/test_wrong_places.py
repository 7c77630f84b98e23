"""Invalid addresses, homes and variables are reported by one message, never by a stack trace."""

import os
import subprocess
from pathlib import Path

import pytest

from respool.errors import SettingsError
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.spark.session import spark_session


def run(respool: str, folder: Path, *words: str, code: int = 1, **variables: str) -> str:
    """Run a command that must fail; return its message."""
    environment = {**os.environ, **variables}
    done = subprocess.run([respool, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert any(line.startswith("error: ") for line in done.stderr.splitlines())
    return done.stderr


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("hdfs://nowhere/checkpoint", "hdfs://nowhere/checkpoint cannot be opened"),
        ("ftp://127.0.0.1:1/checkpoint", "ftp://127.0.0.1:1/checkpoint cannot be opened"),
        ("dbfs:/checkpoint", "/dbfs/checkpoint"),
        ("unheard://of", "unheard://of cannot be opened"),
    ],
)
def test_filesystems_that_cannot_be_used(respool: str, tmp_path: Path, location: str, words: str) -> None:
    assert words in run(respool, tmp_path, "checkpoint", "show", location)
    assert words in run(respool, tmp_path, "savepoint", "list", "--savepoints", location)


@pytest.mark.parametrize("home", ["hdfs://nowhere/home", "s3://bucket/home", "dbfs:/home"])
def test_a_home_must_be_local(respool: str, tmp_path: Path, home: str) -> None:
    assert "a URL; expected a folder on a local disk" in run(respool, tmp_path, "broker", "start", "--home", home)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_a_file(respool: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file; expected a folder" in run(respool, tmp_path, "broker", "start", "--home", "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_home_that_cannot_be_made(respool: str, tmp_path: Path) -> None:
    # /proc takes no new folder from anybody, not even from root.
    assert "/proc/home cannot be used" in run(respool, tmp_path, "broker", "start", "--home", "/proc/home")


@pytest.mark.parametrize("servers", ["localhost", "localhost:", "localhost:0", "a:1,b", "localhost:99999", "::1", ""])
def test_kafka_addresses_need_a_port(servers: str) -> None:
    with pytest.raises(SettingsError, match="is not HOST:PORT"):
        KafkaCluster(servers)


@pytest.mark.parametrize("servers", ["localhost:9092", "a.b:1, c-d:65535", "[::1]:9092", "SASL_SSL://k1:9093"])
def test_kafka_addresses_with_a_port_are_accepted(servers: str) -> None:
    assert KafkaCluster(servers).bootstrap_servers == servers


def test_kafka_addresses_are_checked_by_commands(respool: str, tmp_path: Path) -> None:
    message = run(respool, tmp_path, "topic", "list", "--bootstrap-servers", "localhost")
    assert "'localhost' is not HOST:PORT" in message


def test_spark_connect_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(SettingsError, match=r"env -u SPARK_REMOTE"), spark_session(Settings(home=tmp_path)):
        pass


def test_an_unexpected_error_is_one_message_with_its_trace_in_a_file(respool: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import respool.cli.options\n"
        "def fail(**flags): raise ZeroDivisionError('by accident \\ud800')\n"
        "respool.cli.options.load = fail\n"
    )
    message = run(
        respool,
        tmp_path,
        "pipelines",
        code=70,
        PYTHONPATH=os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))),
        TMPDIR=str(tmp_path),
    )
    assert "ZeroDivisionError: by accident" in message
    (trace,) = tmp_path.glob("respool-fault-*.log")
    assert str(trace) in message
    assert "ZeroDivisionError" in trace.read_text()
    assert trace.stat().st_mode & 0o077 == 0
