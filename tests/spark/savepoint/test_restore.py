"""Forks on a real Spark, of every format of state: every batch is that of the query that was never interrupted."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.savepoint.store import SavepointStore
from respool.savepoint.verify import load
from respool.storage.local import LocalReader
from support.queries import KINDS, run, state, write_files
from support.savepoints import fork, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 6
AT = 3
BY_NAME = {kind.name: kind for kind in KINDS}
FORMATS = ["rocksdb", "ids-changelog", "operators", "session", "join-ids", "join-families", "transform-ids", "named"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_fork_does_what_the_original_did_and_needs_nothing_of_it(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    kind, checkpoint = BY_NAME[name], tmp_path / "original"
    source = write_files(tmp_path / "input", range(FILES))
    results = run(spark, kind, source, checkpoint, FILES - 1)
    saved = save(checkpoint, SavepointStore(str(tmp_path / "store")), batch=AT)
    kept = state(spark, kind, checkpoint, AT)
    fork(saved, tmp_path / "fork")
    shutil.rmtree(checkpoint)  # the fork does not depend on it

    # Spark loads all that was saved, from the savepoint itself.
    rows, failed = load(spark, saved)
    assert failed == []
    assert sum(rows.values()) > 0
    if name not in ("transform-ids", "join-families"):  # whose timers and column families the test itself does not read
        assert sum(rows.values()) == len(kept)

    assert state(spark, kind, tmp_path / "fork", AT) == kept
    again = run(spark, kind, source, tmp_path / "fork", FILES - 1)
    assert again == {batch: rows for batch, rows in results.items() if batch > AT}
    assert CheckpointSnapshot(LocalReader(tmp_path / "fork")).query_id != saved.manifest.query_id


def test_state_that_spark_cannot_load_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    kind = BY_NAME["rocksdb"]
    source = write_files(tmp_path / "input", range(2))
    run(spark, kind, source, tmp_path / "original", 1)
    saved = save(tmp_path / "original", SavepointStore(str(tmp_path / "store")))
    for table in Path(saved.data).rglob("*.sst"):
        table.write_bytes(b"x" * table.stat().st_size)
        (table.parent / f".{table.name}.crc").unlink()
    rows, failed = load(spark, saved)
    assert rows == {}
    assert failed[0].startswith("operator 0 (aggregation): ")
