"""Test a pipeline in a plain pytest test: give it batches of records, get its results batch by batch. No Kafka.

with local_spark() as spark:
    batches = run_batches(spark, pipeline, [[{"event_time": "2025-09-04T07:00:00", …}], [ … ]])
    assert batches[0].rows == [{"window": …, "count": 1}]
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.kafka.records import SCHEMA
from respool.pipeline.definition import Pipeline
from respool.running import progress
from respool.running.dataflow import start_query
from respool.running.progress import BatchProgress
from respool.settings import Settings
from respool.spark.session import session_for, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Value = Mapping[str, Any] | bytes | None


@dataclass(frozen=True)
class BatchResult:
    """One micro-batch that ran.

    Attributes:
        batch: Its id. A batch without records runs too when the watermark has moved on.
        rows: What it emitted, in no certain order; times are aware.
        watermark: Its watermark; None while there is none.
        late_rows: Rows that the watermark dropped in it.
        rejected: Records that did not decode.
    """

    batch: int
    rows: list[dict[str, Any]]
    watermark: datetime | None = None
    late_rows: int = 0
    rejected: int = 0


@contextmanager
def local_spark() -> "Iterator[SparkSession]":
    """Start a small Spark of its own for the length of a `with` block; one for all tests is enough."""
    with tempfile.TemporaryDirectory(prefix="respool-") as home, spark_session(Settings(home=Path(home))) as spark:
        yield spark


def run_batches(
    spark: "SparkSession", pipeline: Pipeline, batches: Sequence[Sequence[Value]], checkpoint: Path | None = None
) -> list[BatchResult]:
    """Run a pipeline's own decoding, watermark and transform as a stream, without its source and its sink.

    Args:
        spark: A session; the pipeline runs in one of its own beside it.
        pipeline: What to test.
        batches: The values of the records of each batch: a mapping is written as JSON, bytes are taken as they are.
        checkpoint: A new folder for the query's checkpoint, to be looked at afterwards; None to keep none.

    Returns:
        Every batch that ran: one for each given, and those without records that Spark runs in between.
    """
    session = session_for(spark, pipeline.timezone, pipeline.spark)
    emitted: dict[int, list[dict[str, Any]]] = {}

    def collect(results: "DataFrame", batch: int) -> None:
        emitted[batch] = results.toArrow().to_pylist()

    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        source = Path(folder) / "records"
        source.mkdir()

        def read(session: "SparkSession") -> "DataFrame":
            return session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))

        query = start_query(session, pipeline, read, collect, str(checkpoint or f"{folder}/checkpoint"))
        try:
            first = 0
            told: dict[int, BatchProgress] = {}
            for number, values in enumerate(batches):
                _write(records_table(pipeline.topic, first, values), source / f"{number:06}.parquet")
                first += len(values)
                query.processAllAvailable()
                told |= {one.batch: one for raw in query.recentProgress if (one := progress.from_spark("", raw))}
        finally:
            query.stop()
    return [
        BatchResult(batch, rows, told[batch].watermark, told[batch].late_rows or 0, told[batch].rejected)
        for batch, rows in sorted(emitted.items())
    ]


def records_table(topic: str, first: int, values: Sequence[Value]) -> "pa.Table":
    """Return records of these values as Arrow, with the columns of raw records.

    Args:
        topic: Their topic; all are of its partition 0.
        first: The offset of the first one.
        values: A mapping is written as JSON, bytes are taken as they are.
    """
    import pyarrow as pa

    encoded = [json.dumps(value).encode() if isinstance(value, Mapping) else value for value in values]
    count = len(encoded)
    return pa.table(
        {
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([datetime.now(timezone.utc)] * count, pa.timestamp("us", tz="UTC")),
            "timestamp_type": pa.array([0] * count, pa.int32()),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(encoded, pa.binary()),
            "headers": pa.array([None] * count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def _write(records: "pa.Table", file: Path) -> None:
    """Write a file that appears complete: Spark looks into the folder all the time."""
    import pyarrow.parquet as pq

    new = file.parent.parent / file.name
    pq.write_table(records, new)
    new.replace(file)
