"""What the archive says of a slice beside what was published of it."""

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Literal

from respool.errors import ReprocessError
from respool.pipeline.results import Sessions, Windows
from respool.reprocess.computation import Computation, is_open, times, timestamp
from respool.reprocess.plan import ReprocessPlan, results_of
from respool.sinks.protocol import KeyedSink, Sink, WriteContext
from respool.sinks.rendering import json_of
from respool.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Verdict = Literal["same", "wrong", "missing", "extra"]
DIFFERENT: tuple[Verdict, ...] = ("wrong", "missing", "extra")


@dataclass(frozen=True)
class Comparison:
    """Compares results with what a sink holds.

    Attributes:
        computation: Computes the results.
        sink: Holds what was published.
        write: How the sink is reached.
        closed: Results that end later are open still, and left out; None to leave out none.
    """

    computation: Computation
    sink: KeyedSink
    write: WriteContext
    closed: datetime | None

    def published(self, schema: "StructType") -> "DataFrame":
        """Return what was published, with the `start` and `end` of each result; of windows only those of the plan.

        Kept on disk when several slices ask for it.

        Args:
            schema: That of results.
        """
        from pyspark import StorageLevel

        plan, results = self.computation.plan, results_of(self.computation.plan.pipeline)
        start, end = times(results, "row.")
        found = self.sink.published(self.computation.spark, self.write, schema)
        found = found.select("*", start.alias("start"), end.alias("end"))
        # What is no result of this pipeline has no times; nobody can tell where it belongs.
        found = found.where("start IS NOT NULL AND end IS NOT NULL")
        if isinstance(results, Windows):
            span = (plan.slices[0].start, plan.slices[-1].end)
            found = found.where((start >= timestamp(span[0])) & (start < timestamp(span[1])))
        return found.persist(StorageLevel.DISK_ONLY) if len(plan.slices) > 1 else found

    def verdicts(self, number: int, rows: "DataFrame", published: "DataFrame") -> "DataFrame":
        """Return every result of a slice, computed or published, with a `verdict`.

        Columns: `key`, `expected` and `published` (the values), `row` as computed, `_row` as published, `start`, `end`,
        `batch`, `at`, `verdict`.

        Args:
            number: The slice's number.
            rows: Its results, computed.
            published: What was published.
        """
        from pyspark.sql import functions as F

        plan = self.computation.plan
        results = results_of(plan.pipeline)
        start, end = times(results)
        seen = rows.withColumns({"_start": start, "_end": end, "_mine": self.computation.is_mine(number)})
        seen = seen.withColumn("_open", is_open(results, self.closed, F.col("_end")))
        there = self._there(number, seen, published)
        mine = seen.where("_mine AND NOT _open").drop("_mine", "_open", "_start", "_end")
        expected = self.sink.render(mine)
        start, end = times(results, "row.")
        expected = expected.select(
            "key", F.col("value").alias("expected"), "row", start.alias("start"), end.alias("end")
        )
        there = there.select("key", F.col("value").alias("published"), "batch", "at", *_renamed("row", "start", "end"))
        both = expected.join(there, "key", "full_outer")
        verdict = (
            F.when(F.col("published").isNull(), "missing")
            .when(F.col("expected").isNull(), "extra")
            .when(F.col("expected") == F.col("published"), "same")
            .otherwise("wrong")
        )
        known = [F.coalesce(name, f"_{name}").alias(name) for name in ("start", "end")]
        both = both.withColumn("verdict", verdict)
        return both.select("key", "expected", "published", "row", "_row", *known, "batch", "at", "verdict")

    def _there(self, number: int, seen: "DataFrame", published: "DataFrame") -> "DataFrame":
        """Return what was published and belongs to a slice, without what is open."""
        results = results_of(self.computation.plan.pipeline)
        if isinstance(results, Windows):
            return published.where(self._in_slice(number) & ~is_open(results, self.closed, _column("end")))
        return self._sessions_there(results, number, seen, published)

    def _in_slice(self, number: int) -> "Column":
        here = self.computation.plan.slices[number]
        return (_column("start") >= timestamp(here.start)) & (_column("start") < timestamp(here.end))

    def _sessions_there(
        self, sessions: Sessions, number: int, seen: "DataFrame", published: "DataFrame"
    ) -> "DataFrame":
        """Return the published sessions of a slice.

        The live query saw a part of the events. So each session that it told lies within one that the archive tells,
        and is wrong if that one has another start; even if it lies outside the asked span itself.
        """
        from pyspark.sql import functions as F

        plan = self.computation.plan
        names = [f"_key{at}" for at in range(len(sessions.key))]
        around = seen.select(
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
        within = reduce(lambda one, other: one & other, same, F.col("start").between(F.col("_from"), F.col("_to")))
        found = published.join(around, within, "left").where(~F.coalesce("_around_open", F.lit(False)))
        mine = F.coalesce(F.col("_around_mine"), F.lit(False))
        first, last = plan.slices[0].start, plan.slices[-1].end
        belongs = self._in_slice(number) | ((F.col("start") >= timestamp(last)) & mine)
        if number == 0:
            reaches_in = (F.col("start") < timestamp(first)) & (mine | (F.col("end") >= timestamp(first)))
            belongs |= reaches_in
        return found.where(belongs & ~is_open(sessions, self.closed, F.col("end"))).drop(
            "_from", "_to", "_around_mine", "_around_open"
        )


def changes(verdicts: "DataFrame", only: "tuple[Verdict, ...] | None" = None) -> "DataFrame":
    """Return what a sink must be told: results, and what is to be withdrawn.

    Args:
        verdicts: What was found.
        only: Results with these verdicts; None for all of them.
    """
    from pyspark.sql import functions as F

    wanted = verdicts if only is None else verdicts.where(F.col("verdict").isin(*only))
    row = F.when(F.col("verdict") == "extra", F.col("_row")).otherwise(F.col("row"))
    return wanted.select("key", F.col("expected").alias("value"), row.alias("row"), "verdict")


def keyed(sink: Sink, plan: ReprocessPlan) -> KeyedSink | None:
    """Return a sink as one that keeps results under keys; None when it does not.

    Raises ReprocessError when its key does not tell results of different times apart: one put right would then take the
    place of a newer one.
    """
    if not isinstance(sink, KeyedSink) or not sink.key:
        return None
    results = results_of(plan.pipeline)
    column = results.column if isinstance(results, Windows) else results.start
    if column not in sink.key:
        raise ReprocessError(
            f"The key of the {sink.describe()} is {', '.join(sink.key)}: results of an earlier time would take the "
            f"place of newer ones. Add {column} to the sink's key, or write to a folder with --output."
        )
    return sink


def uncompared(sink: Sink, rows: "DataFrame") -> "DataFrame":
    """Return results as changes, without a look at what was published; `rows` are those to be told."""
    from pyspark.sql import functions as F

    if isinstance(sink, KeyedSink):
        found = sink.render(rows)
    else:
        row = F.struct(*[F.col(quote(name)) for name in rows.columns])
        value = F.expr(json_of(rows.schema, rows.columns)).cast("binary")
        found = rows.select(F.lit(None).cast("binary").alias("key"), value.alias("value"), row.alias("row"))
    return found.withColumn("verdict", F.lit("missing"))


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.col(name)


def _renamed(*names: str) -> "list[Column]":
    return [_column(name).alias(f"_{name}") for name in names]
