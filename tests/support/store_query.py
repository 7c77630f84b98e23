"""A streaming query in a Spark of its own, with its checkpoint and its table of results in the storage of respool.toml.

    python -m support.store_query NAME LINES...

Every LINE is a record of the source, and a batch. Prints the command lines of the JVM's processes.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from respool.kafka.cluster import KafkaCluster
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.running.dataflow import sink_writer, start_query
from respool.settings import load
from respool.sinks.delta import DeltaSink
from respool.spark.session import spark_session
from respool.storage import object_store
from support.processes import children_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def count(events: "DataFrame") -> "DataFrame":
    return events.groupBy("value").count()


def main(name: str, lines: list[str]) -> None:
    settings = object_store.use(load())
    source = Path("source")
    source.mkdir(exist_ok=True)
    for number, line in enumerate(lines):
        (source / f"{len(list(source.iterdir())):03}-{number}.txt").write_text(f"{line}\n")
    pipeline = Pipeline(name, "none", count, DeltaSink("counts", key=("value",)), output_mode="update")

    def read(session: "SparkSession", name: str, each: Input) -> "DataFrame":
        return session.readStream.option("maxFilesPerTrigger", 1).text(f"file:{source.absolute()}")

    with spark_session(settings) as session:
        write = sink_writer(KafkaCluster("nowhere:1"), pipeline, settings)
        query = start_query(session, pipeline, read, write, settings.checkpoint_of(name), {"availableNow": True})
        query.awaitTermination()
        for pid in children_of(os.getpid()):
            print(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
