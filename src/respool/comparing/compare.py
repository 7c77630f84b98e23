"""Compare two outputs, joined by key in Spark."""

from typing import TYPE_CHECKING

from respool.comparing.model import VERDICTS, DiffRequest, DiffSummary, DiffVerdict, RowDifference
from respool.comparing.report import DiffReport
from respool.comparing.rows import read_rows, row_text, with_row
from respool.errors import DiffError
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark
from respool.spark.failures import innermost_message
from respool.spark.internals import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_COLUMNS = 1000  # of which the differences are counted, one by one


def compare(
    spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest, most: int = 20, output: str | None = None
) -> DiffReport:
    """Compare two outputs as they are now.

    Args:
        spark: A session.
        kafka: The cluster of the topics; None when only tables are compared.
        request: The two outputs, and how to compare them.
        most: The number of differences of each verdict that are reported in full.
        output: A new folder to which all differences are written, as Parquet.

    Raises:
        DiffError: The outputs cannot be compared.
    """

    def refusal(error: Exception) -> DiffError:
        return DiffError(
            f"The {request.a} and the {request.b} cannot be compared: {innermost_message(str(error))}\n"
            "Check that both can be read, and run this again. Spark's log under the home (logs/spark.log) has the "
            "details."
        )

    with translate_errors(refusal):
        return _compare(spark, kafka, request, most, output)


def _compare(
    spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest, most: int, output: str | None
) -> DiffReport:
    from pyspark import StorageLevel

    joined = _joined(spark, kafka, request).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counts(joined, request)
        summary = DiffSummary(**counts, columns=_by_column(joined) if counts["differ"] else {})
        if output is not None:
            _all(joined).write.mode("errorifexists").parquet(for_spark(output))
        shown = [row for verdict in VERDICTS if counts[verdict] for row in _first(joined, verdict, most)]
    finally:
        joined.unpersist()
    return DiffReport(request, summary, tuple(shown), output)


def _joined(spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest) -> "DataFrame":
    """Return a row for every key, with how many of its rows are `equal`, `differ`, are `only_a` or `only_b`.

    For equal rows nothing else is kept, so that millions of them need little memory.
    """
    from pyspark.sql import functions as F

    sides = [
        read_rows(spark, kafka, request, side).select(
            *("keyed", "key"),
            *[F.col(name).alias(f"{letter}_{name}") for name in ("value", "rows", "since", "clashes")],
        )
        for letter, side in (("a", request.a), ("b", request.b))
    ]
    both = sides[0].join(sides[1], ["keyed", "key"], "full_outer")
    both = both.where(F.coalesce("a_since", F.lit(False)) | F.coalesce("b_since", F.lit(False)))
    a, b = (F.when(F.col(f"{side}_value").isNotNull(), F.col(f"{side}_rows")).otherwise(0) for side in "ab")
    both = both.withColumn("alike", F.coalesce(F.col("keyed") & (F.col("a_value") == F.col("b_value")), F.lit(False)))
    for letter in "ab":  # most rows are equal, byte for byte, and need not be parsed
        both = with_row(both, F.when(~F.col("alike"), F.col(f"{letter}_value")), f"{letter}_row", request)
    common = F.least(a, b)
    same = F.col("alike") | F.map_entries("a_row").eqNullSafe(F.map_entries("b_row"))
    columns = F.json_object_keys(F.col("key").cast("string"))
    counted = {
        "equal": F.when(same, common).otherwise(0),
        "differ": F.when(same, 0).otherwise(common),
        "only_a": a - common,
        "only_b": b - common,
        "a_clashes": F.coalesce("a_clashes", F.lit(0)),
        "b_clashes": F.coalesce("b_clashes", F.lit(0)),
        **{f"has_{at}": F.array_contains(columns, name) for at, name in enumerate(request.key_columns())},
    }
    both = both.withColumns(counted).where("equal + differ + only_a + only_b > 0")
    different = F.col("differ") + F.col("only_a") + F.col("only_b") > 0
    kept = [F.when(different, F.col(name)).alias(name) for name in ("keyed", "key", "a_row", "b_row")]
    return both.select(*kept, *counted)


def _counts(joined: "DataFrame", request: DiffRequest) -> dict[str, int]:
    """Return the number of rows of each kind.

    Raises:
        DiffError: No row has a column of the key, or the key does not identify the rows of a table.
    """
    from pyspark.sql import functions as F

    columns = request.key_columns()
    row = joined.agg(
        *[F.sum(name).alias(name) for name in ("equal", *VERDICTS, "a_clashes", "b_clashes")],
        *[F.bool_or(f"has_{number}").alias(f"has_{number}") for number, _ in enumerate(columns)],
    ).first()
    assert row is not None
    for side, clashes in ((request.a, row.a_clashes), (request.b, row.b_clashes)):
        if clashes and side.kind == "delta":
            raise DiffError(
                f"The key {', '.join(columns)} does not identify a row of the {side}: {clashes:,} rows share "
                "a key with another row. Name more columns with --key."
            )
    for number, name in enumerate(columns):
        if row[f"has_{number}"] is False:
            raise DiffError(
                f"Neither the {request.a} nor the {request.b} has a row with the column {name}. Name the columns that "
                "identify a row with --key."
            )
    return {name: row[name] or 0 for name in ("equal", *VERDICTS)}


def _by_column(joined: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as F

    changed = joined.where("differ > 0").select(F.explode(_changed()).alias("change"))
    names = changed.groupBy("change.column").count()
    rows = names.orderBy(F.desc("count"), "column").limit(_COLUMNS).collect()
    return {row.column: row["count"] for row in rows}


def _changed() -> "Column":
    """Return the columns in which a row differs, as `column`, `a` and `b`."""
    from pyspark.sql import functions as F

    names = F.array_sort(F.array_union(F.map_keys("a_row"), F.map_keys("b_row")))
    pairs = F.transform(
        names,
        lambda name: F.struct(
            name.alias("column"),
            F.try_element_at("a_row", name).alias("a"),
            F.try_element_at("b_row", name).alias("b"),
        ),
    )
    return F.filter(pairs, lambda pair: ~pair.a.eqNullSafe(pair.b))


def _all(joined: "DataFrame") -> "DataFrame":
    """Return all differences: `verdict`, `key`, `rows`, the rows `a` and `b` as JSON, and the `columns` that differ."""
    from pyspark.sql import functions as F

    verdict = F.coalesce(*[F.when(F.col(name) > 0, F.lit(name)) for name in VERDICTS])
    return joined.where("differ + only_a + only_b > 0").select(
        verdict.alias("verdict"),
        F.when(F.col("keyed"), _text("key")).alias("key"),
        F.expr("differ + only_a + only_b").alias("rows"),
        F.when(F.col("only_b") == 0, row_text(F.col("a_row"))).alias("a"),
        F.when(F.col("only_a") == 0, row_text(F.col("b_row"))).alias("b"),
        F.when(F.col("differ") > 0, _changed()).alias("columns"),
    )


def _text(name: str) -> "Column":
    """Return bytes as text, or in hexadecimal if they are not valid UTF-8."""
    from pyspark.sql import functions as F

    text = F.col(name).cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(name)))


def _first(joined: "DataFrame", verdict: DiffVerdict, most: int) -> list[RowDifference]:
    from pyspark.sql import functions as F

    rows = joined.where(F.col(verdict) > 0).orderBy("key").limit(most)
    rows = rows.select(
        *("keyed", _text("key").alias("key"), F.col(verdict).alias("rows"), "a_row", "b_row"),
        F.when(F.col("differ") > 0, _changed()).alias("columns"),
    )
    return [_difference(verdict, row) for row in rows.collect()]


def _difference(verdict: DiffVerdict, row: "Row") -> RowDifference:
    return RowDifference(
        verdict=verdict,
        key=row.key if row.keyed else None,
        a=None if verdict == "only_b" else row.a_row,
        b=None if verdict == "only_a" else row.b_row,
        columns={change.column: (change.a, change.b) for change in row.columns or ()},
        rows=row.rows,
    )
