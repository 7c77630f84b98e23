"""Read the rows of a topic or a table, in a form in which both can be compared.

A row is a map from column names to values, each as canonical JSON: fields of objects sorted by name, no spaces, numbers
by their value. A null column is treated as a missing column.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from respool.checkpoint.snapshot import QueryPosition
from respool.comparing.model import ComparedOutput, DiffRequest
from respool.delta.log import open_table
from respool.errors import DiffError
from respool.kafka import records, topics
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark
from respool.sinks.kafka import batch_header, newest_records
from respool.sinks.protocol import json_of
from respool.spark.sql import quote
from respool.text import did_you_mean, number_range, plural
from respool.times import EPOCH, time_text

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


# The column name of a value that is not a JSON object: another JSON value, a text, bytes.
_SCALAR, _TEXT, _BYTES = "value", "text", "bytes"
# Numbers that Spark's JSON would round: it keeps 38 digits, and 17 of a number with an exponent.
_ROUNDED = r"[:\[,\s-]\d(?:[\d.]{38,}|[\d.]{16,}[eE])"
# How times of tables are rendered: all digits, in one zone.
_EXACT = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def read_rows(
    spark: "SparkSession", kafka: KafkaCluster | None, request: DiffRequest, side: ComparedOutput
) -> "DataFrame":
    """Return the rows of one output as `keyed`, `key`, `value`, `rows`, `since` and `clashes`.

    `keyed` is true for a row with a key; otherwise `key` is the row itself, and `rows` counts such rows. `value` holds
    the bytes of a row, null if it was withdrawn; `with_row` parses them. `since` is true for rows that are compared.
    `clashes` is the number of rows of a table that share their key with another row.

    Args:
        spark: A session.
        kafka: The cluster; needed for a topic.
        request: The two outputs, and how to compare them.
        side: The output to read.
    """
    if side.kind == "kafka":
        assert kafka is not None
        return _by_key(_topic_rows(spark, kafka, request, side), request)
    return _table_rows(spark, request, side)


def _topic_rows(spark: "SparkSession", kafka: KafkaCluster, request: DiffRequest, side: ComparedOutput) -> "DataFrame":
    """Return the newest record of every key, and all records without a key: `key`, `value`, `since`, `at`.

    If rows are identified by columns, the `fields` of the value are included.
    """
    from pyspark.sql import functions as F

    starts, ends = topics.start_offsets(kafka, side.place), topics.end_offsets(kafka, side.place)
    span = {partition: (starts[partition], end) for partition, end in ends.items()}
    frame = records.read_offsets(spark, kafka, side.place, span)
    since = _is_since(request, side).alias("since")
    frame = frame.select("key", "value", "partition", "offset", F.col("timestamp").alias("at"), since)
    identity = [F.concat(F.lit(b"k"), F.col("key"))]
    kept: tuple[str, ...] = ("key", "value", "since")
    if columns := request.key_columns():  # a record without a key is identified by its columns
        frame, kept = _with_fields(frame, F.col("value"), "fields"), (*kept, "fields")
        identity.append(F.concat(F.lit("c"), _key_text(columns)).cast("binary"))
    identity.append(F.concat_ws(":", F.lit("o"), "partition", "offset").cast("binary"))
    return newest_records(frame.withColumn("id", F.coalesce(*identity)), "id", kept)


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
    table = (reader if version is None else reader.option("versionAsOf", version)).load(for_spark(side.place))
    zones = (output.timezone for output in sorted((request.a, request.b), key=lambda output: output.kind == "delta"))
    zone = next(filter(None, zones), "UTC")

    def json(names: Iterable[str]) -> "Column":
        if request.mixed:  # as the topic's pipeline renders them
            return F.expr(json_of(table.schema, names, zone)).cast("binary")
        return F.to_json(F.struct(*[F.col(quote(name)) for name in names]), _EXACT).cast("binary")

    columns = request.key_columns()
    by_columns = request.mixed or not columns
    frame = table.select(
        (F.lit(None).cast("binary") if by_columns else json(columns)).alias("key"),
        json(name for name in table.columns if name not in request.ignore or name in columns).alias("value"),
        *(F.lit(True).alias("since"), F.lit(0).alias("at")),
    )
    return _by_key(_with_fields(frame, F.col("value"), "fields") if request.mixed else frame, request)


def _by_key(frame: "DataFrame", request: DiffRequest) -> "DataFrame":
    """Return rows by their keys: by columns of their `fields` if present; a row without a key is its own key."""
    from pyspark.sql import functions as F

    if "fields" in frame.columns:  # a tombstone has no fields, and the record that it withdraws is already gone
        frame = frame.where("fields IS NOT NULL").withColumn("keyed", F.lit(True))
        frame = frame.withColumn("key", _key_text(request.key_columns()).cast("binary"))
    else:
        frame = frame.withColumn("keyed", F.col("key").isNotNull()).where("keyed OR (since AND value IS NOT NULL)")
        frame = with_row(frame, F.when(~F.col("keyed"), F.col("value")), "row", request)
        frame = frame.withColumn("key", F.coalesce("key", F.to_json("row").cast("binary")))
    newest = F.max_by(F.struct("value", "since"), "at").alias("kept")
    grouped = frame.groupBy("keyed", "key").agg(newest, F.count("*").alias("number"))
    return grouped.select(
        *("keyed", "key", "kept.value", "kept.since"),
        F.when(F.col("keyed"), 1).otherwise(F.col("number")).cast("bigint").alias("rows"),
        F.when(F.col("keyed"), F.col("number") - 1).otherwise(0).alias("clashes"),
    )


def with_row(frame: "DataFrame", value: "Column", name: str, request: DiffRequest) -> "DataFrame":
    """Return a frame with one more column: the row parsed from the bytes of `value`, without the ignored columns."""
    from pyspark.sql import functions as F

    frame = _with_fields(frame, value, name)
    if not request.ignore:
        return frame
    return frame.withColumn(name, F.map_filter(name, lambda column, _: ~column.isin(*request.ignore)))


def _with_fields(frame: "DataFrame", value: "Column", name: str) -> "DataFrame":
    """Return a frame with one more column: all columns of the row in `value`; null if that is null."""
    from pyspark.sql import functions as F

    before, (data, text, json, whole) = frame.columns, ("_data", "_text", "_json", "_whole")
    frame = frame.withColumn(data, value)
    frame = frame.withColumn(text, F.when(F.is_valid_utf8(F.col(data).cast("string")), F.col(data).cast("string")))
    # In brackets: Spark's parser ignores anything after a complete value.
    bracketed = F.when(~F.col(text).rlike(_ROUNDED), F.concat(F.lit("["), F.col(text), F.lit("]")))
    frame = frame.withColumn(json, F.try_parse_json(bracketed))
    only = F.try_variant_get(F.col(json), "$[1]", "variant").isNull()
    frame = frame.withColumn(whole, F.when(only, F.try_variant_get(F.col(json), "$[0]", "variant")))
    frame = frame.withColumn(name, F.try_variant_get(F.col(whole), "$", "map<string,variant>"))
    columns = F.transform_values(name, lambda _, field: F.to_json(field))
    fields = (
        F.when(F.col(name).isNotNull(), F.map_filter(columns, lambda _, json: json != "null"))
        .when(F.col(whole).isNotNull(), F.create_map(F.lit(_SCALAR), F.to_json(F.col(whole))))
        .when(F.col(text).isNotNull(), F.create_map(F.lit(_TEXT), _json_text(F.col(text))))
        .when(F.col(data).isNotNull(), F.create_map(F.lit(_BYTES), _json_text(F.hex(data))))
    )
    return frame.withColumn(name, fields).select(*before, name)


def row_text(row: "Column") -> "Column":
    """Return a row as JSON."""
    from pyspark.sql import functions as F

    pairs = F.transform(F.map_entries(row), lambda entry: F.concat(_json_text(entry.key), F.lit(":"), entry.value))
    return F.concat(F.lit("{"), F.array_join(pairs, ","), F.lit("}"))


def _key_text(columns: tuple[str, ...]) -> "Column":
    """Return the key from `fields` as JSON; null if there are no fields."""
    from pyspark.sql import functions as F

    pairs = [F.concat(_json_text(F.lit(name)), F.lit(":"), F.try_element_at("fields", F.lit(name))) for name in columns]
    text = F.concat(F.lit("{"), F.concat_ws(",", *pairs), F.lit("}"))
    return F.when(F.col("fields").isNotNull(), text)


def _json_text(text: "Column") -> "Column":
    """Return a text as a JSON string."""
    from pyspark.sql import functions as F

    array = F.to_json(F.array(text))
    return F.substring(array, F.lit(2), F.length(array) - 2)


def then_version(request: DiffRequest, side: ComparedOutput) -> int | None:
    """Return the version of a table at the cutoff; None when all rows are compared.

    Raises:
        DiffError: The table has no such version, or its log no longer reaches back to the time.
    """
    since = request.since
    if side.kind == "kafka":
        return None
    if since.version is not None and (since.output or request.a.address) == side.address:
        newest = open_table(side.place).version()
        if since.version > newest:
            raise DiffError(
                f"The {side} has no version {since.version}; its newest is {newest}. Available versions: "
                f"{number_range(0, newest)}."
            )
        return since.version
    return None if since.time is None else _version_at(open_table(side.place), side, since.time)


def check_columns(request: DiffRequest, side: ComparedOutput) -> None:
    """Raise DiffError when a table lacks a column of the key."""
    if side.kind == "kafka":
        return
    names = [field.name for field in open_table(side.place).schema().fields]
    for name in request.key_columns():
        if name not in names:
            raise DiffError(
                f"The {side} has no column {name}.{did_you_mean(name, names)} It has {', '.join(names)}. Name the "
                "columns that identify a row with --key."
            )


def _version_at(table: "DeltaTable", side: ComparedOutput, time: datetime) -> int | None:
    history = [commit for commit in table.history() if "timestamp" in commit]
    commits = sorted((int(commit["version"]), int(commit["timestamp"])) for commit in history)
    earlier = [version for version, stamp in commits if EPOCH + timedelta(milliseconds=stamp) < time]
    if earlier:
        return max(earlier)
    if commits and commits[0][0] == 0:
        return None
    raise DiffError(
        f"The log of the {side} does not reach back to {time_text(time)}: it starts at version "
        f"{commits[0][0] if commits else table.version()}. Name a later time, or a version with --since-version."
    )


def unequal(a: QueryPosition, b: QueryPosition) -> str | None:
    """Return which query has read more than the other, human-readable; None when both have read the same records.

    A partition that is missing in one of them counts as not read at all.
    """
    places = {*a.ends, *b.ends}
    ahead = {place: a.ends.get(place, 0) - b.ends.get(place, 0) for place in places}
    only_a = sum(count for count in ahead.values() if count > 0)
    only_b = -sum(count for count in ahead.values() if count < 0)
    if only_a and only_b:
        return f"A has read {_records(only_a)} that B has not, and B {_records(only_b)} that A has not"
    if only_a or only_b:
        behind, count = ("B", only_a) if only_a else ("A", only_b)
        return f"{behind} has read {_records(count)} less"
    if a.watermark != b.watermark:
        return f"Both have read the same, but the watermark of {'B' if _earlier(b, a) else 'A'} is earlier"
    return None


def _earlier(first: QueryPosition, second: QueryPosition) -> bool:
    return first.watermark is None or (second.watermark is not None and first.watermark < second.watermark)


def _records(count: int) -> str:
    return plural(count, "record")
