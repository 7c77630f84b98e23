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
from respool.kafka.cluster import NO_KAFKA
from respool.kafka.records import SCHEMA
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.pipeline.session import pipeline_session
from respool.running import progress
from respool.running.dataflow import source_reader, start_query
from respool.running.progress import BatchProgress
from respool.settings import Settings
from respool.spark.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class InputRecord:
    """A record with more than a value.

    Attributes:
        value: A mapping, which is written as JSON, or bytes; None for a tombstone.
        key: Its key.
        headers: Its headers.
        timestamp: Its timestamp in Kafka; None for now.
    """

    value: Mapping[str, Any] | bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: datetime | None = None


Value = Mapping[str, Any] | bytes | None | InputRecord
_Values = Mapping[str, Sequence[Value]]


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
    batches: "Sequence[Sequence[Value] | Mapping[str, Sequence[Value]] | Marker]",
    checkpoint: Path | None = None,
    tables: "Mapping[str, DataFrame] | None" = None,
) -> list[BatchResult]:
    """Run a pipeline's decoding, watermarks and transform as a stream, without its sources and its sink.

    Args:
        spark: A session; the pipeline runs in a session derived from it.
        pipeline: The pipeline to test.
        batches: The values of the records of each batch: a mapping is written as JSON, bytes are taken as they are, an
            `InputRecord` may have a key, headers and a timestamp.
            EMPTY is a batch without records; CRASH lets the batch in front of it be replayed. For a pipeline with
            several inputs, a batch has the values by the name of the input; rows of another source than Kafka are
            mappings of its columns.
        checkpoint: A new folder for the query's checkpoint, which is kept; None to keep none.
        tables: The rows of static inputs, by name; other static inputs are read from their sources.

    Returns:
        Every batch that ran, in order: one for each given batch, those without records that Spark runs in between, and
        a second result of the same batch for each CRASH.
    """
    if batches and batches[0] is CRASH:
        raise UsageError("CRASH replays the batch before it; expected a batch before the first CRASH")
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        source = Path(folder) / "records"
        session = pipeline_session(spark, pipeline)
        written = {name: _Written(source / name, each) for name, each in pipeline.streams.items() if not each.static}
        stream = _Stream(session, pipeline, source, checkpoint or Path(folder) / "checkpoint", tables or {})
        try:
            for number, values in enumerate(batches):
                if values is CRASH:
                    continue
                by_input = _by_input(pipeline, values)
                crashes = next((at for at, later in enumerate(batches[number + 1 :]) if later is not CRASH), None)
                crashes = len(batches) - number - 1 if crashes is None else crashes
                for name, files in written.items():
                    files.write(number, by_input.get(name, ()))
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

    def __init__(
        self,
        session: "SparkSession",
        pipeline: Pipeline,
        source: Path,
        checkpoint: Path,
        tables: "Mapping[str, DataFrame]",
    ) -> None:
        self.emitted: list[tuple[int, list[dict[str, Any]]]] = []
        self.progress: dict[int, BatchProgress] = {}
        self._crashes = 0
        self._crashed = False
        self._session, self._pipeline, self._source, self._checkpoint = session, pipeline, source, checkpoint
        self._tables = tables
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

    def _read(self, session: "SparkSession", name: str, each: Input) -> "DataFrame":
        if each.static:
            given = self._tables.get(name)
            return source_reader(NO_KAFKA, self._pipeline, Settings())(session, name, each) if given is None else given
        files, folder = session.readStream.option("maxFilesPerTrigger", 1), str(self._source / name)
        if each.kafka is not None:
            return files.schema(SCHEMA).parquet(folder)
        return files.schema(_schema(name, each)).json(folder)

    def _collect(self, results: "DataFrame", batch: int) -> None:
        self.emitted.append((batch, results.toArrow().to_pylist()))
        if self._crashes:
            self._crashes -= 1
            self._crashed = True
            raise _CrashError


def _by_input(pipeline: Pipeline, values: "Sequence[Value] | Mapping[str, Sequence[Value]] | Marker") -> "_Values":
    """Return the values of a batch by the names of the inputs; raise UsageError when they are not given so."""
    if isinstance(values, Marker):
        return {}
    names = [name for name, each in pipeline.streams.items() if not each.static]
    if not isinstance(values, Mapping):
        if len(names) > 1:
            raise UsageError(
                f"the pipeline {pipeline.name} has the inputs {', '.join(names)}: give values by their names"
            )
        return {names[0]: values}
    for name in values:
        if name not in names:
            raise UsageError(f"the pipeline {pipeline.name} has no input '{name}'; expected {', '.join(names)}")
    return values


def _schema(name: str, each: Input) -> "StructType":
    schema = each.known_schema()
    if schema is None:
        raise UsageError(f"the columns of the input {name} are only known to Spark: test it with another source")
    return schema


class _Written:
    """The files of an input's records: one for each batch."""

    def __init__(self, folder: Path, each: Input) -> None:
        folder.mkdir(parents=True)
        self._folder, self._input, self._next = folder, each, 0

    def write(self, number: int, values: "Sequence[Value]") -> None:
        """Write the file of a batch; it appears complete, since Spark looks into the folder all the time."""
        import pyarrow.parquet as pq

        new = self._folder.parent / f"{self._folder.name}-{number:06}"
        source = self._input.kafka
        if source is not None:
            topic = source.names[0] if source.names else source.reads()
            pq.write_table(records_table(topic, self._next, values), new)
        else:
            new.write_text("".join(json.dumps(value, default=str) + "\n" for value in values), encoding="utf-8")
        self._next += len(values)
        new.replace(self._folder / f"{number:06}")


def records_table(topic: str, first: int, values: Sequence[Value]) -> "pa.Table":
    """Return records of these values as Arrow, with the columns of raw records.

    Args:
        topic: Their topic; all are of its partition 0.
        first: The offset of the first one.
        values: A mapping is written as JSON, bytes are taken as they are, an `InputRecord` may have a key and headers.
    """
    import pyarrow as pa

    rows = [value if isinstance(value, InputRecord) else InputRecord(value) for value in values]
    encoded = [json.dumps(row.value).encode() if isinstance(row.value, Mapping) else row.value for row in rows]
    headers = [[{"key": name, "value": data} for name, data in row.headers] or None for row in rows]
    count, now = len(encoded), datetime.now(timezone.utc)
    return pa.table(
        {
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([row.timestamp or now for row in rows], pa.timestamp("us", tz="UTC")),
            "timestamp_type": pa.array([0] * count, pa.int32()),
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array(encoded, pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )
