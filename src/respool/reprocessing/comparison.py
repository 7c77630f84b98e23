"""Compare the results of a slice, computed from the archive, with those that were published."""

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Literal

from respool.errors import ReprocessError
from respool.pipeline.results import Sessions
from respool.reprocessing.computation import Computation, is_open, times, timestamp
from respool.reprocessing.plan import ReprocessPlan, results_of
from respool.sinks.protocol import KeyedSink, Sink, WriteContext, json_of
from respool.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

AuditVerdict = Literal["same", "wrong", "missing", "extra"]
DIFFERENT: tuple[AuditVerdict, ...] = ("wrong", "missing", "extra")


@dataclass(frozen=True)
class Comparison:
    """Compares computed results with those in a sink.

    Attributes:
        computation: Computes the results.
        sink: The sink of the published results.
        write: How the sink is reached.
        closed: Results that end later are still open and are skipped; None to skip none.
    """

    computation: Computation
    sink: KeyedSink
    write: WriteContext
    closed: datetime | None

    def published(self, schema: "StructType") -> "DataFrame":
        """Return the published results, with the `start` and `end` of each; only windows of the plan.

        Persisted on disk when the plan has several slices.

        Args:
            schema: The schema of results.
        """
        from pyspark import StorageLevel

        plan, results = self.computation.plan, results_of(self.computation.plan.pipeline)
        start, end = times(results, "row.")
        published = self.sink.published(self.computation.spark, self.write, schema)
        published = published.select("*", start.alias("start"), end.alias("end"))
        # Rows without times are not results of this pipeline and belong to no slice.
        published = published.where("start IS NOT NULL AND end IS NOT NULL")
        if not isinstance(results, Sessions):
            span = (plan.slices[0].start, plan.slices[-1].end)
            published = published.where((start >= timestamp(span[0])) & (start < timestamp(span[1])))
        return published.persist(StorageLevel.DISK_ONLY) if len(plan.slices) > 1 else published

    def verdicts(self, number: int, rows: "DataFrame", published: "DataFrame") -> "DataFrame":
        """Return every result of a slice, computed or published, with a `verdict`.

        Columns: `key`, `expected` and `published` (the values), `row` as computed, `_row` as published, `start`, `end`,
        `batch`, `at`, `verdict`.

        Args:
            number: The slice's number.
            rows: Its results, computed.
            published: The published results.
        """
        from pyspark.sql import functions as F

        plan = self.computation.plan
        results = results_of(plan.pipeline)
        start, end = times(results)
        belongs = self.computation.belongs_to_slice(number)
        computed = rows.withColumns({"_start": start, "_end": end, "_mine": belongs})
        computed = computed.withColumn("_open", is_open(results, self.closed, F.col("_end")))
        existing = self._published_of_slice(number, computed, published)
        closed = computed.where("_mine AND NOT _open").drop("_mine", "_open", "_start", "_end")
        expected = self.sink.render(closed)
        start, end = times(results, "row.")
        expected = expected.select(
            "key", F.col("value").alias("expected"), "row", start.alias("start"), end.alias("end")
        )
        existing = existing.select(
            "key", F.col("value").alias("published"), "batch", "at", *_renamed("row", "start", "end")
        )
        both = expected.join(existing, "key", "full_outer")
        verdict = (
            F.when(F.col("published").isNull(), "missing")
            .when(F.col("expected").isNull(), "extra")
            .when(F.col("expected") == F.col("published"), "same")
            .otherwise("wrong")
        )
        times_of_both = [F.coalesce(name, f"_{name}").alias(name) for name in ("start", "end")]
        both = both.withColumn("verdict", verdict)
        return both.select("key", "expected", "published", "row", "_row", *times_of_both, "batch", "at", "verdict")

    def _published_of_slice(self, number: int, computed: "DataFrame", published: "DataFrame") -> "DataFrame":
        """Return the published results that belong to a slice, without open results."""
        results = results_of(self.computation.plan.pipeline)
        if not isinstance(results, Sessions):
            return published.where(self._in_slice(number) & ~is_open(results, self.closed, _column("end")))
        return self._sessions_of_slice(results, number, computed, published)

    def _in_slice(self, number: int) -> "Column":
        here = self.computation.plan.slices[number]
        return (_column("start") >= timestamp(here.start)) & (_column("start") < timestamp(here.end))

    def _sessions_of_slice(
        self, sessions: Sessions, number: int, computed: "DataFrame", published: "DataFrame"
    ) -> "DataFrame":
        """Return the published sessions of a slice.

        The live query has read a subset of the events. So each published session lies within a session computed from
        the archive, and is wrong if that session has another start, even if it lies outside the requested span itself.
        """
        from pyspark.sql import functions as F

        plan = self.computation.plan
        names = [f"_key{at}" for at in range(len(sessions.key))]
        around = computed.select(
            *[F.col(quote(name)).alias(alias) for name, alias in zip(sessions.key, names, strict=True)],
            F.date_trunc("millisecond", "_start").alias("_from"),  # published without microseconds by older versions
            F.col("_end").alias("_to"),
            F.col("_mine").alias("_around_mine"),
            F.col("_open").alias("_around_open"),
        )
        same = [
            F.col(f"row.{quote(name)}").eqNullSafe(F.col(alias))
            for name, alias in zip(sessions.key, names, strict=True)
        ]
        within = reduce(
            lambda first, second: first & second, same, F.col("start").between(F.col("_from"), F.col("_to"))
        )
        candidates = published.join(around, within, "left").where(~F.coalesce("_around_open", F.lit(False)))
        mine = F.coalesce(F.col("_around_mine"), F.lit(False))
        first, last = plan.slices[0].start, plan.slices[-1].end
        belongs = self._in_slice(number) | ((F.col("start") >= timestamp(last)) & mine)
        if number == 0:
            reaches_in = (F.col("start") < timestamp(first)) & (mine | (F.col("end") >= timestamp(first)))
            belongs |= reaches_in
        return candidates.where(belongs & ~is_open(sessions, self.closed, F.col("end"))).drop(
            "_from", "_to", "_around_mine", "_around_open"
        )


def changes(verdicts: "DataFrame", only: "tuple[AuditVerdict, ...] | None" = None) -> "DataFrame":
    """Return the changes to publish: results, and withdrawals of published results.

    Args:
        verdicts: The compared results.
        only: Results with these verdicts; None for all of them.
    """
    from pyspark.sql import functions as F

    selected = verdicts if only is None else verdicts.where(F.col("verdict").isin(*only))
    row = F.when(F.col("verdict") == "extra", F.col("_row")).otherwise(F.col("row"))
    return selected.select("key", F.col("expected").alias("value"), row.alias("row"), "verdict")


def keyed(sink: Sink, plan: ReprocessPlan) -> KeyedSink | None:
    """Return a sink as a keyed sink; None when its results have no key.

    Raises ReprocessError when its key does not contain the time of a result: a correction would then replace a newer
    result.
    """
    if not isinstance(sink, KeyedSink) or not sink.key:
        return None
    results = results_of(plan.pipeline)
    column = results.start if isinstance(results, Sessions) else results.column
    if column not in sink.key:
        raise ReprocessError(
            f"The key of the {sink.describe()} is {', '.join(sink.key)}: results of an earlier time would replace "
            f"newer results. Add {column} to the sink's key, or write to a folder with --output."
        )
    return sink


def as_changes(sink: Sink, rows: "DataFrame") -> "DataFrame":
    """Return results to publish as changes, without comparing them with published results."""
    from pyspark.sql import functions as F

    if isinstance(sink, KeyedSink):
        rendered = sink.render(rows)
    else:
        row = F.struct(*[F.col(quote(name)) for name in rows.columns])
        value = F.expr(json_of(rows.schema, rows.columns)).cast("binary")
        rendered = rows.select(F.lit(None).cast("binary").alias("key"), value.alias("value"), row.alias("row"))
    return rendered.withColumn("verdict", F.lit("missing"))


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.col(name)


def _renamed(*names: str) -> "list[Column]":
    return [_column(name).alias(f"_{name}") for name in names]
