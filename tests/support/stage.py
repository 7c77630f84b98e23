"""A home in which pipelines run live and are reprocessed, on the tests' own broker and Spark."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.archive.sink import archive_pipeline
from respool.kafka import consumer, producer, records, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.consumer import Record
from respool.operations.reprocess import begin, plan_reprocess, settle
from respool.pipeline.definition import Pipeline
from respool.pipeline.registry import find_pipeline
from respool.reprocessing.audit import audit
from respool.reprocessing.audit_report import AuditReport
from respool.reprocessing.job import ReprocessJob, reprocess
from respool.reprocessing.plan import ReprocessPlan
from respool.reprocessing.runs import ReprocessManifest, Runs
from respool.running.options import RunOptions
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.protocol import WriteContext
from respool.spark.session import session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Stage:
    """The place of a test.

    Attributes:
        spark: The tests' session.
        settings: Those of a home of its own.
        kafka: The tests' broker.
        name: The pipeline's name.
        values: Its parameters.
    """

    spark: "SparkSession"
    settings: Settings
    kafka: KafkaCluster
    name: str
    values: dict[str, str]

    @property
    def pipeline(self) -> Pipeline:
        return find_pipeline(self.name, self.values)

    def send(self, *values: dict[str, Any] | bytes) -> None:
        """Send values to one partition, so that their order is certain."""
        encoded = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        producer.produce_together(self.kafka, self.pipeline.reads, encoded)

    def live(self, archived: bool = True, **options: Any) -> None:
        """Run the pipeline over the existing records, and archive them."""
        self.run(self.pipeline, **options)
        if archived:
            self.archive()

    def archive(self) -> None:
        """Archive the existing records, as one batch of the pipeline's archive."""
        archiving = archive_pipeline(self.pipeline)
        session = session_for(self.spark, archiving.timezone, archiving.spark)
        starts, ends = (ask(self.kafka, archiving.reads) for ask in (topics.start_offsets, topics.end_offsets))
        offsets = {partition: (starts[partition], end) for partition, end in ends.items()}
        new_records = records.read_offsets(session, self.kafka, archiving.reads, offsets)
        archiving.sink.write(
            archiving.transform(new_records), WriteContext(archiving.name, 0, self.kafka, self.settings)
        )

    def batches(self, *batches: Sequence[dict[str, Any] | bytes], archived: bool = True) -> None:
        """Send batches, and run the pipeline and its archive over them, batch by batch as they are given.

        Spark drops what is late by the watermark of the batch before: an empty batch lets the watermark take effect.
        """
        size = max(len(batch) for batch in batches)
        # Records that do not decode fill up a batch, and change nothing.
        self.send(*[value for batch in batches for value in [*batch, *[b"filler"] * (size - len(batch))]])
        self.live(archived=archived, max_offsets_per_trigger=size)

    def run(self, *pipelines: Pipeline, **options: Any) -> None:
        chosen = RunOptions(available_now=True, dead_letter=False, **options)
        with Runner(self.spark, self.kafka, self.settings, chosen, lambda _: None, lambda _: None) as runner:
            runner.start(pipelines)
            runner.wait()

    def plan(self, start: str, end: str, **options: Any) -> ReprocessPlan:
        return plan_reprocess(self.pipeline, start, end, settings=self.settings, **options)

    def job(self, start: str, end: str, **options: Any) -> ReprocessJob:
        plan, reader = settle(self.plan(start, end, **options), self.spark, self.kafka, print)
        return ReprocessJob(self.spark, self.kafka, self.settings, plan, reader)

    def reprocess(
        self,
        start: str,
        end: str,
        run: str | None = None,
        on_slice: Callable[[int, int], None] = lambda done, count: None,
        **options: Any,
    ) -> ReprocessManifest:
        output = options.pop("output", None)
        runs = Runs(self.settings.home)
        plan = self.plan(start, end, **options)
        job, manifest = begin(plan, self.spark, self.kafka, runs, output, run, print)
        return reprocess(job, manifest, runs, on_slice)

    def audit(self, start: str, end: str, fix: str | None = None, most: int = 1000, **options: Any) -> AuditReport:
        return audit(self.job(start, end, **options), most, fix, lambda done, count: None)

    def published(self) -> list[Record]:
        topic: str = self.pipeline.sink.topic  # type: ignore[attr-defined]
        return list(consumer.read(self.kafka, topic))

    def upserted(self) -> dict[str, dict[str, Any]]:
        """The final rows of a consumer that upserts by key."""
        latest: dict[str, dict[str, Any]] = {}
        for record in self.published():
            key = (record.key or b"").decode()
            latest.pop(key, None)
            if record.value is not None and record.value.startswith(b"{"):
                latest[key] = json.loads(record.value)
        return latest

    def command(self, *words: str) -> "subprocess.Popen[str]":
        """Start a respool command on this home."""
        sets = [word for name, value in self.values.items() for word in ("--set", f"{name}={value}")]
        where = ["--home", str(self.settings.home), "--bootstrap-servers", self.kafka.bootstrap_servers]
        return subprocess.Popen(
            [sys.executable, "-m", "respool", *words, *sets, *where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def stage(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, home: Path, name: str, topic: str, **values: str
) -> Stage:
    """Return a stage for a pipeline that reads `topic` and writes to `<topic>-results`."""
    here = replace(settings, home=home, bootstrap_servers=kafka.bootstrap_servers)
    return Stage(spark, here, kafka, name, {"topic": topic, "output_topic": f"{topic}-results", **values})
