"""Results in a Delta table, one row for each key."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from respool.delta.conflicts import retry_on_conflict
from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark, under
from respool.settings import Settings
from respool.sinks.protocol import SinkOutput, WriteContext, table_identity
from respool.sinks.rendering import json_of
from respool.spark.sql import identifier, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DeltaSink:
    """Rows to a Delta table; a result replaces the row of the same key. A batch is one commit.

    Attributes:
        table: The table's path or URL; a relative path lies under the storage's `results`. The first write creates it.
        key: The columns that identify a result.
        withdrawn: A boolean column; a row where it is true deletes the row of its key. The column itself is not
            written.

    >>> respool.DeltaSink("order-totals", key=("window", "shop"))
    DeltaSink(table='order-totals', key=('window', 'shop'), withdrawn=None)
    """

    table: str
    key: tuple[str, ...]
    withdrawn: str | None = None

    def __post_init__(self) -> None:
        """Refuse a table without a key."""
        if not self.key:
            raise PipelineError(f"The results in {self.table} need a key. Name the columns that identify a result.")

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
        return f"Results replace the rows of the same keys in {self.table}."

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the results can be read back."""
        return SinkOutput(f"delta:{self.locate(settings)}", self.key)

    def prepare(self, kafka: KafkaCluster, source_topic: str) -> None:
        """Nothing to create: the first write creates the table."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Replace the row of every key, in one commit."""
        # A merge reads its source more than once; a stateful query must be computed once.
        rows = self.render(frame).persist()
        try:
            if not rows.isEmpty():
                self.correct(rows, write)
        finally:
            rows.unpersist()

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        from pyspark.sql import functions as F

        names = [name for name in rows.columns if name != self.withdrawn]
        row = F.struct(*[F.col(quote(name)) for name in names])
        key, value = F.expr(json_of(rows.schema, self.key)), F.expr(json_of(rows.schema, names))
        if self.withdrawn is not None and self.withdrawn in rows.columns:  # the table itself has no such column
            value = F.when(~F.coalesce(F.col(quote(self.withdrawn)), F.lit(False)), value)
        return rows.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"), row.alias("row"))

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

    def _create(self, spark: "SparkSession", rows: "StructType", settings: Settings) -> None:
        fields = [field for field in rows if field.name != self.withdrawn]
        empty = spark.createDataFrame([], type(rows)(fields))
        empty.write.format("delta").mode("ignore").save(for_spark(self.locate(settings)))

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
