"""Results in a table of PostgreSQL, one row for each key, each batch in one transaction."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from respool.errors import SinkError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.columns import ColumnNames, check_distinct
from respool.sinks.postgres import statements, transfer
from respool.sinks.postgres.place import PostgresPlace
from respool.sinks.postgres.statements import BATCHES, WITHDRAWN, TargetTable
from respool.sinks.protocol import SinkOutput, WriteContext, render_rows
from respool.spark.sql import quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOGGER = logging.getLogger("respool.sinks.postgres")


@dataclass(frozen=True)
class JdbcSink:
    """Rows to a table of PostgreSQL; a result replaces the row of the same key. A batch is one transaction.

    The transaction also records the batch in the table `respool_batches` of the same schema, under the query's id and
    the last change of its checkpoint, such as a rewind. So a batch that is replayed after a crash changes nothing, and
    a batch that is replayed after a rewind is written again. The rows of a batch pass through the driver.

    Attributes:
        url: The database as `postgresql://user@host:port/database`, without a password.
        table: The table, as `orders` or `shop.orders`. The first write creates it. An existing table needs a unique
            index on the key.
        key: The columns that identify a result; a single name may be given as text. They cannot be null.
        withdrawn: A boolean column; a row where it is true deletes the row of its key. The column itself is not
            written.
        latest_by: The columns by which the newest of several rows of one key in a batch is chosen, such as an offset.
            Without them, a batch that has a key twice is refused.
        password_env: The environment variable that holds the password.
        password_file: The file that holds the password. Without either, libpq uses PGPASSWORD and ~/.pgpass.

    >>> sink = respool.JdbcSink("postgresql://etl@db/shop", "orders", key="id", password_env="SHOP_PASSWORD")
    >>> sink.describe()
    'PostgreSQL table orders of db/shop'
    """

    url: str
    table: str
    key: ColumnNames = ColumnNames(required=True)  # noqa: RUF009  (a descriptor, not a default)
    withdrawn: str | None = None
    latest_by: ColumnNames = ColumnNames()  # noqa: RUF009
    password_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse contradictory fields, and a password in the URL."""
        _ = self.place
        check_distinct(self, "key", "withdrawn", "latest_by")

    @property
    def place(self) -> PostgresPlace:
        """Where the table is."""
        return PostgresPlace(self.url.removeprefix("jdbc:"), self.table, self.password_env, self.password_file)

    def with_suffix(self, suffix: str) -> "JdbcSink":
        """Return a table of the same results, with a suffix to its name."""
        return replace(self, table=f"{self.table}{suffix}")

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"PostgreSQL table {self.table} of {self.place.database}"

    def identity(self) -> Identity:
        """Return the identity of this table."""
        return Identity("jdbc", {"database": self.place.database, "table": self.table})

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return f"Results replace the rows of the same keys in {self.table}."

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the results can be read back."""
        return SinkOutput(self.place.address, self.key)

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Refuse a server that cannot be reached or refuses the account, before the first batch."""
        with self.place.connect():
            pass

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Replace the row of every key, and record the batch, in one transaction."""
        names = [column for column in frame.columns if column != self.withdrawn]
        withdrawn = f"coalesce({quote(self.withdrawn)}, false)" if self.withdrawn is not None else "false"
        fields = [frame.schema[column] for column in names]
        self._transfer(frame, type(frame.schema)(fields), withdrawn, write)

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        return render_rows(rows, self.key, self.withdrawn)

    def published(self, spark: "SparkSession", write: WriteContext, rows: "StructType") -> "DataFrame":
        """Return what the table holds now; it does not record which batch wrote a row, and when."""
        from pyspark.sql import functions as F

        schema = type(rows)([field for field in rows if field.name != self.withdrawn])
        target = self._target(schema)
        with self.place.connect() as connection:
            if _exists(connection, target.quoted):
                statement = target.read(transfer.columns_to_read(schema))
                texts = transfer.copy_out(connection, statement, schema.names)
                held = transfer.frame_of(spark, texts, schema)
            else:  # nothing was written yet
                held = spark.createDataFrame([], schema)
        nothing = (F.lit(None).cast("int").alias("batch"), F.lit(None).cast("timestamp").alias("at"))
        return self.render(held).select("key", "value", "row", *nothing)

    def correct(self, changes: "DataFrame", write: WriteContext) -> None:
        """Replace the row of each key, in one transaction; a result without a value deletes the row of its key."""
        rows = changes.select("row.*", (changes["value"].isNull()).alias(WITHDRAWN))
        schema = type(rows.schema)([field for field in rows.schema if field.name not in (WITHDRAWN, self.withdrawn)])
        self._transfer(rows, schema, WITHDRAWN, write)

    def _target(self, rows: "StructType") -> TargetTable:
        return TargetTable(self.table, tuple(rows.names), self.key, self.latest_by)

    def _transfer(self, frame: "DataFrame", rows: "StructType", withdrawn: str, write: WriteContext) -> None:
        """Compute all rows, and write them in one transaction."""
        target = self._target(rows)
        types = [statements.type_of(field.dataType, field.name) for field in rows]
        columns = transfer.columns_for_copy(rows)
        data = transfer.collect(frame.selectExpr(*columns, f"{withdrawn} AS {WITHDRAWN}"))
        with self.place.connect() as connection:
            create_tables(connection, target, types)
            if write_batch(connection, target, data, write):
                _LOGGER.debug("%s: batch %s, %d rows", self.describe(), write.batch, len(data))


def create_tables(connection: "psycopg.Connection[Any]", target: TargetTable, types: list[str]) -> None:
    """Create the table and the table of recorded batches when they are missing, in a transaction of their own."""
    for name, statement in ((target.quoted, target.create(types)), (target.batches, target.create_batches())):
        if not _exists(connection, name):
            # Two queries that create a table at the same time: one of them waits, and then there is the table.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('respool'))")
            connection.execute(statement.encode())
    connection.commit()


def write_batch(
    connection: "psycopg.Connection[Any]",
    target: TargetTable,
    rows: "pa.Table",
    write: WriteContext,
    on_step: Callable[[str], object] = lambda _: None,
) -> bool:
    """Write the rows of a batch and record it; return False, and change nothing, when the table has the batch.

    The caller commits. A batch of results that are reprocessed has no id, and is not recorded.

    Args:
        connection: A connection, in a transaction.
        target: The table.
        rows: The rows, as `transfer.collect` returns them.
        write: The query, the epoch and the batch.
        on_step: Called with the name of each step before it starts.
    """
    is_recorded = write.query is not None and write.batch is not None
    if is_recorded and not _is_new(connection, target, write):
        return False
    if len(rows):
        for step, statement in (("stage", target.stage()), ("copy", target.copy())):
            on_step(step)
            if step == "copy":
                transfer.copy_in(connection, statement, rows)
            else:
                connection.execute(statement.encode())
        for step, statement in (("delete", target.delete()), ("upsert", target.upsert())):
            on_step(step)
            _change(connection, statement, target)
    if is_recorded:
        on_step("mark")
        connection.execute(
            target.mark().encode(), (write.epoch, write.batch, write.pipeline, write.query, target.table)
        )
    on_step("commit")
    return True


def recorded_batches(place: PostgresPlace, query_ids: tuple[str, ...]) -> dict[str, int]:
    """Return the newest batch of each query that is recorded for a table."""
    target = TargetTable(place.table, (), ())
    with place.connect() as connection:
        if not _exists(connection, target.batches):
            return {}
        rows = connection.execute(
            f"SELECT query, batch FROM {target.batches} WHERE query = ANY(%s) AND target = %s".encode(),  # noqa: S608
            (list(query_ids), place.table),
        )
        return {query: batch for query, batch in rows if batch >= 0}


def _is_new(connection: "psycopg.Connection[Any]", target: TargetTable, write: WriteContext) -> bool:
    """Return whether a batch is to be written; its record is locked until the transaction ends."""
    where = (write.query, target.table)
    connection.execute(target.create_mark().encode(), (*where, write.pipeline))
    recorded = connection.execute(target.lock_mark().encode(), where).fetchone()
    assert recorded is not None
    epoch, batch = recorded
    assert write.batch is not None
    if epoch != write.epoch or batch < write.batch:
        return True
    if batch == write.batch:
        return False
    raise SinkError(
        f"table {target.table}",
        f"{BATCHES} records batch {batch} of this query, and batch {write.batch} comes again, although its checkpoint "
        "was not changed by respool in between. Files of the checkpoint were restored or deleted by other means",
        f"Let the query continue under a new id: respool checkpoint rewind PATH --to-batch {write.batch} "
        "--new-query-id.",
    )


def _change(connection: "psycopg.Connection[Any]", statement: str, target: TargetTable) -> None:
    """Delete or upsert rows; raise SinkError when the table lacks a unique index on the key."""
    from psycopg import errors

    try:
        connection.execute(statement.encode())
    except errors.InvalidColumnReference as error:
        raise SinkError(
            f"table {target.table}",
            f"it has no unique index on its key, {', '.join(target.key)}",
            f"Create one: CREATE UNIQUE INDEX ON {target.quoted} ({statements.names(target.key)}).",
        ) from error
    except errors.CardinalityViolation as error:
        raise SinkError(
            f"table {target.table}",
            "a batch has several rows of one key, of which each would change the same row a second time",
            "Name the columns that order them with latest_by, such as an offset, or aggregate by the key.",
        ) from error


def _exists(connection: "psycopg.Connection[Any]", name: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    return bool(row and row[0])
