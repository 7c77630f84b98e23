"""A fork runs next to the original; what both wrote is compared; the fork becomes the pipeline's checkpoint."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.app import app
from respool.comparing.compare import compare
from respool.comparing.model import ComparedOutput, DiffRequest, cutoff_after
from respool.comparing.report import DiffReport
from respool.errors import CheckpointError, PipelineError
from respool.kafka import consumer, producer
from respool.kafka.cluster import KafkaCluster
from respool.operations.run import fork_before_start, require_startable
from respool.pipeline.definition import Pipeline
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.settings import Settings
from respool.storage.local import LocalReader
from respool.visits.counts import visit_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
BATCHES = 20
IN_A_BATCH = 4


def visits(first: int, last: int) -> list[producer.Message]:
    """A visit a minute."""
    times = [START + timedelta(minutes=number) for number in range(first, last)]
    values = [{"visit_id": f"v{at.minute}", "event_time": at.isoformat(), "page": "home"} for at in times]
    return [producer.Message(None, json.dumps(value).encode()) for value in values]


class Stage:
    """A pipeline that counts visits, its checkpoint, and its forks."""

    def __init__(
        self, spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, folder: Path
    ) -> None:
        self._spark, self._kafka, self._topic = spark, kafka, topic
        self._settings = replace(settings, home=folder)
        self.store = SavepointStore(self._settings.savepoint_store)
        self.checkpoint = folder / "checkpoints" / "visit-counts"

    def pipeline(self, window: str = "10 minutes") -> Pipeline:
        return visit_counts(topic=self._topic, output_topic=self.output(), window=window)

    def output(self, suffix: str = "") -> str:
        return f"{self._topic}-out{suffix}"

    def run(
        self, window: str = "10 minutes", fork: Path | None = None, suffix: str | None = None
    ) -> list[BatchProgress]:
        """Run a query on all records, in small batches, and return them."""
        batches: list[BatchProgress] = []
        options = RunOptions(
            available_now=True,
            max_offsets_per_trigger=IN_A_BATCH,
            checkpoint=str(fork) if fork else None,
            dead_letter=False,
            sink_suffix=suffix,
        )
        with Runner(self._spark, self._kafka, self._settings, options, batches.append, lambda _: None) as runner:
            runner.start([self.pipeline(window)])
            runner.wait()
        return batches

    def start_another(self, where: Path, suffix: str) -> None:
        """Start as `respool run --from-savepoint` does."""
        wanted = RunOptions(sink_suffix=suffix).apply(self.pipeline())
        fork_before_start("one", str(where), wanted, self._kafka, self._settings, print)

    def respool(self, *words: str) -> str:
        line = [*words, "--home", str(self._settings.home), "--bootstrap-servers", self._kafka.bootstrap_servers]
        done = CliRunner().invoke(app, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return str(done.output)

    def diff(self, savepoint: StoredSavepoint, suffix: str) -> DiffReport:
        """Compare what the original and a fork wrote after a savepoint."""
        sides = [ComparedOutput("kafka", self.output(side)) for side in ("", suffix)]
        return compare(self._spark, self._kafka, DiffRequest(sides[0], sides[1], cutoff_after(savepoint.manifest)))

    def results(self, suffix: str = "") -> dict[str, int]:
        """Return the newest count of every window that was written."""
        rows = [json.loads(record.value) for record in consumer.read(self._kafka, self.output(suffix)) if record.value]
        return {row["window"]["start"]: row["count"] for row in rows}


@pytest.fixture
def stage(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, topic: str, tmp_path: Path) -> Stage:
    producer.produce(kafka, topic, visits(0, 30))
    return Stage(spark, kafka, settings, topic, tmp_path)


def at_once(*work: Callable[[], list[BatchProgress]]) -> list[list[BatchProgress]]:
    """Do several things at the same time; return what each returned, or raise what one raised."""
    done: dict[int, list[BatchProgress]] = {}
    failed: list[BaseException] = []

    def do(number: int) -> None:
        try:
            done[number] = work[number]()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [done[number] for number in range(len(work))]


def test_a_changed_pipeline_is_compared_with_the_savepoint_before_spark_starts(
    stage: Stage, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    stage.run()
    stage.respool("savepoint", "create", "visit-counts", "one")
    savepoint = stage.store.get("one")
    require_startable(spark, stage.pipeline(), savepoint, print)
    assert "Nothing has changed since the savepoint." in capsys.readouterr().out
    require_startable(spark, stage.pipeline("20 minutes"), savepoint, print)
    shown = capsys.readouterr().out
    assert "setting results: windows of 10 minutes → windows of 20 minutes" in shown
    assert "Spark starts the changed pipeline from the savepoint." in shown

    def by_page(events: "DataFrame") -> "DataFrame":
        return events.groupBy(F.window("event_time", "10 minutes"), "page").count()

    from pyspark.sql import functions as F

    with pytest.raises(PipelineError, match=r"cannot start from the savepoint one.*Nothing was changed"):
        require_startable(spark, replace(stage.pipeline(), transform=by_page), savepoint, print)
    assert "cannot start: " in capsys.readouterr().out


def test_forks_run_next_to_the_original_and_the_better_fork_is_promoted(
    stage: Stage, kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    stage.run()
    stage.respool("savepoint", "create", "visit-counts", "one")
    savepoint = stage.store.get("one")
    same, changed = tmp_path / "same", tmp_path / "changed"
    for where in (same, changed):
        stage.respool("savepoint", "fork", "one", str(where))
    producer.produce(kafka, topic, visits(30, 30 + BATCHES * IN_A_BATCH))
    with pytest.raises(CheckpointError, match=r"is a fork of .*both would write there.*--sink-suffix"):
        stage.run(fork=same)

    original, twin, other = at_once(
        stage.run,
        lambda: stage.run(fork=same, suffix="-same"),
        lambda: stage.run("20 minutes", fork=changed, suffix="-changed"),
    )
    first = savepoint.manifest.next_batch
    for batches in (original, twin, other):
        assert [batch.batch for batch in batches] == list(range(first, first + len(batches)))
        assert len(batches) >= BATCHES
        assert sum(batch.rows for batch in batches) == BATCHES * IN_A_BATCH

    with pytest.raises(CheckpointError, match=r"-same has results of another run.*Choose another --sink-suffix"):
        stage.start_another(tmp_path / "third", "-same")

    # The same code has the same results; other windows have other results.
    report = stage.diff(savepoint, "-same")
    assert report.summary.different == 0
    assert report.summary.equal == len(stage.results("-same")) > 5
    report = stage.diff(savepoint, "-changed")
    assert report.summary.different > 0
    assert {difference.verdict for difference in report.differences} == {
        "only_a",
        "only_b",
    }  # another width is another key

    # The fork's checkpoint becomes the pipeline's; the old checkpoint can be restored.
    before = CheckpointSnapshot(LocalReader(stage.checkpoint)).query_id
    printed = stage.respool("promote", str(changed), "visit-counts", "--yes", "--keep-as", "old")
    assert f"What the fork wrote stays in Kafka topic {stage.output('-changed')}" in printed
    assert "The fork ran a changed pipeline: setting" in printed
    assert "windows of 10 minutes → windows of 20 minutes" in printed
    after = CheckpointSnapshot(LocalReader(stage.checkpoint))
    assert after.query_id == CheckpointSnapshot(LocalReader(changed)).query_id != before
    assert stage.store.get("old").manifest.query_id == before
    with pytest.raises(CheckpointError, match="was promoted: its query continues in"):
        stage.run("20 minutes", fork=changed, suffix="-changed")
    producer.produce(kafka, topic, visits(200, 204))
    promoted = stage.run("20 minutes")
    assert promoted[0].batch == after.next_batch
    # The later visits have closed two windows of 20 minutes, which the fork had begun; the second is half full.
    assert [count for _, count in sorted(stage.results().items())[-2:]] == [20, 10]
