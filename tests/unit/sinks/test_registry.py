"""How far an output was at a savepoint, and how a sink follows a restore. No JVM."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typer.testing import CliRunner

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.app import app
from respool.errors import CheckpointError
from respool.sinks.registry import position_of
from respool.storage.local import LocalReader
from support.checkpoints import unpack

NEWEST = 13  # the newest batch of the golden checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return unpack(tmp_path, "rocksdb")


@pytest.fixture
def table(checkpoint: Path, tmp_path: Path) -> Path:
    """A table with all batches of the query, one in each version, as Spark's own sink writes it."""
    where, query = tmp_path / "table", CheckpointSnapshot(LocalReader(checkpoint)).query_id
    for batch in range(NEWEST + 1):
        noted = CommitProperties(app_transactions=[Transaction(query, batch)])
        write_deltalake(where, pa.table({"batch": [batch]}), mode="append", commit_properties=noted)
    return where


def batches(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["batch"].to_pylist())


def respool(*words: str, home: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--home", str(home)])
    if isinstance(done.exception, CheckpointError):
        return 1, f"{done.output} {done.exception}"
    return done.exit_code, done.output


def test_a_table_is_at_the_version_of_the_savepoints_batch(checkpoint: Path, table: Path, tmp_path: Path) -> None:
    query = CheckpointSnapshot(LocalReader(checkpoint)).query_id
    words = ("savepoint", "create", str(checkpoint), "one", "--batch", "9", "--sink", f"delta:{table}", "--json")
    code, output = respool(*words, home=tmp_path)
    assert code == 0, output
    sink = json.loads(output.splitlines()[-1])["sink"]
    assert (sink["version"], sink["transactions"]) == (9, {query: NEWEST})
    assert f"version 9, batch {NEWEST} of {query}" in respool("savepoint", "show", "one", home=tmp_path)[1]


def test_the_end_offsets_of_a_topic_are_kept() -> None:
    position = position_of("kafka:results", ["q"], 3, lambda topic: {1: 7, 0: 5} if topic == "results" else {})
    assert position.offsets == {"0": 5, "1": 7}
    assert position.unknown is None


def test_a_savepoint_is_made_though_kafka_is_out_of_reach(checkpoint: Path, tmp_path: Path) -> None:
    words = ("savepoint", "create", str(checkpoint), "one", "--sink", "kafka:results", "--json")
    code, output = respool(*words, "--bootstrap-servers", "127.0.0.1:1", home=tmp_path)
    assert code == 0, output
    assert "No Kafka broker answers at 127.0.0.1:1" in json.loads(output.splitlines()[-1])["sink"]["unknown"]


@pytest.mark.parametrize("output", ["kafka:results", "console", "delta:/nowhere/at/all"])
def test_an_unreachable_output_is_noted_and_stops_nothing(output: str) -> None:
    position = position_of(output, ["q"], 3, None)
    assert (position.output, position.offsets, position.version) == (output, None, None)
    assert position.unknown


def test_a_table_that_would_skip_batches_stops_a_restore_or_follows_it(
    checkpoint: Path, table: Path, tmp_path: Path
) -> None:
    assert respool("savepoint", "create", str(checkpoint), "one", "--batch", "9", home=tmp_path)[0] == 0
    # The files that it read were on another machine.
    there = ("one", str(checkpoint), "--sink", f"delta:{table}", "--allow-data-loss")
    words = ("savepoint", "restore", *there, "--yes", "--stopped")
    code, output = respool(*words, home=tmp_path)
    assert code == 1
    assert "it would skip batches 10 to 13 silently" in " ".join(output.split())
    assert batches(table) == list(range(NEWEST + 1))
    code, output = respool(*words, "--restore-sink", home=tmp_path)
    assert code == 0, output
    assert batches(table) == list(range(10))
    assert CheckpointSnapshot(LocalReader(checkpoint)).next_batch == 10
    assert respool("checkpoint", "undo", str(checkpoint), "--yes", home=tmp_path)[0] == 0
    assert batches(table) == list(range(NEWEST + 1))
    assert CheckpointSnapshot(LocalReader(checkpoint)).next_batch == NEWEST + 1


def test_a_promoted_fork_writes_to_a_table_under_an_id_of_its_own(
    checkpoint: Path, table: Path, tmp_path: Path
) -> None:
    respool("savepoint", "create", str(checkpoint), "one", "--batch", "9", home=tmp_path)
    respool("savepoint", "fork", "one", str(tmp_path / "fork"), "--allow-data-loss", home=tmp_path)
    words = ("promote", str(tmp_path / "fork"), str(checkpoint), "--yes", "--stopped", "--sink", f"delta:{table}")
    code, output = respool(*words, home=tmp_path)
    assert code == 0, output
    assert "Under its new id the query writes all batches from 10 on" in output
    assert batches(table) == list(range(NEWEST + 1))
