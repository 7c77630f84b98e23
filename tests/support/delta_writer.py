"""A process that appends rows to a Delta table, a commit each, as soon as a line comes from standard input.

    python -m support.delta_writer spark|delta-rs TABLE NAME COUNT

Prints `ready` when it can start.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from respool.locations import for_spark
from respool.settings import Settings
from respool.spark.session import spark_session
from respool.storage.object_store import delta_options

Append = Callable[[str, int], None]


@contextmanager
def by_spark(table: str) -> Iterator[Append]:
    """Yield what appends a row with a Spark of its own."""
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), master="local[1]", spark={"spark.sql.shuffle.partitions": "1"})
        with spark_session(settings, locations=[table]) as session:

            def append(name: str, number: int) -> None:
                rows = session.range(number, number + 1, 1, 1).selectExpr(f"'{name}' AS writer", "id AS number")
                rows.write.format("delta").mode("append").save(for_spark(table))

            yield append


@contextmanager
def by_delta_rs(table: str) -> Iterator[Append]:
    """Yield what appends a row without a JVM."""
    from deltalake import CommitProperties, write_deltalake

    def append(name: str, number: int) -> None:
        rows = pa.table({"writer": [name], "number": pa.array([number], pa.int64())})
        write_deltalake(
            table,
            rows,
            mode="append",
            storage_options=delta_options(table),
            commit_properties=CommitProperties(max_commit_retries=1000),
        )

    yield append


def main(engine: str, table: str, name: str, count: int) -> None:
    with {"spark": by_spark, "delta-rs": by_delta_rs}[engine](table) as append:
        append(name, 0)  # so that the first commit's overhead does not delay it
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(1, count):
            append(name, number)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
