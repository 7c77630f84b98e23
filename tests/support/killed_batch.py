"""Write batch 1 of a query, and kill this process before a step of it, or after its commit."""

import os
import signal
import sys

import pyarrow as pa

from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.postgres.place import PostgresPlace
from respool.sinks.postgres.sink import write_batch
from respool.sinks.postgres.statements import WITHDRAWN, TargetTable
from respool.sinks.protocol import WriteContext


def main(url: str, table: str, query: str, last: str) -> None:
    """Write the batch until the step `last`."""

    def stop(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    target = TargetTable(table, ("shop", "total"), ("shop",))
    rows = pa.table({"shop": ["Lyon", "Metz"], "total": [2, None], WITHDRAWN: [False, True]})
    context = WriteContext("totals", 1, KafkaCluster("nowhere:1"), Settings(), query=query)
    with PostgresPlace(url, table, password_env="TEST_PASSWORD").connect() as connection:
        write_batch(connection, target, rows, context, stop)
        connection.commit()
        stop("committed")


if __name__ == "__main__":
    main(*sys.argv[1:])
