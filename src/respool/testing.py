"""Test a pipeline in a plain pytest test: give it batches of records, get its results batch by batch. No Kafka.

with local_spark() as spark:
    batches = run_batches(spark, pipeline, [[{"event_time": "2025-09-04T07:00:00", …}], [ … ]])
    assert batches[0].rows == [{"window": …, "count": 1}]

Among the batches, `EMPTY` is a batch without records, in which a watermark that has advanced takes effect. `CRASH` ends
the query after the batch in front of it was written and before Spark has recorded that, and restarts it: the batch is
replayed. Both attempts are returned, so that a sink that distinguishes replays can be tested with both:

    first, replayed = run_batches(spark, pipeline, [[{"event_time": "2025-09-04T07:00:00", …}], CRASH])
    assert first.rows == replayed.rows
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.errors import UsageError
from respool.kafka.records import SCHEMA
from respool.pipeline.definition import Pipeline
from respool.pipeline.session import pipeline_session
from respool.running import progress
from respool.running.dataflow import start_query
from respool.running.progress import BatchProgress
from respool.settings import Settings
from respool.spark.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Value = Mapping[str, Any] | bytes | None


class Marker(Enum):
    """A marker among the batches of `run_batches`."""

    CRASH = "crash"
    EMPTY = "empty"


CRASH = Marker.CRASH
EMPTY = Marker.EMPTY


@dataclass(frozen=True)
class BatchResult:
    """One micro-batch that ran.

    Attributes:
        batch: Its id. A batch without records runs too when the watermark has advanced.
        rows: What it emitted, in no particular order; times are aware.
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
    """Start a small, separate Spark for the length of a `with` block; a single one is enough for all tests."""
    with tempfile.TemporaryDirectory(prefix="respool-") as home, spark_session(Settings(home=Path(home))) as spark:
        yield spark


def run_batches(
    spark: "SparkSession",
    pipeline: Pipeline,
    batches: "Sequence[Sequence[Value] | Marker]",
    checkpoint: Path | None = None,
) -> list[BatchResult]:
    """Run a pipeline's decoding, watermark and transform as a stream, without its source and its sink.

    Args:
        spark: A session; the pipeline runs in a session derived from it.
        pipeline: The pipeline to test.
        batches: The values of the records of each batch: a mapping is written as JSON, bytes are taken as they are.
            EMPTY is a batch without records; CRASH lets the batch in front of it be replayed.
        checkpoint: A new folder for the query's checkpoint, which is kept; None to keep none.

    Returns:
        Every batch that ran, in order: one for each given batch, those without records that Spark runs in between, and
        a second result of the same batch for each CRASH.
    """
    if batches and batches[0] is CRASH:
        raise UsageError("CRASH replays the batch before it; expected a batch before the first CRASH")
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        source = Path(folder) / "records"
        source.mkdir()
        session = pipeline_session(spark, pipeline)
        stream = _Stream(session, pipeline, source, checkpoint or Path(folder) / "checkpoint")
        try:
            first = 0
            for number, values in enumerate(batches):
                if values is CRASH:
                    continue
                records = () if isinstance(values, Marker) else values
                crashes = next((at for at, later in enumerate(batches[number + 1 :]) if later is not CRASH), None)
                crashes = len(batches) - number - 1 if crashes is None else crashes
                _write(records_table(pipeline.topic, first, records), source / f"{number:06}.parquet")
                first += len(records)
                stream.process(crashes)
        finally:
            stream.query.stop()
    return [
        BatchResult(batch, rows, reported.watermark, reported.late_rows or 0, reported.rejected)
        for batch, rows in stream.emitted
        for reported in [stream.progress[batch]]
    ]


class _CrashError(Exception):
    """Ends the query as a crash of its process would, after a batch was written."""


class _Stream:
    """The query of a pipeline over files.

    Attributes:
        query: The running query.
        emitted: What each batch has emitted, in order; a replayed batch is listed again.
        progress: What Spark has reported of each batch.
    """

    def __init__(self, session: "SparkSession", pipeline: Pipeline, source: Path, checkpoint: Path) -> None:
        self.emitted: list[tuple[int, list[dict[str, Any]]]] = []
        self.progress: dict[int, BatchProgress] = {}
        self._crashes = 0
        self._crashed = False
        self._session, self._pipeline, self._source, self._checkpoint = session, pipeline, source, checkpoint
        self.query = self._start()

    def process(self, crashes: int) -> None:
        """Process all files, and let the next batch crash so many times."""
        self._crashes = crashes
        while True:
            try:
                self.query.processAllAvailable()
                break
            except Exception:
                if not self._crashed:
                    raise
                self._crashed = False
                self.query.stop()
                self.query = self._start()
        reported = (progress.from_spark("", raw) for raw in self.query.recentProgress)
        self.progress |= {batch.batch: batch for batch in reported if batch is not None}

    def _start(self) -> "StreamingQuery":
        return start_query(self._session, self._pipeline, self._read, self._collect, str(self._checkpoint))

    def _read(self, session: "SparkSession") -> "DataFrame":
        return session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self._source))

    def _collect(self, results: "DataFrame", batch: int) -> None:
        self.emitted.append((batch, results.toArrow().to_pylist()))
        if self._crashes:
            self._crashes -= 1
            self._crashed = True
            raise _CrashError


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
