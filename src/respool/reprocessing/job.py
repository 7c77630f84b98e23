"""Run a plan: compute it slice by slice, and publish the results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from respool.archive.reader import ArchiveReader
from respool.errors import BrokerError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.results import Windows
from respool.pipeline.session import pipeline_session
from respool.reprocessing.comparison import Comparison, as_changes, changes, keyed
from respool.reprocessing.computation import Computation, check_windows, other_window, refuse_window
from respool.reprocessing.live import topic_of
from respool.reprocessing.plan import ReprocessPlan, results_of
from respool.reprocessing.runs import ReprocessManifest, Runs
from respool.reprocessing.target import ResultTarget, folder_target, require_free, target_of
from respool.settings import Settings
from respool.sinks.protocol import WriteContext, folder_identity, identity_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OnSlice = Callable[[int, int], None]  # the number of slices done, and the number of results of the last slice


@dataclass(frozen=True)
class ReprocessJob:
    """A plan with all that it needs to run.

    Attributes:
        spark: The application's session.
        kafka: The cluster; None when no broker answers.
        settings: Where the home is.
        plan: The plan.
        reader: The archive, at the plan's version.
        output: A folder to write to instead of the pipeline's sink.
    """

    spark: "SparkSession"
    kafka: KafkaCluster | None
    settings: Settings
    plan: ReprocessPlan
    reader: ArchiveReader
    output: str | None = None

    @property
    def to(self) -> str:
        """Where results go, human-readable."""
        return f"folder {self.output}" if self.output else self.plan.pipeline.sink.describe()

    @property
    def destination(self) -> Identity:
        """Where results go, to recognize an interrupted run."""
        return folder_identity(self.output) if self.output else identity_of(self.plan.pipeline.sink)

    def require_kafka(self) -> KafkaCluster:
        """Return the cluster; raise BrokerError when no broker answers."""
        if self.kafka is None:
            raise BrokerError("No Kafka broker answers. Start one, or name one with --bootstrap-servers.")
        return self.kafka


@dataclass(frozen=True)
class Preview:
    """The results that a run would publish.

    Attributes:
        results: The number of results.
        values: The values of the first results.
    """

    results: int
    values: tuple[str, ...]


def preview(job: ReprocessJob, most: int, on_slice: OnSlice) -> Preview:
    """Compute all slices and publish nothing; return the number of results, and the first of them."""
    pipeline = job.plan.pipeline
    computation = Computation(pipeline_session(job.spark, pipeline), job.plan, job.reader)
    count = 0
    values: list[str] = []
    for number in range(len(job.plan.slices)):
        of_slice = _preview_slice(computation, number, most - len(values))
        count += of_slice.results
        values += of_slice.values
        on_slice(number + 1, of_slice.results)
    return Preview(count, tuple(values))


def _preview_slice(computation: Computation, number: int, most: int) -> Preview:
    """Compute a slice once: count its results, check its windows, and return the first results."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    pipeline = computation.plan.pipeline
    results = results_of(pipeline)
    publishable = F.coalesce(computation.is_publishable(number, "row."), F.lit(False))
    other = other_window(results, "row.") if isinstance(results, Windows) else F.lit(None).cast("int")
    rows = as_changes(pipeline.sink, computation.results(number))
    value = F.col("value").cast("string").alias("value")
    rows = rows.select("key", value, publishable.alias("publishable"), other.alias("other"))
    observed = Observation()
    rows = rows.observe(observed, F.count_if("publishable").alias("results"), F.min("other").alias("other"))
    # Observed rows must not be filtered: Spark drops a part of a plan that cannot yield a row, and would then wait
    # forever for its observation. So results that are not published are sorted last, and the limit is at least 1.
    first = rows.orderBy(F.desc("publishable"), "key").limit(max(most, 1)).select("publishable", "value").collect()
    if isinstance(results, Windows):
        refuse_window(observed.get["other"], results, pipeline.name)
    return Preview(observed.get["results"], tuple([row.value for row in first if row.publishable][:most]))


def reprocess(job: ReprocessJob, manifest: ReprocessManifest, runs: Runs, on_slice: OnSlice) -> ReprocessManifest:
    """Compute and publish the remaining slices of a run; return the finished run."""
    assert job.reader.version == manifest.version  # all slices read the same version
    session = pipeline_session(job.spark, job.plan.pipeline)
    computation = Computation(session, job.plan, job.reader)
    with runs.hold(manifest.run):
        if job.output is not None:
            if not manifest.done:
                require_free(session, job.output)
            target, comparison = folder_target(session, job.output, manifest.run), None
        else:
            write = WriteContext(job.plan.pipeline.name, None, job.require_kafka(), job.settings, manifest.run)
            target = target_of(session, job.plan, write)
            job.plan.pipeline.sink.prepare(write.kafka, topic_of(job.plan.pipeline))
            comparison = _comparison(job, computation, write)
        runs.write(manifest)
        manifest = _all_slices(computation, comparison, target, manifest, runs, on_slice)
        target.finish(manifest.slices)
        manifest = replace(manifest, complete=True)
        runs.write(manifest)
    return manifest


def _all_slices(
    computation: Computation,
    comparison: Comparison | None,
    target: ResultTarget,
    manifest: ReprocessManifest,
    runs: Runs,
    on_slice: OnSlice,
) -> ReprocessManifest:
    published: DataFrame | None = None
    for number in range(manifest.done, manifest.slices):
        with kept_slice(computation, number) as rows:
            if comparison is None:
                slice_changes = as_changes(computation.plan.pipeline.sink, computation.publishable(rows, number))
            else:
                published = published or comparison.published(rows.schema)
                slice_changes = changes(comparison.verdicts(number, rows, published))
            results, withdrawn = _write_slice(slice_changes, target, number)
        manifest = manifest.after(results, withdrawn)
        runs.write(manifest)
        on_slice(manifest.done, results)
    return manifest


def _write_slice(changes: "DataFrame", target: ResultTarget, number: int) -> tuple[int, int]:
    """Write the changes of a slice, and return the numbers of results and of withdrawals."""
    from pyspark.sql import functions as F

    changes = changes.persist()
    try:
        counts = changes.agg(
            F.count("value"), F.count_if(F.col("value").isNull())
        ).first()  # computed before anything is written
        assert counts is not None
        target.write_slice(number, changes)
        return counts[0], counts[1]
    finally:
        changes.unpersist()


def _comparison(job: ReprocessJob, computation: Computation, write: WriteContext) -> Comparison | None:
    sink = keyed(job.plan.pipeline.sink, job.plan)
    if sink is None:
        return None
    closed = job.plan.closed_until(judge_open=job.plan.request.allow_open)
    return Comparison(computation, sink, write, closed)


@contextmanager
def kept_slice(computation: Computation, number: int) -> "Iterator[DataFrame]":
    """Yield the results of a slice, checked and persisted for the length of a `with` block."""
    pipeline = computation.plan.pipeline
    rows = computation.results(number).persist()
    try:
        results = results_of(pipeline)
        if isinstance(results, Windows):
            check_windows(rows, results, pipeline.name)
        yield rows
    finally:
        rows.unpersist()
