"""Archives for tests: written directly, without a broker, or by a pipeline on the tests' broker and Spark."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.archive.reader import ArchiveReader
from respool.archive.sink import archive_pipeline
from respool.archive.table import locate
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.definition import Pipeline
from respool.reprocessing.computation import Computation
from respool.reprocessing.live import LiveQuery
from respool.reprocessing.plan import ReprocessPlan, ReprocessRequest, make_plan
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.settings import Settings
from respool.sinks.protocol import WriteContext
from respool.spark.session import session_for
from respool.testing import Value, records_table
from respool.visits.counts import visits_archive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NOW = datetime(2027, 1, 1, tzinfo=timezone.utc)
PATIENCE = 180


def write_archive(spark: "SparkSession", home: Path, pipeline: Pipeline, batches: Sequence[Sequence[Value]]) -> str:
    """Archive records as the pipeline's own archive would; return the table."""
    archiving = archive_pipeline(pipeline)
    session = session_for(spark, archiving.timezone, archiving.spark)
    first = 0
    for number, values in enumerate(batches):
        records = session.createDataFrame(records_table(pipeline.reads, first, values))
        write = WriteContext(archiving.name, number, KafkaCluster("nowhere:9"), Settings(home=home))
        archiving.sink.write(archiving.transform(records.coalesce(1)), write)
        first += len(values)
    return locate(archiving.archive or "", Settings(home=home))


def write_hours(folder: Path, topic: str, events: Iterable[tuple[datetime, Value]]) -> str:
    """Write an archive of many hours, quickly, without Spark; return the table."""
    from deltalake import write_deltalake

    times, values = zip(*events, strict=True)
    records = records_table(topic, 0, values)
    for name, column in _hours(times).items():
        records = records.append_column(name, column)
    write_deltalake(str(folder), records, partition_by=["event_date", "event_hour"])
    return str(folder)


def write_part(folder: Path, topic: str, records: Sequence[tuple[int, int, datetime]]) -> None:
    """Append records, given by partition, offset and event time, to an archive in one commit, without Spark."""
    import pyarrow as pa
    from deltalake import write_deltalake

    partitions, offsets, times = zip(*records, strict=True)
    values = [{"visit_id": "a", "event_time": time.isoformat(), "page": "p"} for time in times]
    table = records_table(topic, 0, values)
    columns = {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        **_hours(times),
    }
    for name, column in columns.items():
        at = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(name, column) if at is None else table.set_column(at, name, column)
    write_deltalake(str(folder), table, mode="append", partition_by=["event_date", "event_hour"])


def _hours(times: Sequence[datetime]) -> "dict[str, pa.Array]":
    import pyarrow as pa

    return {
        "event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
        "event_date": pa.array([time.date() for time in times], pa.date32()),
        "event_hour": pa.array([time.hour for time in times], pa.int32()),
        "rejected": pa.array([None] * len(times), pa.string()),
    }


def plan_of(
    request: ReprocessRequest, table: str, live: LiveQuery | None = None, version: int | None = None
) -> ReprocessPlan:
    """Return the plan of a request."""
    return make_plan(request, ArchiveReader(table, version), live, NOW)


def computation_of(spark: "SparkSession", request: ReprocessRequest, table: str) -> Computation:
    """Return what computes a request."""
    plan = plan_of(request, table)
    session = session_for(spark, request.pipeline.timezone, request.pipeline.spark)
    return Computation(session, plan, ArchiveReader(table, plan.version))


@dataclass(frozen=True)
class ArchiveStage:
    """A home of its own, and the archive in it.

    Attributes:
        spark: The tests' session.
        kafka: The tests' broker.
        settings: Those of the home.
    """

    spark: "SparkSession"
    kafka: KafkaCluster
    settings: Settings

    @property
    def table(self) -> Path:
        return self.settings.home / "archive" / "visits_table"

    @property
    def checkpoint(self) -> Path:
        return Path(self.settings.checkpoint_store) / "visits-archive"

    @contextmanager
    def running(self, topic: str, **options: Any) -> Iterator[list[BatchProgress]]:
        """Archive a topic as long as the block lasts."""
        batches: list[BatchProgress] = []
        wanted = RunOptions(trigger=timedelta(0), **options)
        with Runner(self.spark, self.kafka, self.settings, wanted, batches.append, print) as runner:
            runner.start([visits_archive(topic=topic, table="visits_table")])
            waiting = threading.Thread(target=runner.wait)
            waiting.start()
            try:
                yield batches
            finally:
                runner.request_stop()
                waiting.join(PATIENCE)

    def run(self, topic: str, **options: Any) -> list[BatchProgress]:
        """Archive what is in a topic now."""
        batches: list[BatchProgress] = []
        wanted = RunOptions(available_now=True, **options)
        with Runner(self.spark, self.kafka, self.settings, wanted, batches.append, print) as runner:
            runner.start([visits_archive(topic=topic, table="visits_table")])
            runner.wait()
        return batches

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table, read without Spark, in the order of their places."""
        import pyarrow as pa
        from deltalake import DeltaTable

        rows: list[dict[str, Any]] = pa.table(DeltaTable(str(self.table)).scan()).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def until(done: Callable[[], bool], pause: float = 0.05) -> None:
    """Wait until a condition holds; fail after some minutes."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(pause)
