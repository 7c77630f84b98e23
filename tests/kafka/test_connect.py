"""Spark Connect, on a real server: what needs no JVM of its own works there, what needs it is refused in a line."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from support.connect_server import connect_server

pytest.importorskip("grpc", reason="Spark Connect needs grpcio")

SPAN = ("2024-01-01T01:00Z", "2024-01-01T09:00Z")


@dataclass(frozen=True)
class Place:
    """A home with a live query that has finished, its archive, and a server."""

    respool: str
    folder: Path
    kafka: KafkaCluster
    server: str

    def run(self, *words: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
        return subprocess.run(
            [self.respool, *words],
            cwd=self.folder,
            env={**inherited, "RESPOOL_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def remote(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run(*words, environ={"SPARK_REMOTE": self.server})


@pytest.fixture(scope="module")
def place(
    respool: str, tmp_path_factory: pytest.TempPathFactory, kafka: KafkaCluster, settings: Settings
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("connect")
    toml = '[pipelines.visit-counts]\ntopic = "connect-visits"\noutput_topic = "connect-counts"\n'
    toml += '[pipelines.visits-archive]\ntopic = "connect-visits"\n'
    (folder / "respool.toml").write_text(f'master = "local[2]"\n{toml}')
    with connect_server(settings, folder) as server:
        here = Place(respool, folder, kafka, server)
        for words in (
            ("generate", "--topic", "connect-visits", "--count", "500", "--late", "0.05", "--lateness", "4h"),
            ("generate", "--topic", "connect-visits", "--count", "1", "--start", "2024-01-02T00:00"),
            ("run", "visit-counts", "visits-archive", "--available-now", "--max-offsets-per-trigger", "200"),
        ):
            ran = here.run(*words)
            assert ran.returncode == 0, ran.stderr
        yield here


def test_what_only_reads_answers_as_with_a_jvm(place: Place) -> None:
    different = 3  # the exit code
    place.remote("savepoint", "create", "visit-counts", "monday")
    for code, *words in (
        (0, "state", "visit-counts", "--json"),
        (0, "savepoint", "verify", "monday", "--load", "--json"),
        (different, "diff", "visit-counts", "kafka:connect-visits", "--json"),
        (different, "audit", "visit-counts", *SPAN, "--json"),
        (0, "reprocess", "visit-counts", *SPAN, "--dry-run", "--json"),
    ):
        local, remote = place.run(*words), place.remote(*words)
        assert remote.returncode == local.returncode == code, remote.stderr
        assert json.loads(remote.stdout) == json.loads(local.stdout)
        assert f"Connecting to {place.server} …" in remote.stderr.splitlines()
        assert "Starting Spark" not in remote.stderr


def test_a_span_is_reprocessed_on_the_server(place: Place) -> None:
    words = ("audit", "visit-counts", *SPAN, "--master", place.server)
    assert place.run(*words).returncode == 3  # late visits are missing
    reprocessed = place.remote("reprocess", "visit-counts", *SPAN)
    assert reprocessed.returncode == 0, reprocessed.stderr
    audited = place.run(*words)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "0 wrong, 0 missing, 0 unexpected" in audited.stdout


def test_what_needs_a_jvm_refuses_in_a_line(place: Place) -> None:
    for words, reason in (
        (("run", "visit-counts", "--available-now"), "The variable SPARK_REMOTE is set"),
        (("reprocess", "visit-counts", *SPAN, "--output", "out"), "cannot be checked over Spark Connect"),
        (("diff", "visit-counts", "kafka:connect-visits", "--output", "out"), "cannot be checked over Spark Connect"),
    ):
        refused = place.remote(*words)
        assert refused.returncode == 1, refused.stdout
        errors = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert errors[0] == refused.stderr.splitlines()[-1]
        assert reason in errors[0]
        assert "Traceback" not in refused.stderr
    assert not (place.folder / "out").exists()
