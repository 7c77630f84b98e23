"""Two outputs, joined by key in Spark."""

from typing import TYPE_CHECKING

from respool.diff.model import VERDICTS, DiffRequest, DiffSummary, DiffVerdict, RowDifference
from respool.diff.report import DiffReport
from respool.diff.rows import read_rows, row_text, with_row
from respool.errors import DiffError
from respool.kafka.cluster import KafkaCluster
from respool.spark.failures import innermost_message

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
        request: What is compared.
        most: How many differences of each verdict are told in full.
        output: A new folder to which all of them are written, as Parquet.

    Raises:
        DiffError: They cannot be compared.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return _compare(spark, kafka, request, most, output)
    except (PySparkException, Py4JJavaError) as error:
        raise DiffError(
            f"The {request.a} and the {request.b} cannot be compared: {innermost_message(str(error))}\n"
            "Check that both can "
            "be read, and run this again; Spark's log under the home (logs/spark.log) tells more."
        ) from error


def _compare(
    spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest, most: int, output: str | None
) -> DiffReport:
    from pyspark import StorageLevel

    found = _joined(spark, kafka, request).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counts(found, request)
        summary = DiffSummary(**counts, columns=_by_column(found) if counts["differ"] else {})
        if output is not None:
            _all(found).write.mode("errorifexists").parquet(output)
        shown = [one for verdict in VERDICTS if counts[verdict] for one in _first(found, verdict, most)]
    finally:
        found.unpersist()
    return DiffReport(request, summary, tuple(shown), output)


def _joined(spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest) -> "DataFrame":
    """Return a line for every key, with how many of its rows are `equal`, `differ`, are `only_a` or `only_b`.

    Of rows that are equal nothing else is kept, so that millions of them take little room.
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
    a, b = (F.when(F.col(f"{one}_value").isNotNull(), F.col(f"{one}_rows")).otherwise(0) for one in "ab")
    both = both.withColumn("alike", F.coalesce(F.col("keyed") & (F.col("a_value") == F.col("b_value")), F.lit(False)))
    for one in "ab":  # most rows are alike, byte for byte, and need not be read
        both = with_row(both, F.when(~F.col("alike"), F.col(f"{one}_value")), f"{one}_row", request)
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


def _counts(found: "DataFrame", request: DiffRequest) -> dict[str, int]:
    """Return how many rows there are of each kind.

    Raises:
        DiffError: A column of the key is nowhere to be seen, or does not tell rows of a table apart.
    """
    from pyspark.sql import functions as F

    columns = request.key_columns()
    row = found.agg(
        *[F.sum(name).alias(name) for name in ("equal", *VERDICTS, "a_clashes", "b_clashes")],
        *[F.bool_or(f"has_{number}").alias(f"has_{number}") for number, _ in enumerate(columns)],
    ).first()
    assert row is not None
    for side, clashes in ((request.a, row.a_clashes), (request.b, row.b_clashes)):
        if clashes and side.kind == "delta":
            raise DiffError(
                f"The {side} has rows that are alike in {', '.join(columns)}: {clashes:,} more than it has such keys. "
                "Name more columns with --key."
            )
    for number, name in enumerate(columns):
        if row[f"has_{number}"] is False:
            raise DiffError(
                f"No row of the {request.a}, and none of the {request.b}, has the column {name}. Name the columns that "
                "identify a row with --key."
            )
    return {name: row[name] or 0 for name in ("equal", *VERDICTS)}


def _by_column(found: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as F

    names = found.where("differ > 0").select(F.explode(_changed()).alias("one")).groupBy("one.column").count()
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
    return F.filter(pairs, lambda one: ~one.a.eqNullSafe(one.b))


def _all(found: "DataFrame") -> "DataFrame":
    """Return all differences: `verdict`, `key`, `rows`, the rows `a` and `b` as JSON, and the `columns` that differ."""
    from pyspark.sql import functions as F

    verdict = F.coalesce(*[F.when(F.col(name) > 0, F.lit(name)) for name in VERDICTS])
    return found.where("differ + only_a + only_b > 0").select(
        verdict.alias("verdict"),
        F.when(F.col("keyed"), _text("key")).alias("key"),
        F.expr("differ + only_a + only_b").alias("rows"),
        F.when(F.col("only_b") == 0, row_text(F.col("a_row"))).alias("a"),
        F.when(F.col("only_a") == 0, row_text(F.col("b_row"))).alias("b"),
        F.when(F.col("differ") > 0, _changed()).alias("columns"),
    )


def _text(name: str) -> "Column":
    """Return bytes as text, or in hexadecimal where they are none."""
    from pyspark.sql import functions as F

    text = F.col(name).cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(name)))


def _first(found: "DataFrame", verdict: DiffVerdict, most: int) -> list[RowDifference]:
    from pyspark.sql import functions as F

    rows = found.where(F.col(verdict) > 0).orderBy("key").limit(most)
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
        columns={one.column: (one.a, one.b) for one in row.columns or ()},
        rows=row.rows,
    )
