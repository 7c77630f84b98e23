"""A run: computes a plan slice by slice, and hands the results on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from respool.archive.reader import ArchiveReader
from respool.errors import BrokerError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.results import Windows
from respool.reprocess.comparison import Comparison, changes, keyed, uncompared
from respool.reprocess.computation import Computation, check_windows, other_window, refuse_window
from respool.reprocess.plan import ReprocessPlan, results_of
from respool.reprocess.runs import ReprocessManifest, Runs
from respool.reprocess.target import ResultTarget, folder_target, require_free, target_of
from respool.settings import Settings
from respool.sinks.protocol import WriteContext, folder_identity, identity_of
from respool.spark.session import session_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OnSlice = Callable[[int, int], None]  # how many slices are done, and of how many results the last one was


@dataclass(frozen=True)
class ReprocessJob:
    """What a plan needs to be carried out.

    Attributes:
        spark: The application's session.
        kafka: The cluster; None when none answers.
        settings: Where the home is.
        plan: The plan.
        reader: The archive, at the plan's version.
        output: A folder to write to, in place of the pipeline's sink.
    """

    spark: "SparkSession"
    kafka: KafkaCluster | None
    settings: Settings
    plan: ReprocessPlan
    reader: ArchiveReader
    output: str | None = None

    @property
    def to(self) -> str:
        """Where results go, for people."""
        return f"folder {self.output}" if self.output else self.plan.pipeline.sink.describe()

    @property
    def destination(self) -> Identity:
        """Where results go, as a run that was interrupted is recognized by it."""
        return folder_identity(self.output) if self.output else identity_of(self.plan.pipeline.sink)

    def require_kafka(self) -> KafkaCluster:
        """Return the cluster for what cannot do without."""
        if self.kafka is None:
            raise BrokerError("No Kafka broker answers. Start it, or name it with --bootstrap-servers.")
        return self.kafka


@dataclass(frozen=True)
class Preview:
    """What a run would publish.

    Attributes:
        results: How many results.
        values: The values of the first ones.
    """

    results: int
    values: tuple[str, ...]


def preview(job: ReprocessJob, most: int, on_slice: OnSlice) -> Preview:
    """Compute all slices and publish nothing; return how many results there are, and the first ones."""
    pipeline = job.plan.pipeline
    computation = Computation(session_for(job.spark, pipeline.timezone, pipeline.spark), job.plan, job.reader)
    count = 0
    values: list[str] = []
    for number in range(len(job.plan.slices)):
        found = _preview_slice(computation, number, most - len(values))
        count += found.results
        values += found.values
        on_slice(number + 1, found.results)
    return Preview(count, tuple(values))


def _preview_slice(computation: Computation, number: int, most: int) -> Preview:
    """Compute a slice, once: its results are counted and its windows checked while the first results are found."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    pipeline = computation.plan.pipeline
    results = results_of(pipeline)
    is_told = F.coalesce(computation.is_told(number, "row."), F.lit(False))
    other = other_window(results, "row.") if isinstance(results, Windows) else F.lit(None).cast("int")
    rows = uncompared(pipeline.sink, computation.results(number))
    rows = rows.select("key", F.col("value").cast("string").alias("value"), is_told.alias("told"), other.alias("other"))
    seen = Observation()
    rows = rows.observe(seen, F.count_if("told").alias("results"), F.min("other").alias("other"))
    # Nothing may filter what is observed: Spark leaves a part of a plan out that cannot give a row, and what it would
    # have observed is waited for forever. Hence results that are not told come last, and at least one row is wanted.
    first = rows.orderBy(F.desc("told"), "key").limit(max(most, 1)).select("told", "value").collect()
    if isinstance(results, Windows):
        refuse_window(seen.get["other"], results, pipeline.name)
    return Preview(seen.get["results"], tuple([row.value for row in first if row.told][:most]))


def reprocess(job: ReprocessJob, manifest: ReprocessManifest, runs: Runs, on_slice: OnSlice) -> ReprocessManifest:
    """Compute what is left of a run and hand it on, slice by slice; return the finished run."""
    assert job.reader.version == manifest.version  # all slices read the same
    session = session_for(job.spark, job.plan.pipeline.timezone, job.plan.pipeline.spark)
    computation = Computation(session, job.plan, job.reader)
    with runs.held(manifest.run):
        if job.output is not None:
            if not manifest.done:
                require_free(session, job.output)
            target, comparison = folder_target(session, job.output, manifest.run), None
        else:
            write = WriteContext(job.plan.pipeline.name, None, job.require_kafka(), job.settings.home, manifest.run)
            target = target_of(session, job.plan, write)
            job.plan.pipeline.sink.prepare(write.kafka, job.plan.pipeline.topic)
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
                found = uncompared(computation.plan.pipeline.sink, computation.told(rows, number))
            else:
                published = published or comparison.published(rows.schema)
                found = changes(comparison.verdicts(number, rows, published))
            results, withdrawn = _hand_on(found, target, number)
        manifest = manifest.after(results, withdrawn)
        runs.write(manifest)
        on_slice(manifest.done, results)
    return manifest


def _hand_on(found: "DataFrame", target: ResultTarget, number: int) -> tuple[int, int]:
    """Hand changes on, and return how many results they had, and how many withdrawals."""
    from pyspark.sql import functions as F

    found = found.persist()
    try:
        counts = found.agg(
            F.count("value"), F.count_if(F.col("value").isNull())
        ).first()  # computed before anything goes out
        assert counts is not None
        target.take(number, found)
        return counts[0], counts[1]
    finally:
        found.unpersist()


def _comparison(job: ReprocessJob, computation: Computation, write: WriteContext) -> Comparison | None:
    sink = keyed(job.plan.pipeline.sink, job.plan)
    if sink is None:
        return None
    closed = job.plan.closed_until(judge_open=job.plan.request.allow_open)
    return Comparison(computation, sink, write, closed)


@contextmanager
def kept_slice(computation: Computation, number: int) -> "Iterator[DataFrame]":
    """Yield the results of a slice, checked and kept for the length of a `with` block."""
    pipeline = computation.plan.pipeline
    rows = computation.results(number).persist()
    try:
        results = results_of(pipeline)
        if isinstance(results, Windows):
            check_windows(rows, results, pipeline.name)
        yield rows
    finally:
        rows.unpersist()
