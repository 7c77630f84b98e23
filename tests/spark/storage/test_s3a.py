"""Checkpoints that Spark's own s3a connector writes on a real S3 server: every command does what it does on a disk."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.locations import for_spark
from respool.operations.checkpoint import Checkpoint
from respool.operations.savepoints import Savepoints
from respool.settings import Settings
from support.queries import KINDS, run, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_NAME = {kind.name: kind for kind in KINDS}
FILES = 5
# Spark's own choice for s3a; the tests' session has another for local files.
BY_SPARK = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    )
}


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[[str], Settings]:
    """Settings of a home of its own."""
    return lambda storage: Settings(home=tmp_path / "home", storage=storage)


def neutral(value: Any, *places: str) -> Any:
    """Return facts without what differs between two places: addresses, times, ids, and the sizes of files."""
    text = json.dumps(value, sort_keys=True, default=str)
    for place in places:
        text = text.replace(place, "PLACE")
    text = re.sub(r'"(planned_ms|size)": \d+', r'"\1": 0', text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?|\d{8}T\d+(\.\d+)?Z", "TIME", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)
    return json.loads(text)


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """The places where two structures differ, each with both values."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return [text for key in left for text in differences(left[key], right[key], f"{path}/{key}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [text for number, pair in pairs for text in differences(*pair, f"{path}/{number}")]
    return [] if left == right else [f"{path}: {left!r} on the store, {right!r} on the disk"]


@pytest.mark.parametrize("name", ["ids-changelog"])
def test_every_command_does_what_it_does_on_a_disk(
    spark: "SparkSession", s3a: str, tmp_path: Path, name: str, settings_of: Callable[[str], Settings]
) -> None:
    """A foreign query, twice: with its checkpoint on S3, and on the disk."""
    kind, source = BY_NAME[name], write_files(tmp_path / "input", range(FILES))
    outcomes = []
    for storage in (s3a, str(tmp_path / "disk")):
        settings = settings_of(storage)
        place = for_spark(f"{storage}/a-query")
        facts: dict[str, Any] = {}

        def note(what: str, value: Any, facts: dict[str, Any] = facts, storage: str = storage) -> None:
            facts[what] = neutral(value, for_spark(storage), storage)

        results = run(spark, kind, source, place, FILES - 1, BY_SPARK)
        note("results", results)
        checkpoint = Checkpoint(f"{storage}/a-query", settings=settings)
        savepoints = Savepoints(settings=settings)
        note("show", asdict(checkpoint.status().summary))
        verified = checkpoint.verify()
        assert verified.ok, verified
        note("state", checkpoint.state(spark=spark).rows)

        saved = savepoints.create(checkpoint, "three", batch=3, sink="foreachBatch")
        paths = [Path(file.path) for savepoint in savepoints for file in savepoint.manifest.files]
        note("saved", [str(path) for path in paths if not path.name.startswith(".")])  # Hadoop's checksums on a disk
        assert saved.verify(load_state=True, spark=spark).ok
        copied = savepoints.copy("three", Savepoints(f"{storage}/more savepoints", settings=settings))
        assert copied.verify().ok

        checkpoint.rewind(to_batch=2, sink="foreachBatch", assume_stopped=True, allow_data_loss=True)
        note("rewound", checkpoint.summary().next_batch)
        note("again", run(spark, kind, source, place, FILES - 1, BY_SPARK))
        assert checkpoint.verify().ok
        checkpoint.rewind(to_batch=1, sink="foreachBatch", assume_stopped=True, allow_data_loss=True)
        checkpoint.apply(checkpoint.plan_undo())
        note("undone", asdict(checkpoint.summary()))
        note("state again", checkpoint.state(spark=spark).rows)

        fork = saved.fork(f"{storage}/fork")
        note("forked", run(spark, kind, source, for_spark(f"{storage}/fork"), FILES - 1, BY_SPARK))
        checkpoint.apply(checkpoint.plan_restore(saved, sink="foreachBatch", assume_stopped=True, allow_data_loss=True))
        note("restored", run(spark, kind, source, place, FILES - 1, BY_SPARK))
        checkpoint.apply(checkpoint.plan_promote(fork, sink="foreachBatch", assume_stopped=True))
        note("promoted", checkpoint.summary().next_batch)
        assert checkpoint.verify().ok
        note("history", [(change.operation, change.batch) for change in checkpoint.history()])
        purged = checkpoint.purge(older_than=timedelta(0))
        assert checkpoint.verify().ok
        note("purged", purged.changes)
        assert [leftover for leftover in purged.leftovers if leftover.paths] == []  # the server keeps empty folders
        savepoints.delete("three")
        note("left", [savepoint.name for savepoint in savepoints])
        outcomes.append(facts)
    on_store, on_disk = outcomes
    assert differences(on_store, on_disk) == []
    assert on_store["forked"] == {str(batch): rows for batch, rows in on_store["results"].items() if int(batch) > 3}
