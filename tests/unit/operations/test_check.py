"""Mistakes in settings and pipelines are reported without Spark, Kafka and Java."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import respool
from respool import (
    DeltaSink,
    JsonDecoder,
    KafkaSink,
    Pipeline,
    PipelineError,
    RespoolError,
    Sessions,
    Windows,
)
from respool.operations.check import check, check_settings
from respool.pipeline.registry import BUILT_IN
from respool.settings import Settings

GOOD = Pipeline(
    name="orders",
    topic="orders",
    decode=JsonDecoder("shop STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at"),
    transform=lambda events: events,
    watermark="10 minutes",
    sink=KafkaSink("totals", key=("window", "shop")),
    results=Windows("1 hour"),
)


def problem(**settings: Any) -> str:
    with pytest.raises(RespoolError) as caught:
        check_settings(Settings(**settings))
    return str(caught.value)


def test_all_built_in_pipelines_are_sound() -> None:
    results = check(*BUILT_IN, settings=Settings())
    assert [(result.subject, result.level) for result in results] == [
        (name, "ok") for name in ("respool.toml", *BUILT_IN)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode": JsonDecoder("shop STRNG, at TIMESTAMP", "at")}, "'STRNG' at character 6 .* Did you mean 'string'"),
        ({"decode": JsonDecoder("shop STRING at TIMESTAMP", "at")}, "it has 'at' at character 13, where a comma"),
        ({"decode": JsonDecoder("at TIMESTAMP", "time")}, "event time 'time' is not one of its fields"),
        ({"decode": "json"}, "decode is a str, which is not a decoder"),
        ({"decode": JsonDecoder("at STRING", "at")}, "must be declared as TIMESTAMP"),
        ({"decode": JsonDecoder("at TIMESTAMP, a INT, A INT", "at")}, "has the field 'a' twice"),
        ({"output_mode": "complete", "watermark": None, "stateless": True, "results": None}, "needs an aggregation"),
        ({"watermark": None}, "no watermark: no result would ever be complete"),
        ({"topic": "my orders"}, "topics has 'my orders', which is not a name"),
        ({"sink": KafkaSink("a/b")}, "writes to the topic 'a/b', which is not a name"),
        ({"sink": object()}, "writes to a object, which is not a sink"),
        ({"transform": None}, "is not a function"),
        ({"results": Sessions("10m", key=("shp",))}, "not a field of its events .*Did you mean 'shop'"),
    ],
)
def test_a_mistake_is_refused_when_the_pipeline_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        replace(GOOD, **changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": "localhost"}, "is not HOST:PORT"),
        ({"kafka": {"security.protocol": "SSL"}}, "embedded broker"),
        ({"kafka": {"bootstrap.servers": "a:1", "sasl.username": "alice"}}, "no sasl.mechanism"),
        ({"spark": {"spark.remote": "sc://x"}}, "Spark Connect"),
        ({"spark": {"spark.api.mode": "connect"}}, "Spark Connect"),
    ],
)
def test_settings_that_no_run_could_use_are_reported(settings: dict[str, Any], message: str) -> None:
    assert message in problem(**settings)
    (result,) = check("sessions", settings=Settings(**settings))
    assert (result.subject, result.level) == ("respool.toml", "wrong")
    assert message in result.message


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_variable_for_spark_connect_is_reported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "sc://localhost")
    assert f"The variable {name} is set" in problem()


def test_a_key_that_looks_misspelt_is_doubtful_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubtful = replace(GOOD, sink=DeltaSink("t", key=("window", "shops")))
    monkeypatch.setattr("respool.operations.check.find_pipeline", lambda *_: doubtful)
    _, result = check("sessions", settings=Settings())
    assert result.level == "doubtful"
    assert "has the column 'shops'" in result.message
    assert "Did you mean 'shop'?" in result.message


def test_without_names_the_pipelines_of_the_settings_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "respool.toml").write_text(
        "[pipelines.sessions]\ngapp = '1m'\n[pipelines.visit-counts]\nwindow = '1m'\n[pipelines.TYPO]\nx = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    results = respool.check()
    assert [(result.subject, result.level) for result in results] == [
        ("respool.toml", "wrong"),
        ("sessions", "wrong"),
        ("visit-counts", "ok"),
    ]
    assert "[pipelines.TYPO] in respool.toml is not of a pipeline" in results[0].message
    assert "Did you mean 'gap'?" in results[1].message
    (tmp_path / "respool.toml").write_text("hoome = 'x'\n")
    (wrong,) = respool.check("sessions")
    assert "Did you mean 'home'?" in wrong.message


def run(folder: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a command where there is no Java."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    command = [sys.executable, "-m", "respool", *words]
    return subprocess.run(command, cwd=folder, env={**inherited, **environ}, capture_output=True, text=True, timeout=60)


def test_the_command_needs_no_java_and_its_exit_code_is_the_result(tmp_path: Path) -> None:
    good = run(tmp_path, "check", "sessions", "visit-counts")
    assert (good.returncode, good.stderr) == (0, "")
    assert [line.split() for line in good.stdout.splitlines()] == [
        ["ok", "respool.toml"],
        ["ok", "sessions"],
        ["ok", "visit-counts"],
    ]
    (tmp_path / "shop.py").write_text(
        "from respool import *\nfrom respool import Pipeline, ConsoleSink, JsonDecoder\n"
        "orders = Pipeline('orders', 'orders', lambda rows: rows, ConsoleSink(), JsonDecoder('at TIMESTAM', 'at'))\n"
    )
    bad = run(tmp_path, "check", "shop:orders", "--json")
    assert bad.returncode == 1
    assert [result["level"] for result in json.loads(bad.stdout)] == ["ok", "wrong"]
    (tmp_path / "respool.toml").write_text("[[")
    assert run(tmp_path, "check").returncode == 1


def test_a_run_checks_before_it_starts_anything(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from respool import Pipeline, ConsoleSink, JsonDecoder\n"
        "orders = Pipeline('orders', 'orders', lambda rows: rows, ConsoleSink(), JsonDecoder('at TIMESTAM', 'at'))\n"
    )
    done = run(tmp_path, "run", "shop:orders", "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 1
    assert "The pipeline orders: The decoder's schema 'at TIMESTAM' is not readable" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["shop.py"]
