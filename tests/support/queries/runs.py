"""Running a query to the end of its input, and reading its state with Spark's own reader."""

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from support.queries.inputs import Source
from support.queries.kinds import BASE, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Results = dict[int, list[str]]


def run(
    spark: "SparkSession",
    kind: Kind,
    source: Source,
    checkpoint: Path | str,
    until: int = 0,
    conf: Mapping[str, str] | None = None,
) -> Results:
    """Run a query to the end of its input, and wait until maintenance has written its last snapshots.

    Args:
        spark: A session; the query runs in one of its own beside it.
        kind: The query.
        source: Where its input is.
        checkpoint: The folder of its checkpoint, or its URL as Spark expects it.
        until: The last batch to run, of a query whose input has no end; others run as long as there is input.
        conf: More settings of Spark.

    Returns:
        The rows of each batch that ran, as JSON, in order of the text.
    """
    end_maintenance(spark)  # its interval is that of the first query in the application
    results: Results = {}

    def collect(frame: "DataFrame", batch: int) -> None:
        results[batch] = _as_json(frame)

    session = kind.session(spark, conf)
    while not results or (kind.endless and max(results) < until):
        before = len(results)
        writer = kind.query(session, source).writeStream.outputMode(kind.output_mode).foreachBatch(collect)
        writer = writer.option("checkpointLocation", str(checkpoint)).options(**kind.options)
        if kind.sink:
            writer._jwrite = writer._jwrite.name(kind.sink)
        query = (writer.trigger(processingTime="0 seconds") if kind.live else writer.trigger(availableNow=True)).start()
        try:
            while kind.live and query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < until:
                time.sleep(0.05)
            if not kind.live:
                query.awaitTermination()
        finally:
            query.stop()
        if len(results) == before:
            break
    await_maintenance(spark)
    return results


def state(spark: "SparkSession", kind: Kind, checkpoint: Path, batch: int) -> list[str]:
    """Return all state after a batch as Spark's own reader reads it: lines of JSON, in order of the text."""
    return states(spark, kind, checkpoint, [batch])[batch]


def states(spark: "SparkSession", kind: Kind, checkpoint: Path, batches: list[int]) -> Results:
    """Return all state after each of the batches."""
    with tempfile.TemporaryDirectory() as folder:
        return _states(kind.session(spark), kind, _readable(checkpoint, Path(folder)), batches)


def _readable(checkpoint: Path, folder: Path) -> Path:
    """Return the checkpoint, or a copy of it that Spark's reader can read.

    Spark 4.2.0 leaves the number of partitions out of the offset log v2 in the first run of a query, and its reader
    wants it.
    """
    logs = [file for file in (checkpoint / "offsets").glob("[0-9]*") if file.read_text().startswith("v2\n")]
    if not logs:
        return checkpoint
    copy = shutil.copytree(checkpoint, folder / "checkpoint")
    for file in logs:
        version, metadata, *offsets = file.read_text().split("\n")
        fields = json.loads(metadata)
        fields["conf"].setdefault("spark.sql.shuffle.partitions", BASE["spark.sql.shuffle.partitions"])
        (copy / "offsets" / f".{file.name}.crc").unlink(missing_ok=True)
        (copy / "offsets" / file.name).write_text("\n".join([version, json.dumps(fields), *offsets]))
    return copy


def _states(session: "SparkSession", kind: Kind, checkpoint: Path, batches: list[int]) -> Results:
    from pyspark.sql import functions as F

    frames = []
    for batch in batches:
        for options in kind.reads:
            reader = session.read.format("statestore").options(**options).option("batchId", batch)
            rows = _whole(reader.load(str(checkpoint)))
            what = F.lit(",".join(f"{name}={value}" for name, value in sorted(options.items())))
            frames.append(rows.select(F.to_json(F.struct(F.lit(batch).alias("batch"), what.alias("of"), "*"))))
    rows_by_batch: Results = {batch: [] for batch in batches}
    for (line,) in reduce(lambda frame, other: frame.union(other), frames).collect() if frames else []:
        row = json.loads(line)
        rows_by_batch[row.pop("batch")].append(json.dumps(row, sort_keys=True))
    return {batch: sorted(rows) for batch, rows in rows_by_batch.items()}


def await_maintenance(spark: "SparkSession") -> None:
    """Wait until no state store is loaded: maintenance does its last work on each after the query has stopped."""
    assert spark._jvm is not None
    stores = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$")
    member = stores.getDeclaredField("loadedProviders")
    member.setAccessible(True)
    loaded = member.get(stores.getDeclaredField("MODULE$").get(None))
    deadline = time.monotonic() + 60
    while not loaded.isEmpty():
        if time.monotonic() > deadline:
            raise TimeoutError("state stores are still loaded a minute after their query has stopped")
        time.sleep(0.02)


def end_maintenance(spark: "SparkSession") -> None:
    """Unload every state store and end maintenance; the next query starts it again, with an interval of its own."""
    from py4j.protocol import Py4JError

    assert spark._jvm is not None
    stores = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    with suppress(Py4JError):  # Spark 4.0 does not have it
        stores.stopMaintenanceTaskWithoutLock()  # what maintenance does now may wait for the lock that `stop` holds
    stores.stop()


def _whole(frame: "DataFrame") -> "DataFrame":
    """Return the frame with its structs rebuilt: those of a join's side have more fields than their schema says."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    return frame.select(
        *(
            F.struct(*(F.col(f"{column.name}.{name}") for name in column.dataType.names)).alias(column.name)
            if isinstance(column.dataType, StructType)
            else F.col(column.name)
            for column in frame.schema
        )
    )


def _as_json(frame: "DataFrame") -> list[str]:
    from pyspark.sql import functions as F

    return sorted(line for (line,) in frame.select(F.to_json(F.struct("*"))).collect())
