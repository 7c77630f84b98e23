"""The SQL of a table that is written batch by batch. The same transaction records the batch in `respool_batches`.

query     the id of the streaming query
target    the table
epoch     the last change of the query's checkpoint before the batch, such as a rewind; empty before the first
batch     the newest batch that the table has
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

BATCHES = "respool_batches"
STAGED = "respool_staged"  # the temporary table with the rows of a batch
WITHDRAWN = "respool_withdrawn"  # its column that is true for a row whose key is deleted


def name(text: str) -> str:
    """Quote a name."""
    return '"' + text.replace('"', '""') + '"'


def names(columns: Sequence[str]) -> str:
    """Quote names, separated by commas."""
    return ", ".join(map(name, columns))


def type_of(kind: "DataType", column: str) -> str:
    """Return the type of a new column; raise PipelineError for a type that has no counterpart."""
    from pyspark.sql import types

    match kind:
        case types.StringType() | types.NullType():
            return "text"
        case types.BooleanType():
            return "boolean"
        case types.ByteType() | types.ShortType():
            return "smallint"
        case types.IntegerType():
            return "integer"
        case types.LongType():
            return "bigint"
        case types.FloatType():
            return "real"
        case types.DoubleType():
            return "double precision"
        case types.DecimalType():
            return f"numeric({kind.precision}, {kind.scale})"
        case types.DateType():
            return "date"
        case types.TimestampType():
            return "timestamp with time zone"
        case types.TimestampNTZType():
            return "timestamp"
        case types.BinaryType():
            return "bytea"
        case types.StructType() | types.ArrayType() | types.MapType():
            return "jsonb"
        case _:
            raise PipelineError(
                f"The column {column} has the type {kind.simpleString()}, which PostgreSQL has no counterpart of. "
                "Convert it to text in the transform."
            )


@dataclass(frozen=True)
class TargetTable:
    """A table, and the rows that are written to it.

    Attributes:
        table: Its name, with or without a schema.
        columns: The columns of the rows.
        key: The columns that identify a row.
        latest_by: The columns by which the newest of several rows of one key in a batch is chosen.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    latest_by: tuple[str, ...] = ()

    @property
    def quoted(self) -> str:
        """The name in SQL."""
        return ".".join(map(name, self.table.split(".")))

    @property
    def batches(self) -> str:
        """The table of recorded batches in SQL, in the same schema."""
        schema, _, _ = self.table.rpartition(".")
        return f"{name(schema)}.{BATCHES}" if schema else BATCHES

    def create(self, types: Sequence[str]) -> str:
        """Return the statement that creates the table when it is missing."""
        fields = ", ".join(f"{name(column)} {kind}" for column, kind in zip(self.columns, types, strict=True))
        return f"CREATE TABLE IF NOT EXISTS {self.quoted} ({fields}, PRIMARY KEY ({names(self.key)}))"

    def create_batches(self) -> str:
        """Return the statement that creates the table of recorded batches when it is missing."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.batches} (query text, target text, epoch text NOT NULL, "
            "batch bigint NOT NULL, pipeline text NOT NULL, written timestamptz NOT NULL DEFAULT now(), "
            "PRIMARY KEY (query, target))"
        )

    def lock_mark(self) -> str:
        """Return the statement that returns the recorded epoch and batch, and makes other writers wait."""
        return f"SELECT epoch, batch FROM {self.batches} WHERE query = %s AND target = %s FOR UPDATE"  # noqa: S608

    def create_mark(self) -> str:
        """Return the statement that records that a query has written no batch yet."""
        return (
            f"INSERT INTO {self.batches} (query, target, epoch, batch, pipeline) VALUES (%s, %s, '', -1, %s) "  # noqa: S608
            "ON CONFLICT DO NOTHING"
        )

    def mark(self) -> str:
        """Return the statement that records a batch."""
        return (
            f"UPDATE {self.batches} SET epoch = %s, batch = %s, pipeline = %s, written = now() "  # noqa: S608
            "WHERE query = %s AND target = %s"
        )

    def stage(self) -> str:
        """Return the statement that creates the temporary table, with the column types of the table."""
        return (
            f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP AS SELECT {names(self.columns)}, "  # noqa: S608
            f"false AS {WITHDRAWN} FROM {self.quoted} WITH NO DATA"
        )

    def copy(self) -> str:
        """Return the statement that fills the temporary table from CSV."""
        return f"COPY {STAGED} ({names((*self.columns, WITHDRAWN))}) FROM STDIN (FORMAT csv)"

    def delete(self) -> str:
        """Return the statement that deletes the rows of withdrawn keys."""
        same = " AND ".join(f"t.{column} = s.{column}" for column in map(name, self.key))
        return f"DELETE FROM {self.quoted} t USING {self._newest()} s WHERE s.{WITHDRAWN} AND {same}"  # noqa: S608

    def upsert(self) -> str:
        """Return the statement that inserts the rows, or replaces the rows of the same keys."""
        others = [column for column in self.columns if column not in self.key]
        pairs = ", ".join(f"{column} = excluded.{column}" for column in map(name, others))
        action = f"UPDATE SET {pairs}" if pairs else "NOTHING"
        return (
            f"INSERT INTO {self.quoted} ({names(self.columns)}) SELECT {names(self.columns)} FROM {self._newest()} s "  # noqa: S608
            f"WHERE NOT {WITHDRAWN} ON CONFLICT ({names(self.key)}) DO {action}"
        )

    def read(self, expressions: Sequence[str]) -> str:
        """Return the statement that reads columns as CSV."""
        return f"COPY (SELECT {', '.join(expressions)} FROM {self.quoted}) TO STDOUT (FORMAT csv)"  # noqa: S608

    def _newest(self) -> str:
        if not self.latest_by:
            return STAGED
        order = ", ".join(f"{name(column)} DESC NULLS LAST" for column in self.latest_by)
        return f"(SELECT DISTINCT ON ({names(self.key)}) * FROM {STAGED} ORDER BY {names(self.key)}, {order})"  # noqa: S608
