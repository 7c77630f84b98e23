"""The rows of a topic or a table, in a form in which both can be compared.

A row is a map from the names of its columns to their values, each as JSON in one way of writing: fields of objects by
name, no spaces, numbers by their value. A column that is null is as one that is not there.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from respool.diff.model import ComparedOutput, DiffRequest
from respool.diff.versions import then_version
from respool.kafka import records, topics
from respool.kafka.cluster import KafkaCluster
from respool.sinks.kafka import batch_header, newest_records
from respool.sinks.rendering import json_of
from respool.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# What stands in place of a column's name for a value that is no JSON object: another JSON value, a text, bytes.
_SCALAR, _TEXT, _BYTES = "value", "text", "bytes"
# Numbers that Spark's JSON would round: it keeps 38 digits, and 17 of those written with an exponent.
_ROUNDED = r"[:\[,\s-]\d(?:[\d.]{38,}|[\d.]{16,}[eE])"
# How two tables show their times: all digits, in one zone.
_EXACT = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def read_rows(
    spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest, side: ComparedOutput
) -> "DataFrame":
    """Return the rows of one side as `keyed`, `key`, `value`, `rows`, `since` and `clashes`.

    `keyed` tells whether a row has a key; else `key` is the row itself, and `rows` counts such rows. `value` holds the
    bytes of a row, null where it was withdrawn; `with_row` reads them. `since` tells whether the row counts. `clashes`
    is how many rows of a table stand under a key that another one has already.

    Args:
        spark: A session.
        kafka: The cluster; needed for a topic.
        request: What is compared.
        side: The side.
    """
    if side.kind == "kafka":
        assert kafka is not None
        return _by_key(_topic_rows(spark, kafka, request, side), request)
    return _table_rows(spark, request, side)


def _topic_rows(spark: "SparkSession", kafka: KafkaCluster, request: DiffRequest, side: ComparedOutput) -> "DataFrame":
    """Return the newest record of every key, and all records without one: `key`, `value`, `since`, `at`.

    Where rows are known by columns, with the `fields` of the value.
    """
    from pyspark.sql import functions as F

    starts, ends = topics.start_offsets(kafka, side.place), topics.end_offsets(kafka, side.place)
    span = {partition: (starts[partition], end) for partition, end in ends.items()}
    found = records.read_offsets(spark, kafka, side.place, span)
    since = _is_since(request, side).alias("since")
    found = found.select("key", "value", "partition", "offset", F.col("timestamp").alias("at"), since)
    identity = [F.concat(F.lit(b"k"), F.col("key"))]
    kept: tuple[str, ...] = ("key", "value", "since")
    if columns := request.key_columns():  # a record without a key is known by its columns
        found, kept = _with_fields(found, F.col("value"), "fields"), (*kept, "fields")
        identity.append(F.concat(F.lit("c"), _key_text(columns)).cast("binary"))
    identity.append(F.concat_ws(":", F.lit("o"), "partition", "offset").cast("binary"))
    return newest_records(found.withColumn("id", F.coalesce(*identity)), "id", kept)


def _is_since(request: DiffRequest, side: ComparedOutput) -> "Column":
    from pyspark.sql import functions as F

    since = request.since
    judged: list[Column] = []
    if since.batch is not None:
        judged.append(batch_header() > since.batch)
    if since.offsets and (since.output or request.a.address) == side.address:
        first = F.create_map(*[F.lit(number) for pair in since.offsets.items() for number in pair])
        judged.append(F.col("offset") >= F.try_element_at(first, F.col("partition")))
    if since.time is not None:
        judged.append(F.col("timestamp") >= F.lit(since.time))
    return F.coalesce(*judged, F.lit(True))


def _table_rows(spark: "SparkSession", request: DiffRequest, side: ComparedOutput) -> "DataFrame":
    from pyspark.sql import functions as F

    now = _version_rows(spark, request, side, None)
    then = then_version(request, side)
    if then is None:
        return now
    before = _version_rows(spark, request, side, then).select(
        "keyed", "key", F.col("value").alias("_value"), F.col("rows").alias("_rows")
    )
    more = F.greatest(F.col("rows") - F.coalesce("_rows", F.lit(0)), F.lit(0))
    changed = ~F.col("value").eqNullSafe(F.col("_value"))
    return now.join(before, ["keyed", "key"], "full_outer").select(
        *("keyed", "key", "value", F.when(F.col("keyed"), F.col("rows")).otherwise(more).alias("rows")),
        F.when(F.col("keyed"), changed).otherwise(more > 0).alias("since"),
        "clashes",
    )


def _version_rows(
    spark: "SparkSession", request: DiffRequest, side: ComparedOutput, version: int | None
) -> "DataFrame":
    from pyspark.sql import functions as F

    reader = spark.read.format("delta")
    table = (reader if version is None else reader.option("versionAsOf", version)).load(side.place)
    zones = (one.timezone for one in sorted((request.a, request.b), key=lambda one: one.kind == "delta"))
    zone = next(filter(None, zones), "UTC")

    def json(names: Iterable[str]) -> "Column":
        if request.mixed:  # as the topic's pipeline renders them
            return F.expr(json_of(table.schema, names, zone)).cast("binary")
        return F.to_json(F.struct(*[F.col(quote(name)) for name in names]), _EXACT).cast("binary")

    columns = request.key_columns()
    by_columns = request.mixed or not columns
    found = table.select(
        (F.lit(None).cast("binary") if by_columns else json(columns)).alias("key"),
        json(name for name in table.columns if name not in request.ignore or name in columns).alias("value"),
        *(F.lit(True).alias("since"), F.lit(0).alias("at")),
    )
    return _by_key(_with_fields(found, F.col("value"), "fields") if request.mixed else found, request)


def _by_key(found: "DataFrame", request: DiffRequest) -> "DataFrame":
    """Return rows by their keys: by columns of their `fields` if they have them, those without a key by themselves."""
    from pyspark.sql import functions as F

    if "fields" in found.columns:  # a tombstone has none, but has done its work: what it withdraws is gone
        found = found.where("fields IS NOT NULL").withColumn("keyed", F.lit(True))
        found = found.withColumn("key", _key_text(request.key_columns()).cast("binary"))
    else:
        found = found.withColumn("keyed", F.col("key").isNotNull()).where("keyed OR (since AND value IS NOT NULL)")
        found = with_row(found, F.when(~F.col("keyed"), F.col("value")), "row", request)
        found = found.withColumn("key", F.coalesce("key", F.to_json("row").cast("binary")))
    newest = F.max_by(F.struct("value", "since"), "at").alias("kept")
    grouped = found.groupBy("keyed", "key").agg(newest, F.count("*").alias("number"))
    return grouped.select(
        *("keyed", "key", "kept.value", "kept.since"),
        F.when(F.col("keyed"), 1).otherwise(F.col("number")).cast("bigint").alias("rows"),
        F.when(F.col("keyed"), F.col("number") - 1).otherwise(0).alias("clashes"),
    )


def with_row(found: "DataFrame", value: "Column", name: str, request: DiffRequest) -> "DataFrame":
    """Return a frame with one more column: the row in the bytes of `value`, without the columns to be ignored."""
    from pyspark.sql import functions as F

    found = _with_fields(found, value, name)
    if not request.ignore:
        return found
    return found.withColumn(name, F.map_filter(name, lambda column, _: ~column.isin(*request.ignore)))


def _with_fields(found: "DataFrame", value: "Column", name: str) -> "DataFrame":
    """Return a frame with one more column: all columns of the row in `value`; null where that is null."""
    from pyspark.sql import functions as F

    before, (data, text, json, whole) = found.columns, ("_data", "_text", "_json", "_whole")
    found = found.withColumn(data, value)
    found = found.withColumn(text, F.when(F.is_valid_utf8(F.col(data).cast("string")), F.col(data).cast("string")))
    # In brackets, so that nothing may follow: Spark's parser would ignore it.
    bracketed = F.when(~F.col(text).rlike(_ROUNDED), F.concat(F.lit("["), F.col(text), F.lit("]")))
    found = found.withColumn(json, F.try_parse_json(bracketed))
    only = F.try_variant_get(F.col(json), "$[1]", "variant").isNull()
    found = found.withColumn(whole, F.when(only, F.try_variant_get(F.col(json), "$[0]", "variant")))
    found = found.withColumn(name, F.try_variant_get(F.col(whole), "$", "map<string,variant>"))
    columns = F.transform_values(name, lambda _, one: F.to_json(one))
    fields = (
        F.when(F.col(name).isNotNull(), F.map_filter(columns, lambda _, one: one != "null"))
        .when(F.col(whole).isNotNull(), F.create_map(F.lit(_SCALAR), F.to_json(F.col(whole))))
        .when(F.col(text).isNotNull(), F.create_map(F.lit(_TEXT), _json_text(F.col(text))))
        .when(F.col(data).isNotNull(), F.create_map(F.lit(_BYTES), _json_text(F.hex(data))))
    )
    return found.withColumn(name, fields).select(*before, name)


def row_text(row: "Column") -> "Column":
    """Return a row as JSON."""
    from pyspark.sql import functions as F

    pairs = F.transform(F.map_entries(row), lambda one: F.concat(_json_text(one.key), F.lit(":"), one.value))
    return F.concat(F.lit("{"), F.array_join(pairs, ","), F.lit("}"))


def _key_text(columns: tuple[str, ...]) -> "Column":
    """Return the key of `fields` as JSON; null where there are none."""
    from pyspark.sql import functions as F

    pairs = [F.concat(_json_text(F.lit(name)), F.lit(":"), F.try_element_at("fields", F.lit(name))) for name in columns]
    text = F.concat(F.lit("{"), F.concat_ws(",", *pairs), F.lit("}"))
    return F.when(F.col("fields").isNotNull(), text)


def _json_text(text: "Column") -> "Column":
    """Return a text as JSON writes it."""
    from pyspark.sql import functions as F

    array = F.to_json(F.array(text))
    return F.substring(array, F.lit(2), F.length(array) - 2)
