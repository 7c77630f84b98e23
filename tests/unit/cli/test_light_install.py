"""Without pyspark: checkpoints, savepoints and archives can be inspected and changed; what needs Spark names it."""

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from support import checkpoints
from support.archive import write_hours

# As in an environment without these packages.
WITHOUT_SPARK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

from importlib import metadata
sys.meta_path.insert(0, Missing())
version = metadata.version
def without(name):
    if name == "pyspark":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without
sys.argv[0] = "respool"
from respool.cli.app import main
main()
"""


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *words],
        cwd=folder,
        env={**os.environ, "RESPOOL_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
    )


def output(folder: Path, *words: str) -> str:
    result = run(folder, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("spark", ["4.0.5", "4.1.4", "4.2.0"])
def test_a_checkpoint_of_each_spark_is_read_changed_and_kept(spark: str, tmp_path: Path) -> None:
    checkpoint = str(checkpoints.unpack(tmp_path, "rocksdb", spark).rename(tmp_path / "mine"))
    assert "Query  " in output(tmp_path, "checkpoint", "show", checkpoint)
    assert "✓" in output(tmp_path, "checkpoint", "verify", checkpoint)
    output(tmp_path, "savepoint", "create", checkpoint, "monday")
    assert "monday" in output(tmp_path, "savepoint", "list")
    output(tmp_path, "savepoint", "verify", "monday")
    output(
        tmp_path,
        "checkpoint",
        "rewind",
        checkpoint,
        "--last",
        "1",
        "--sink",
        "foreachBatch",
        "--allow-data-loss",
        "--yes",
    )
    output(tmp_path, "checkpoint", "undo", checkpoint, "--yes")
    output(tmp_path, "savepoint", "fork", "monday", str(tmp_path / "fork"), "--allow-data-loss", "--yes")


def test_an_archive_is_shown(tmp_path: Path) -> None:
    times = [datetime(2025, 9, 4, 7, minute, tzinfo=timezone.utc) for minute in range(3)]
    table = write_hours(tmp_path / "archive", "visits", [(time, {"visit_id": "a"}) for time in times])
    assert "visits" in output(tmp_path, "archive", "show", "--table", table)


def test_what_needs_spark_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from respool import Pipeline, ConsoleSink, RateSource\n"
        "rate = Pipeline('rate', source=RateSource(), sink=ConsoleSink())\n"
    )
    result = run(tmp_path, "run", "shop:rate")
    assert result.returncode == 1
    assert result.stderr.endswith(
        "This run needs Spark, which is not installed. Install it with: pip install 'respool[spark]'\n"
    )
    checkpoint = str(checkpoints.unpack(tmp_path, "rocksdb", "4.2.0"))
    result = run(tmp_path, "state", checkpoint)
    assert result.returncode == 1
    assert "pip install 'respool[spark]'" in result.stderr
    assert "fault of respool" not in result.stderr
    assert "visit-counts" in output(tmp_path, "pipelines")
