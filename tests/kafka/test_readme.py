"""Every command of the README works as printed."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.registry import find_pipeline
from respool.settings import load

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def block(language: str, holding: str) -> str:
    matching: list[str] = [text for kind, text in BLOCKS if kind == language and holding in text]
    assert len(matching) == 1
    return matching[0]


def test_the_pipeline_of_the_readme_runs(kafka: KafkaCluster, tmp_path: Path, respool: str) -> None:
    (tmp_path / "shop.py").write_text(block("python", "orders = Pipeline("), encoding="utf-8")
    commands = block("", "respool run shop:orders shop:orders_archive --available-now").replace(
        "respool ", f"{respool} "
    )
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env={
            **{"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "RESPOOL_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
            "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"],
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    window = '{"start":"2025-09-04T07:00:00.000Z","end":"2025-09-04T08:00:00.000Z"}'
    read, *reprocessed = done.stdout.strip().splitlines()
    key, value = read.split("\t")
    assert key == f'{{"window":{window},"shop":"Lyon"}}'
    assert value == f'{{"window":{window},"shop":"Lyon","total":12.5}}'
    assert "orders batch 0  1 rows" in done.stderr
    assert reprocessed[-1].endswith(": 1 result published")
    assert [listed.name for listed in topics.list_topics(kafka) if listed.name == "orders-rejected"]


def test_the_test_of_the_readme_passes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("python", "orders = Pipeline("), encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(block("python", "run_batches("), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_settings_of_the_readme_are_read(tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text(block("toml", "[kafka]"), encoding="utf-8")
    settings = load(environ={"KAFKA_PASSWORD": "secret"}, folder=tmp_path)
    assert settings.kafka["sasl.password"] == "secret"
    assert settings.spark == {"spark.executor.memory": "4g"}
    assert find_pipeline("visit-counts", settings.pipelines["visit-counts"]).summary.startswith(
        "Counts visits in windows of 15"
    )


@cache
def help_of(respool: str, *command: str) -> str:
    return subprocess.run([respool, *command, "--help"], capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.mark.parametrize("line", sorted(set(re.findall(r"^(respool .*?)(?:  +#.*)?$", README, re.MULTILINE))))
def test_every_command_and_option_of_the_readme_exists(line: str, respool: str) -> None:
    words = line.split()[1:]
    command = words[:2] if words[0] in ("archive", "broker", "checkpoint", "savepoint", "topic") else words[:1]
    help_text = help_of(respool, *command)
    for option in (word for word in words if word.startswith("--")):
        assert option in help_text, f"respool {' '.join(command)} has no {option}"
