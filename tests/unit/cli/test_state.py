"""What `respool state` prints without Spark: what can be read, and what cannot."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state.columns import columns_of
from respool.checkpoint.state.operators import readable
from respool.checkpoint.state.selection import StateSelection, select_state
from respool.cli.app import app
from respool.errors import RespoolError
from respool.format.model import InclusiveRange
from respool.storage.open import open_reader
from support.checkpoints import kinds, unpack, versions

Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Golden checkpoints, unpacked once: nothing here changes them."""
    return cache(lambda kind: unpack(tmp_path_factory.mktemp("golden"), kind))


def run(*words: object) -> tuple[int, str, str]:
    """Return the exit code of a command, its output, and its messages."""
    done = CliRunner().invoke(app, ["state", *map(str, words)])
    error = f"error: {done.exception}" if isinstance(done.exception, RespoolError) else ""
    return done.exit_code, done.stdout, " ".join(f"{done.stderr} {error}".split())


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("operators", ["aggregation", "--operator 0", "deduplication", "--operator 1"]),
        ("join", ["--store left ", "--store right ", "--store right-keyWithIndexToValue"]),
        ("join-families", ["--store left ", "--store right ", "--store left-keyToNumValues"]),
        ("transform", ["--var amounts  a list", "--var by_id    a map", "--var rows     a value", "--timers"]),
    ],
)
def test_what_there_is_to_read_is_listed(golden: Unpacked, kind: str, lines: list[str]) -> None:
    code, shown, said = run(golden(kind))
    assert code == 0, said
    for text in (*lines, "Batches that can be read: 0 to 14"):
        assert text in shown
    assert "Starting Spark" not in said
    listed = json.loads(run(golden(kind), "--json")[1])
    assert listed["batches"] == [[0, 14]]
    assert all(choice["options"] in shown for choice in listed["choices"])


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (
            "hdfs",
            "--batch 99",
            "batch 99 cannot be read: there is no such batch yet. Batches that can be read: 0 to 13.",
        ),
        ("hdfs-purged", "--batch 2", "it is no longer kept. Batches that can be read: 9 to 13."),
        ("hdfs", "--operator 3", "no stateful operator 3. The query has: 0 (aggregation)"),
        ("operators", "--batch 4", "Name one with --operator: 0 (aggregation), 1 (deduplication)"),
        ("operators", "--output x.csv", "Name one with --operator: 0 (aggregation), 1 (deduplication)"),
        ("hdfs", "--store left", "has no store 'left'. It has: default."),
        ("hdfs", "--var count", "Operator 0 (aggregation) has no variables and no timers. Leave --var out."),
        ("hdfs", "--timers", "Leave --timers out."),
        ("join", "--operator 0", "Name one with --store: left, right, left-keyToNumValues"),
        ("join", "--store lefty", "Did you mean 'left'?"),
        ("transform", "--var row", "has no variable 'row'. Did you mean 'rows'?"),
        ("transform", "--batch 3", "has 3 variables. Name one with --var: amounts (list), by_id (map), rows (value)."),
        ("transform", "--var rows --timers", "Leave one of them out"),
        ("transform", "--store left", "has no store 'left'. Name a variable with --var."),
        (
            "transform",
            "--var amounts --changes 3..4",
            "only the first element of a list that changed; amounts is a list",
        ),
        ("transform", "--timers --changes 3..4", "Spark does not report changes of timers"),
        ("hdfs", "--changes 5..3", "ends before it begins"),
        ("hdfs", "--changes 3..99", "there is no such batch yet"),
        ("hdfs", "--changes five", "expected two batches, as 5..8, or one"),
        ("hdfs", "--changes 3..4 --batch 3", "Leave --batch out"),
        ("rocksdb", "--changes 3..4", "RocksDB without changelog"),
        ("ids", "--changes 3..4", "RocksDB without changelog"),
        ("stateless", "", "keeps no state: there is nothing to read"),
        ("hdfs", "--key count", "expected NAME=VALUE"),
        ("hdfs", "--key key=a --key key=b", "names key twice"),
        ("hdfs", "--limit few", "expected a number, or all"),
        ("hdfs", "--limit 5 --output x.csv", "an output has all rows"),
        ("hdfs", "--output x.txt", "expected one of .parquet, .json, .jsonl, .csv"),
        ("hdfs", "--output there.csv", "there.csv already exists"),
        ("hdfs", "--output no/x.csv", "There is no folder no"),
        ("hdfs", "--timezone Mars", "'Mars' is not a time zone"),
    ],
)
def test_unreadable_state_is_reported_before_spark_starts(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").touch()
    checkpoint = golden(kind)
    before = [sorted(checkpoint.rglob("*")), sorted(tmp_path.rglob("*"))]
    code, shown, said = run(checkpoint, *words.split())
    assert code != 0
    assert message in said
    assert "Starting Spark" not in said
    assert not shown
    assert [sorted(checkpoint.rglob("*")), sorted(tmp_path.rglob("*"))] == before


def test_a_batch_whose_state_is_damaged_or_not_finished(tmp_path: Path) -> None:
    checkpoint = unpack(tmp_path, "hdfs")
    (checkpoint / "state/0/1/7.delta").unlink()
    for snapshot in checkpoint.glob("state/0/1/*.snapshot"):
        snapshot.unlink()
    lost = run(checkpoint)[2]
    assert "The state of operator 0, partition 1 lacks version 7: it has no snapshot." in lost
    assert "Batches that can be read: 0 to 5." in lost
    assert "it holds hdfs; expected the file metadata" in run(tmp_path)[2]
    (checkpoint / "commits/13").unlink()
    assert "it is not finished yet" in run(checkpoint, "--batch", 13)[2]


@pytest.mark.parametrize("version", versions())
def test_every_kind_of_checkpoint_can_be_read(tmp_path: Path, version: str) -> None:
    for kind in kinds(version):
        checkpoint = CheckpointSnapshot(open_reader(str(unpack(tmp_path, kind, version))))
        if not checkpoint.stores:
            continue
        (kept,) = readable(checkpoint)
        assert kept.last == checkpoint.commits[-1]
        wanted = StateSelection(
            operator=0, store="left" if kind.startswith("join") else None, timers=kind.startswith("transform")
        )
        reading = select_state(checkpoint, wanted)
        assert reading.batch == kept.last
        assert ("2" in reading.conf["spark.sql.streaming.stateStore.checkpointFormatVersion"]) == (
            "ids" in kind or kind == "named"
        )


def test_a_savepoints_folder_has_its_newest_batch_only(tmp_path: Path) -> None:
    checkpoint = unpack(tmp_path, "hdfs")
    for folder, keep in (("offsets", {"12", "13"}), ("commits", {"13"})):
        for file in (checkpoint / folder).iterdir():
            if file.name not in keep:
                file.unlink()
    assert readable(CheckpointSnapshot(open_reader(str(checkpoint)))) == [InclusiveRange(13, 13)]


def test_columns_are_flat_keys_first_and_each_name_once() -> None:
    from pyspark.sql.types import IntegerType, LongType, NullType, StringType, StructType, TimestampType

    window = StructType().add("start", TimestampType()).add("end", TimestampType())
    key = StructType().add("window", window).add("id", StringType())
    value = StructType().add("sum", LongType()).add("sum", LongType()).add("id", LongType()).add("none", NullType())
    schema = StructType().add("key", key).add("value", value).add("partition_id", IntegerType())
    names = [column.name for column in columns_of(schema)]
    assert names == ["window.start", "window.end", "id", "value.sum", "value.sum_2", "value.id"]
    changes = StructType().add("batch_id", LongType()).add("change_type", StringType()).add("key", key)
    assert [column.name for column in columns_of(changes)] == ["batch", "change", "window.start", "window.end", "id"]


def test_what_is_refused_loads_no_spark(tmp_path: Path) -> None:
    unpack(tmp_path, "join")
    script = (
        "import sys; sys.argv = ['respool', 'state', *sys.argv[1:]]\n"
        "from respool.cli.app import app\n"
        "try: app()\n"
        "finally: assert not {'pyspark', 'fsspec', 'pyarrow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "join"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
