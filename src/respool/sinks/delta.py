"""Results in a Delta table: one row for each key, or appended, or one window replaced as a whole."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

from respool.delta.log import open_table, retry_on_conflict
from respool.errors import CheckpointError, PipelineError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark, under
from respool.settings import Settings
from respool.sinks.columns import ColumnNames, check_distinct
from respool.sinks.protocol import SinkOutput, WriteContext, compute, render_rows, table_identity
from respool.spark.sql import identifier, literal, quote
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

DeltaMode = Literal["upsert", "append", "overwrite"]

_MOST_REPLACED = 10_000  # values of `overwrite_by` in a batch; each is a condition of the commit


@dataclass(frozen=True)
class DeltaSink:
    """Rows to a Delta table. A batch is one commit.

    Attributes:
        table: The table's path or URL; a relative path lies under the storage's `results`. The first write creates it.
        key: The columns that identify a result; a single name may be given as text. Required to upsert.
        withdrawn: A boolean column; a row where it is true deletes the row of its key. The column itself is not
            written. Only to upsert.
        mode: `upsert`: a result replaces the row of the same key. `append`: rows are added, each batch once: the table
            records the batches that it has under the query's id, as with Spark's own Delta sink. `overwrite`: the rows
            of a batch replace all rows with the same value of `overwrite_by`.
        overwrite_by: The column whose values are replaced as a whole, such as `window`. Only to overwrite.
        partition_by: The columns by which a new table is partitioned.
        cluster_by: The columns by which a new table is clustered.
        evolve_schema: Add new columns of the results to the table. Otherwise rows with other columns are refused.

    >>> respool.DeltaSink("order-totals", key=("window", "shop")).describe()
    'Delta table order-totals'
    >>> respool.DeltaSink("orders", mode="append", partition_by="day").partition_by
    ('day',)
    """

    table: str
    key: ColumnNames = ColumnNames()  # noqa: RUF009  (a descriptor, not a default)
    withdrawn: str | None = None
    mode: DeltaMode = "upsert"
    overwrite_by: str | None = None
    partition_by: ColumnNames = ColumnNames()  # noqa: RUF009
    cluster_by: ColumnNames = ColumnNames()  # noqa: RUF009
    evolve_schema: bool = False

    def __post_init__(self) -> None:
        """Refuse contradictory fields."""
        if self.mode not in get_args(DeltaMode):
            raise PipelineError(
                f"DeltaSink.mode is {self.mode!r}.{did_you_mean(str(self.mode), list(get_args(DeltaMode)))} Expected "
                f"{', '.join(get_args(DeltaMode))}."
            )
        if self.mode == "upsert" and not self.key:
            raise PipelineError(f"The results in {self.table} need a key. Name the columns that identify a result.")
        if self.withdrawn is not None and self.mode != "upsert":
            raise PipelineError(
                f"DeltaSink.withdrawn deletes the row of a key, which the mode '{self.mode}' does not do. Leave it "
                "out, or use the mode 'upsert'."
            )
        if (self.overwrite_by is not None) != (self.mode == "overwrite"):
            raise PipelineError(
                "DeltaSink.overwrite_by names the column whose values the mode 'overwrite' replaces. "
                + ("Name it." if self.overwrite_by is None else "Leave it out, or use that mode.")
            )
        if self.partition_by and self.cluster_by:
            raise PipelineError("DeltaSink.partition_by and DeltaSink.cluster_by exclude each other. Leave one out.")
        check_distinct(self, "key", "withdrawn")

    def with_suffix(self, suffix: str) -> "DeltaSink":
        """Return a table of the same results, with a suffix to its name."""
        return replace(self, table=f"{self.table.rstrip('/')}{suffix}")

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Delta table {self.table}"

    def identity(self) -> Identity:
        """Return the identity of this table."""
        return table_identity(self.table, "results")

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        if self.mode == "append":
            return f"{self.table} records which batches it has, and skips those unless --restore-sink restores it."
        if self.mode == "overwrite":
            return f"Results replace the rows of the same {self.overwrite_by} in {self.table}."
        return f"Results replace the rows of the same keys in {self.table}."

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the results can be read back."""
        return SinkOutput(f"delta:{self.locate(settings)}", self.key)

    def recorded_at(self, settings: Settings) -> tuple[str, ...]:
        """Return the table when it records batches."""
        return (f"delta:{self.locate(settings)}",) if self.mode == "append" else ()

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Nothing to create: the first write creates the table."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Write all rows, in one commit."""
        match self.mode:
            case "append":
                self._append(frame, write)
            case "overwrite":
                self._overwrite(frame, write)
            case "upsert":
                self._upsert(frame, write)

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        return render_rows(rows, self.key, self.withdrawn)

    def published(self, spark: "SparkSession", write: WriteContext, rows: "StructType") -> "DataFrame":
        """Return what the table holds now; it does not record which batch wrote a row, and when."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        try:
            table = spark.read.format("delta").load(for_spark(self.locate(write.settings)))
        except AnalysisException:  # nothing was written yet
            table = spark.createDataFrame([], rows)
        rendered = self.render(table)
        nothing = (F.lit(None).cast("int").alias("batch"), F.lit(None).cast("timestamp").alias("at"))
        return rendered.select("key", "value", "row", *nothing)

    def correct(self, changes: "DataFrame", write: WriteContext) -> None:
        """Replace the row of each key, in one commit; a result without a value deletes the row of its key."""
        spark = changes.sparkSession
        rows = changes.select("row.*").schema
        self._create(spark, rows, write.settings)
        view = f"respool_{uuid4().hex}"
        changes.createOrReplaceTempView(view)
        try:
            statement = self._merge(view, rows.names, write.settings)
            retry_on_conflict(lambda: spark.sql(statement))
        finally:
            spark.catalog.dropTempView(view)

    def locate(self, settings: Settings) -> str:
        """Return where the table is."""
        return under(settings.result_store, self.table)

    def _upsert(self, frame: "DataFrame", write: WriteContext) -> None:
        # A merge reads its source more than once; a stateful query must be computed once.
        rows = self.render(frame).persist()
        try:
            if not rows.isEmpty():
                self.correct(rows, write)
        finally:
            rows.unpersist()

    def _append(self, frame: "DataFrame", write: WriteContext) -> None:
        location, noted = self.locate(write.settings), {}
        if write.query is not None and write.batch is not None:
            if _newest_batch(location, write.query) >= write.batch:
                compute(frame)
                return
            noted = {"txnAppId": write.query, "txnVersion": str(write.batch)}
        self._create(frame.sparkSession, frame.schema, write.settings)
        frame.write.format("delta").mode("append").options(**noted).save(for_spark(location))

    def _overwrite(self, frame: "DataFrame", write: WriteContext) -> None:
        assert self.overwrite_by is not None
        rows = frame.persist()  # the replaced values are determined first; a stateful query must be computed once
        try:
            condition = _condition(rows, self.overwrite_by)
            if condition is None:
                return
            self._create(rows.sparkSession, rows.schema, write.settings)
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
            retry_on_conflict(lambda: writer.save(for_spark(self.locate(write.settings))))
        finally:
            rows.unpersist()

    def _create(self, spark: "SparkSession", rows: "StructType", settings: Settings) -> None:
        """Create the table when it is missing; add new columns to it, if its schema may change."""
        location = for_spark(self.locate(settings))
        fields = [field for field in rows if field.name != self.withdrawn]
        empty = spark.createDataFrame([], type(rows)(fields))
        if self.cluster_by:
            self._create_clustered(empty, settings)
        else:
            writer = empty.write.format("delta").mode("ignore")
            (writer.partitionBy(*self.partition_by) if self.partition_by else writer).save(location)
        existing = {name.lower() for name in spark.read.format("delta").load(location).columns}
        new = [field.name for field in fields if field.name.lower() not in existing]
        if new and not self.evolve_schema:
            raise PipelineError(
                f"The Delta table {self.locate(settings)} has no column {', '.join(new)}, which the results have. Add "
                "it to the table, let the sink add it with evolve_schema=True, or leave it out in the transform."
            )
        if new:
            empty.write.format("delta").mode("append").option("mergeSchema", True).save(location)

    def _create_clustered(self, empty: "DataFrame", settings: Settings) -> None:
        """Create a clustered table when it is missing; Delta ignores `clusterBy` of a write to a path."""
        table, columns, view = identifier(self.locate(settings)), ", ".join(map(quote, self.cluster_by)), uuid4().hex
        empty.createOrReplaceTempView(f"respool_{view}")
        create = f"CREATE TABLE IF NOT EXISTS {table} USING delta CLUSTER BY ({columns})"
        try:
            empty.sparkSession.sql(f"{create} AS TABLE respool_{view}")
        finally:
            empty.sparkSession.catalog.dropTempView(f"respool_{view}")

    def _merge(self, view: str, columns: list[str], settings: Settings) -> str:
        same = " AND ".join(f"t.{name} <=> s.row.{name}" for name in map(quote, self.key))
        quoted = [quote(name) for name in columns]
        named = ", ".join(quoted)
        values = ", ".join(f"s.row.{name}" for name in quoted)
        pairs = ", ".join(f"t.{name} = s.row.{name}" for name in quoted)
        clauses = [
            f"MERGE INTO {identifier(self.locate(settings))} t USING {view} s ON {same}",
            "WHEN MATCHED AND s.value IS NULL THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {pairs}",
            f"WHEN NOT MATCHED AND s.value IS NOT NULL THEN INSERT ({named}) VALUES ({values})",  # noqa: S608  (names)
        ]
        return " ".join(clauses)


def _newest_batch(location: str, query: str) -> int:
    """Return the newest batch of a query that a table has recorded; -1 without a batch or a table."""
    try:
        newest = open_table(location).transaction_version(query)
    except CheckpointError:
        return -1  # nothing was written yet; Delta itself refuses a batch that it has
    return -1 if newest is None else newest


def _condition(rows: "DataFrame", column: str) -> str | None:
    """Return the SQL condition of the rows with the same values of a column; None without rows."""
    kind = rows.schema[column].dataType
    parts = list(_leaves(quote(column), kind))
    values = rows.selectExpr(*(f"{text} AS v{number}" for number, (_, text, _) in enumerate(parts))).distinct()
    selected = values.limit(_MOST_REPLACED + 1).collect()
    if len(selected) > _MOST_REPLACED:
        raise PipelineError(
            f"A batch has more than {_MOST_REPLACED:,} values of {column}, which DeltaSink.overwrite_by names. Replace "
            "larger groups, such as windows, or use the mode 'upsert'."
        )
    conditions = (
        " AND ".join(
            f"{name} IS NULL" if value is None else f"{name} = {show(value)}"
            for (name, _, show), value in zip(parts, row, strict=True)
        )
        for row in selected
    )
    return " OR ".join(f"({condition})" for condition in conditions) or None


def _leaves(name: str, kind: "DataType") -> "list[tuple[str, str, Callable[[Any], str]]]":
    """Return each simple column in a column: its name, its value as text in SQL, and what makes a literal of it."""
    from pyspark.sql import types

    match kind:
        case types.StructType():
            return [leaf for field in kind for leaf in _leaves(f"{name}.{quote(field.name)}", field.dataType)]
        case types.TimestampType():
            return [(name, f"unix_micros({name})", lambda value: f"timestamp_micros({value})")]
        case types.StringType():
            return [(name, name, literal)]
        case (
            types.DateType()
            | types.TimestampNTZType()
            | types.BooleanType()
            | types.IntegralType()
            | types.DecimalType()
        ):
            type_name = kind.simpleString()
            return [(name, f"CAST({name} AS STRING)", lambda value: f"CAST({literal(value)} AS {type_name})")]
        case _:
            raise PipelineError(
                f"DeltaSink.overwrite_by names {name} of the type {kind.simpleString()}; expected a window, a time, a "
                "date, a text or an exact number."
            )
