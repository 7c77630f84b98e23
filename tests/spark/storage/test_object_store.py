"""Spark, respool and delta-rs on one object store, configured once; and local paths that stay local."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from respool.operations.checkpoint import Checkpoint
from respool.operations.savepoints import Savepoints
from respool.settings import load
from respool.storage import object_store
from support import s3_server

SECRET = "a-secret-that-is-shown-nowhere"
STORAGE = "s3a://plain/all"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server on this machine."""
    with s3_server.serving() as address:
        yield address


@pytest.fixture
def folder(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a respool.toml that fully describes the store; the environment has nothing."""
    s3fs = pytest.importorskip("s3fs")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "respool.toml").write_text(
        f"""
        master = "local[2]"
        [s3]
        endpoint = "{endpoint}"
        region = "eu-west-3"
        access_key = "test"
        secret_key = "file:secret"
        [spark]
        spark.sql.shuffle.partitions = 1
        """
    )
    monkeypatch.chdir(tmp_path)
    settings = object_store.use(load(folder=tmp_path))
    bucket = s3fs.S3FileSystem(key="test", secret=SECRET, endpoint_url=endpoint)
    if not bucket.exists("plain"):
        bucket.mkdir("plain")
    assert settings.s3["secret_key"] == SECRET
    return tmp_path


def run(folder: Path, *words: str, **variables: str) -> str:
    """Run the query in a process of its own; return what it printed."""
    environ = {**os.environ, **variables, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "support.store_query", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def counts(table: str) -> dict[str, int]:
    """Return the rows of a table of results, read without Spark."""
    rows: list[Any] = (
        DeltaTable(table, storage_options=object_store.delta_options(table)).to_pyarrow_table().to_pylist()
    )
    return {row["value"]: row["count"] for row in rows}


def test_a_query_with_all_its_files_in_the_store(folder: Path) -> None:
    elsewhere = {"RESPOOL_STORAGE": STORAGE}
    printed = run(folder, "words", "a", "b", "a", **elsewhere)
    assert "java" in printed
    assert SECRET not in printed
    assert SECRET not in (folder / ".respool" / "logs" / "spark.log").read_text()

    settings = object_store.use(load({"storage": STORAGE}, folder=folder))
    checkpoint = Checkpoint("words", settings=settings)
    assert checkpoint.location == "s3://plain/all/checkpoints/words"
    assert checkpoint.summary().next_batch == 3
    assert checkpoint.verify().ok
    assert counts("s3://plain/all/results/counts") == {"a": 2, "b": 1}
    assert not (folder / ".respool" / "checkpoints").exists()
    assert not (folder / ".respool" / "results").exists()

    # Rewound, restored and run on, Spark starts on what respool left, markers of folders or not.
    Savepoints(settings=settings).create(checkpoint, "three")
    checkpoint.apply(checkpoint.plan_rewind(to_batch=1, assume_stopped=True, allow_data_loss=True))
    run(folder, "words", "c", **elsewhere)
    assert counts("s3://plain/all/results/counts") == {"a": 2, "b": 1, "c": 1}
    assert Checkpoint("words", settings=settings).verify().ok


def test_local_paths_stay_local_whatever_the_default_filesystem_is(folder: Path) -> None:
    with (folder / "respool.toml").open("a") as file:
        file.write('spark.hadoop.fs.defaultFS = "s3a://plain"\n')
    run(folder, "words", "a", "b", "a")
    settings = object_store.use(load(folder=folder))
    home = folder / ".respool"
    assert (home / "checkpoints" / "words" / "commits" / "2").is_file()
    assert Checkpoint("words", settings=settings).verify().ok
    assert counts(str(home / "results" / "counts")) == {"a": 2, "b": 1}
