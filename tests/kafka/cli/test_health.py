"""What a supervisor gets from a run: its health over HTTP, and lines of JSON on standard error."""

import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from respool.kafka import producer
from respool.kafka.cluster import KafkaCluster
from support.slow_stage import SlowStage, lines_of, until, visit


@pytest.fixture
def stage(respool: str, tmp_path: Path, kafka: KafkaCluster, topic: str) -> SlowStage:
    producer.produce(kafka, topic, [visit(number) for number in range(6)])
    return SlowStage(respool, tmp_path, kafka, topic)


@pytest.fixture
def address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def ask(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of a probe's response; status 0 when nothing listens."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_a_run_is_live_at_once_and_ready_while_its_query_runs(stage: SlowStage, address: str) -> None:
    began = time.monotonic()
    with stage.run("--health", address, "--log-format", "json", "--trigger", "500ms") as process:
        until(lambda: ask(address, "/livez")[0] == 200)
        assert time.monotonic() - began < 2
        status, early = ask(address, "/readyz")
        assert status == 503
        assert early["phase"] in ("waiting for Kafka", "starting Spark")
        until((stage.folder / "started-0").exists)
        until(lambda: ask(address, "/readyz")[0] == 200)
        assert ask(address, "/readyz")[1]["pipelines"]["slow"]["batch"] is None
        time.sleep(1)  # longer than the trigger, of which Spark warns
        (stage.folder / "go").touch()
        until(lambda: ask(address, "/readyz")[1]["pipelines"]["slow"]["batch"] == 2)
        status, answer = ask(address, "/readyz?max_lag=0&max_silence=10m")
        assert status == 200, answer
        assert answer["pipelines"]["slow"]["lag"] == 0
        assert ask(address, "/livez?max_silence=0s")[0] == 503
        process.terminate()
        lines = lines_of(process)
        assert process.returncode == 0, lines
    assert ask(address, "/livez")[0] == 0
    objects = [json.loads(line) for line in lines]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in objects)
    batches = [line for line in objects if "batch" in line]
    assert [(line["pipeline"], line["batch"], line["rows"], line["lag"]) for line in batches] == [
        ("slow", 0, 2, 4),
        ("slow", 1, 2, 2),
        ("slow", 2, 2, 0),
    ]
    assert objects[-1]["message"] == "Stopped."
    warnings = [line for line in objects if line["level"] != "info"]
    assert {(line["level"], line["logger"]) for line in warnings} == {("warning", "spark.ProcessingTimeExecutor")}
    assert "falling behind" in warnings[0]["message"]


def test_a_failed_pipeline_makes_a_run_not_ready_but_live(stage: SlowStage, address: str) -> None:
    more = ("support.slow_pipeline:broken", "--health", address, "--log-format", "json")
    with stage.run(*more) as process:
        until(lambda: ask(address, "/readyz")[1].get("pipelines", {}).get("broken", {}).get("state") == "failed")
        status, answer = ask(address, "/readyz")
        assert status == 503
        assert answer["reasons"] == ["broken has failed: Python code raised an exception"]
        assert answer["pipelines"]["slow"]["state"] == "running"
        assert ask(address, "/livez")[0] == 200
        (stage.folder / "go").touch()
        process.terminate()
        lines = lines_of(process)
        assert process.returncode == 1, lines
    last = json.loads(lines[-1])
    assert last["level"] == "error"
    assert "this pipeline never works" in last["message"]
