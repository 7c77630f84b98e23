"""Compare the published results of a span with those computed from the archive, and correct the differences."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta, timezone
from functools import reduce
from typing import TYPE_CHECKING

from respool.checkpoint.snapshot import ends_of_batches
from respool.errors import ReprocessError
from respool.pipeline.results import Events, Recomputable, Sessions, Windows
from respool.pipeline.session import pipeline_session
from respool.reprocessing.audit_report import AuditDifference, AuditReport
from respool.reprocessing.comparison import DIFFERENT, Comparison, changes, keyed
from respool.reprocessing.computation import Computation
from respool.reprocessing.job import OnSlice, ReprocessJob, kept_slice
from respool.reprocessing.live import decoder_of, topic_of
from respool.reprocessing.plan import results_of
from respool.reprocessing.target import ResultTarget, choose_sink, target_of
from respool.sinks.protocol import WriteContext
from respool.sinks.several import SeveralSinks
from respool.spark.sql import quote
from respool.times import EPOCH, Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_MOST_RECORDS = 10  # listed for each difference
_TICK = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


def audit(job: ReprocessJob, most: int, fix: str | None, on_slice: OnSlice) -> AuditReport:
    """Compare the slices of a plan one by one.

    Args:
        job: The plan, and what it needs.
        most: The number of differences that are reported in full.
        fix: Publish corrections under this run id; None to compare only.
        on_slice: Called after each slice.
    """
    pipeline = job.plan.pipeline
    session = pipeline_session(job.spark, pipeline)
    computation = Computation(session, job.plan, job.reader)
    write = WriteContext(pipeline.name, None, job.require_kafka(), job.settings, fix)
    sink = keyed(pipeline.sink, job.plan)
    if isinstance(pipeline.sink, SeveralSinks):
        raise choose_sink(pipeline.name, pipeline.sink, job.settings)
    if sink is None:
        raise ReprocessError(
            f"The pipeline {pipeline.name} writes to the {pipeline.sink.describe()}, where results have no key, so "
            "published results cannot be compared. Only a Kafka topic with a key or a Delta table can be audited."
        )
    if fix is not None:
        sink.prepare(write.kafka, topic_of(pipeline))
    comparison = Comparison(computation, sink, write, job.plan.closed_until(judge_open=False))
    target = target_of(session, job.plan, write) if fix is not None else None
    published: DataFrame | None = None
    report = AuditReport(job.plan)
    for number in range(len(job.plan.slices)):
        with kept_slice(computation, number) as rows:
            published = published or comparison.published(rows.schema)
            verdicts = comparison.verdicts(number, rows, published).persist()
            try:
                report = _add(report, comparison, verdicts, most)
                if target is not None:
                    target.write_slice(number, changes(verdicts, DIFFERENT))
            finally:
                verdicts.unpersist()
        on_slice(number + 1, report.different)
    return _finish(report, target, len(job.plan.slices))


def _finish(report: AuditReport, target: ResultTarget | None, slices: int) -> AuditReport:
    if target is None:
        return report
    target.finish(slices)
    return replace(report, fixed=report.different)


def _add(report: AuditReport, comparison: Comparison, verdicts: "DataFrame", most: int) -> AuditReport:
    counts = Counter({row.verdict: row["count"] for row in verdicts.groupBy("verdict").count().collect()})
    total = report.counts + counts
    if not sum(counts[verdict] for verdict in DIFFERENT):
        return replace(report, counts=total)
    different = verdicts.where("verdict <> 'same'")
    with_late = _with_late(comparison, different).persist()
    try:
        late = with_late.agg({"late": "sum"}).first()
        assert late is not None
        shown = with_late.orderBy("start", "key").limit(max(most - len(report.differences), 0)).collect()
    finally:
        with_late.unpersist()
    differences = report.differences + tuple(_difference(row) for row in shown)
    return replace(report, counts=total, late=report.late + (late[0] or 0), differences=differences)


def _with_late(comparison: Comparison, different: "DataFrame") -> "DataFrame":
    """Return differences with their late records: `late`, their number, and `records`, the first of them.

    A record is late when the live query read it after the result was published: in a later batch, if the checkpoint
    still has the offsets of the batches, otherwise by the record's time. All records of a result that was not published
    are late.
    """
    from pyspark.sql import functions as F

    computation = comparison.computation
    results = results_of(computation.plan.pipeline)
    limits = different.agg(F.unix_micros(F.min("start")), F.unix_micros(F.max("end"))).first()
    assert limits is not None
    span = Span(EPOCH + limits[0] * _TICK, EPOCH + limits[1] * _TICK + _MILLISECOND)
    names = _shared(comparison, results)
    sought = different.select(
        *("key", "start", "end", "batch", "at", F.col("published").isNotNull().alias("was_published")),
        *[F.coalesce(f"row.{quote(name)}", f"_row.{quote(name)}").alias(f"_{name}") for name in names],
    )
    sought = sought.join(_cutoffs(comparison, sought), "batch", "left")
    records = _placed(comparison, span, names, results)
    same = [F.col(f"_{name}").eqNullSafe(F.col(f"event_{name}")) for name in names]
    joined = sought.join(records, reduce(lambda first, second: first & second, same, _within(results)))
    offset = F.get(F.col("ends"), F.col("partition"))
    late = F.when(
        F.col("was_published"), F.coalesce(F.col("offset") >= offset, F.col("timestamp") > F.col("at"))
    ).otherwise(True)
    place = F.struct(
        "partition", "offset", F.concat_ws(":", F.concat_ws("-", "topic", "partition"), "offset").alias("at")
    )
    counted = joined.groupBy("key").agg(
        F.when(F.count(late) > 0, F.count_if(late)).alias("late"),
        F.slice(F.sort_array(F.collect_list(F.when(late, place))), 1, _MOST_RECORDS).alias("places"),
    )
    with_records = different.join(counted, "key", "left")
    return with_records.withColumn("records", F.col("places.at"))


def _shared(comparison: Comparison, results: Recomputable) -> list[str]:
    """Return the columns that a result shares with its events."""
    if isinstance(results, Sessions):
        return list(results.key)
    decoder = decoder_of(comparison.computation.plan.pipeline)
    fields = decoder.check()
    return [name for name in comparison.sink.key if name in fields and name != results.column]


def _placed(comparison: Comparison, span: Span, names: list[str], results: Recomputable) -> "DataFrame":
    """Return the records of a span with the shared columns, and the starts of their windows."""
    from pyspark.sql import functions as F

    decoder = decoder_of(comparison.computation.plan.pipeline)
    records = comparison.computation.placed_events(span).select(
        *("topic", "partition", "offset", "timestamp"),
        F.col(f"event.{quote(decoder.time_column)}").alias("time"),
        *[F.col(f"event.{quote(name)}").alias(f"event_{name}") for name in names],
    )
    if not isinstance(results, Windows):
        return records
    # An equality join on the start scales to any size. An event in overlapping windows has several starts.
    durations = (results.width_time, results.slide_time, results.offset_time)
    width, slide, origin = (duration // _TICK for duration in durations)
    micros = F.unix_micros("time")
    last = micros - F.pmod(micros - origin, F.lit(slide))
    starts = F.sequence(last, last - (width - 1) // slide * slide, F.lit(-slide))
    return records.withColumn("window_start", F.explode(starts))


def _within(results: Recomputable) -> "Column":
    from pyspark.sql import functions as F

    if isinstance(results, Windows):
        return F.unix_micros("start") == F.col("window_start")
    if isinstance(results, Events):
        reach = F.expr(f"INTERVAL {results.reach_time // timedelta(microseconds=1)} MICROSECOND")
        return F.col("time").between(F.col("start") - reach, F.col("end") + reach)
    # Published times are rounded down to the millisecond.
    return (F.col("time") >= F.col("start")) & (F.col("time") < F.col("end") + F.expr("INTERVAL 1 MILLISECOND"))


def _cutoffs(comparison: Comparison, sought: "DataFrame") -> "DataFrame":
    """Return `batch` and `ends`, the next offset of each partition after it, for batches still in the checkpoint."""
    plan, spark = comparison.computation.plan, comparison.computation.spark
    batches = [row.batch for row in sought.select("batch").where("batch IS NOT NULL").distinct().collect()]
    rows: list[tuple[int, list[int | None]]] = []
    if plan.live is not None and batches:
        known: dict[int, dict[int, int]] = {}
        for batch, partition, end in ends_of_batches(plan.live.checkpoint, topic_of(plan.pipeline), batches):
            known.setdefault(batch, {})[partition] = end
        rows = [(batch, [ends.get(at) for at in range(max(ends) + 1)]) for batch, ends in known.items()]
    return spark.createDataFrame(rows, "batch INT, ends ARRAY<BIGINT>")


def _difference(row: "Row") -> AuditDifference:
    def text(value: bytearray | None) -> str | None:
        return None if value is None else bytes(value).decode("utf-8", "backslashreplace")

    return AuditDifference(
        verdict=row.verdict,
        start=row.start.astimezone(timezone.utc),
        end=row.end.astimezone(timezone.utc),
        key=text(row.key) or "",
        published=text(row.published),
        archived=text(row.expected),
        late=row.late,
        records=tuple(row.records or ()),
    )
