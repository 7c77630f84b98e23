"""Files of batches: each batch exactly once, after a crash, a rewind, its undo, and in the new folder of a fork."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.errors import CheckpointError, PipelineError
from respool.settings import Settings
from respool.sinks.files import FileSink
from respool.sinks.protocol import WriteContext
from support.sink_stage import NOWHERE, SinkStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def stage(spark: "SparkSession", tmp_path: Path) -> SinkStage:
    session = spark.newSession()  # its settings are those of these tests alone
    session.conf.set("spark.sql.shuffle.partitions", "1")
    made = SinkStage(session, tmp_path, "id INT, day STRING")
    for batch in range(4):
        made.feed(batch, rows(batch))
    return made


def rows(batch: int) -> list[dict[str, object]]:
    return [{"id": batch * 2 + n, "day": f"d{n}"} for n in range(2)]


def ids(stage: SinkStage, file_format: str = "parquet", folder: str = "out") -> list[int]:
    read = stage.spark.read.format(file_format).schema("id INT, day STRING")
    return sorted(row.id for row in read.load(f"file:{stage.home}/results/{folder}").collect())


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_a_batch_that_crashed_before_its_commit_is_written_once(stage: SinkStage, file_format: str) -> None:
    sink = FileSink("out", format=file_format, partition_by="day")  # type: ignore[arg-type]
    stage.run(sink)
    stage.forget_commit(3)
    stage.feed(4, rows(4))
    stage.run(sink)
    assert ids(stage, file_format) == list(range(10))
    assert {path.parent.name for path in (stage.home / "results" / "out").rglob("part-*")} == {"day=d0", "day=d1"}


def test_a_rewind_needs_the_folder_restored_and_its_undo_brings_it_back(stage: SinkStage) -> None:
    sink = FileSink("out")
    stage.run(sink)
    refused = stage.command("rewind", "--to-batch", "2")
    assert isinstance(refused.exception, CheckpointError)
    assert "--restore-sink" in str(refused.exception)
    assert ids(stage) == list(range(8))

    stage.rewind(2, "--restore-sink")
    assert ids(stage) == [0, 1, 2, 3]
    assert stage.command("undo").exception is None
    assert ids(stage) == list(range(8))

    stage.rewind(2, "--restore-sink")
    stage.run(sink)
    assert ids(stage) == list(range(8))


def test_a_new_folder_of_a_query_with_many_batches_outlives_the_compaction_of_its_log(stage: SinkStage) -> None:
    for batch in range(4, 13):
        stage.feed(batch, rows(batch))
    stage.run(FileSink("out"))
    for batch in range(13, 32):
        stage.feed(batch, rows(batch))
    stage.run(FileSink("out-v2"))
    assert ids(stage, folder="out-v2") == list(range(26, 64))
    stage.rewind(25, "--restore-sink")
    assert ids(stage, folder="out-v2") == list(range(26, 50))


def test_results_without_a_batch_are_refused(stage: SinkStage) -> None:
    write = WriteContext("rows", None, NOWHERE, Settings(home=stage.home), run="again")
    with pytest.raises(PipelineError, match="--output"):
        FileSink("out").write(stage.spark.range(1), write)
