"""Queries of a user's own code: run unchanged, or attached where that code starts them."""

import os
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool
from respool import ChangeRefusedError, CheckpointError, CheckpointInUseError, PipelineError, Settings, UsageError
from respool.checkpoint.ownership import read_run_record
from respool.pipeline.fingerprint import Fingerprint
from respool.storage import lease
from respool.storage.open import open_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JOB = """
    def amounts(rows):
        return rows.groupBy("shop").sum("amount").withColumnRenamed("sum(amount)", "{column}")

    def build(spark):
        rows = spark.readStream.schema("shop STRING, amount DOUBLE").json("{folder}/in")
        writer = amounts(rows).writeStream.format("delta").outputMode("complete")
        return writer.option("path", "{folder}/totals").option("checkpointLocation", "{folder}/checkpoint")

    def started(spark):
        return build(spark).start()

    def fails(spark):
        raise KeyError("shop")
"""


class Job:
    """A file of a user's own, its input, its table and its checkpoint."""

    def __init__(self, folder: Path, settings: Settings, spark: "SparkSession") -> None:
        self.folder, self.settings, self.spark = folder, settings, spark
        self.name = f"job_{folder.name.replace('-', '_')}_{os.getpid()}"
        self.checkpoint = str(folder / "checkpoint")
        (folder / "in").mkdir()
        self.write("total")

    def write(self, column: str) -> None:
        text = textwrap.dedent(JOB).replace("{folder}", str(self.folder)).replace("{column}", column)
        (self.folder / f"{self.name}.py").write_text(text)

    def add(self, name: str, shop: str, amount: float) -> None:
        (self.folder / "in" / f"{name}.json").write_text(f'{{"shop": "{shop}", "amount": {amount}}}\n')

    def run(self, function: str = "build", **options: Any) -> None:
        own = respool.find_job(f"{self.folder / self.name}.py:{function}")
        respool.run(own, settings=self.settings, spark=self.spark, available_now=True, **options)

    def totals(self) -> dict[str, float]:
        rows = self.spark.read.format("delta").load(str(self.folder / "totals")).collect()
        return {row.shop: row[1] for row in rows}

    def query(self) -> "StreamingQuery":
        rows = self.spark.readStream.schema("shop STRING, amount DOUBLE").json(str(self.folder / "in"))
        writer = rows.writeStream.format("delta").option("path", str(self.folder / "totals"))
        return writer.option("checkpointLocation", self.checkpoint).start()


@pytest.fixture
def job(tmp_path: Path, settings: Settings, spark: "SparkSession") -> Job:
    return Job(tmp_path, replace(settings, home=tmp_path / "home"), spark)


def test_a_job_runs_unchanged_on_its_own_checkpoint_and_resumes(job: Job) -> None:
    job.add("a", "Lyon", 2.5)
    job.run()
    job.add("b", "Lyon", 1.0)
    job.run()
    assert job.totals() == {"Lyon": 3.5}
    record = read_run_record(open_reader(job.checkpoint))
    assert record is not None
    assert (record.pipeline, record.output) == (job.name, f"delta:{job.folder}/totals")
    fingerprint = Fingerprint.from_json(record.fingerprint)
    assert {name.rpartition(":")[2].rpartition(".")[2] for name in fingerprint.code} >= {"build", "amounts"}


def test_a_savepoint_a_fork_and_a_rewind_know_a_job(job: Job) -> None:
    job.add("a", "Lyon", 2.5)
    job.run()
    checkpoint = respool.Checkpoint(job.checkpoint, settings=job.settings)
    savepoint = respool.Savepoints(settings=job.settings).create(checkpoint, "monday")
    job.add("b", "Oslo", 1.0)
    job.run()

    # Spark's own Delta sink would skip a replayed batch; without the job's record, respool could not know.
    with pytest.raises(ChangeRefusedError, match="totals"):
        checkpoint.rewind(to_batch=1)
    fork = respool.Checkpoint(job.folder / "fork", settings=job.settings)
    fork.apply(savepoint.plan_fork(str(job.folder / "fork")))
    with pytest.raises(CheckpointError, match="both would write there"):
        job.run(checkpoint=str(job.folder / "fork"))
    with pytest.raises(UsageError, match="respool savepoint fork"):
        job.run(checkpoint="other", from_savepoint="monday", console=True)


def test_what_only_the_code_of_a_job_can_change_is_refused(job: Job) -> None:
    for options in ({"console": True}, {"sink_suffix": "-v2"}, {"max_offsets_per_trigger": 5}):
        with pytest.raises(PipelineError, match="the code of the job"):
            job.run(**options)
    with pytest.raises(PipelineError, match=r"returned a StreamingQuery; expected a DataStreamWriter.*without calling"):
        job.run("started")
    for query in job.spark.streams.active:
        query.stop()
    with pytest.raises(PipelineError, match="failed: KeyError: 'shop'"):
        job.run("fails")
    for name, message in (("nothing.py:build", "does not exist"), (f"{job.folder / job.name}.py:no", "no function")):
        with pytest.raises(PipelineError, match=message):
            respool.find_job(name)


def stop(query: "StreamingQuery") -> None:
    query.processAllAvailable()
    query.stop()


def test_an_attached_query_holds_its_checkpoint_and_is_known(job: Job) -> None:
    job.add("a", "Lyon", 2.5)
    query = job.query()
    try:
        attached = respool.attach(query, name="sales", key="shop", code=Job.query, settings=job.settings)
        assert (attached.name, attached.checkpoint, attached.changes) == ("sales", job.checkpoint, ())
        query.processAllAvailable()
        checkpoint = respool.Checkpoint(job.checkpoint, settings=job.settings)
        with pytest.raises((CheckpointInUseError, ChangeRefusedError)):
            checkpoint.rewind(to_batch=0)
        savepoint = respool.Savepoints(settings=job.settings).create(checkpoint, "monday")
        assert savepoint.manifest.run is not None
        assert savepoint.manifest.run.output == f"delta:{job.folder}/totals"
        assert savepoint.manifest.run.output_key == ("shop",)
    finally:
        stop(query)
    end = time.monotonic() + 60
    while lease.holder(job.checkpoint) is not None:
        assert time.monotonic() < end
        time.sleep(0.05)

    again = job.query()
    try:
        changed = respool.attach(again, name="sales", key="shop", code=Job.totals, settings=job.settings)
        assert any("Job.totals is new" in change for change in changed.changes)
        with pytest.raises(CheckpointError, match="belongs to the pipeline sales"):
            respool.attach(again, name="other", settings=job.settings)
        with pytest.raises(PipelineError, match="has no name"):
            respool.attach(again, settings=job.settings)
    finally:
        stop(again)
    with pytest.raises(UsageError, match="needs a running query"):
        respool.attach(object(), settings=job.settings)  # type: ignore[arg-type]
