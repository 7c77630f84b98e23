"""Archives for tests, made by the archive's own sink; no broker."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from respool.archive.reader import ArchiveReader
from respool.archive.sink import archive_pipeline
from respool.archive.table import locate
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.definition import Pipeline
from respool.reprocess.computation import Computation
from respool.reprocess.live import LiveQuery
from respool.reprocess.plan import ReprocessPlan, ReprocessRequest, make_plan
from respool.sinks.protocol import WriteContext
from respool.spark.session import session_of
from respool.testing import Value, records_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NOW = datetime(2027, 1, 1, tzinfo=timezone.utc)


def write_archive(spark: "SparkSession", home: Path, pipeline: Pipeline, batches: Sequence[Sequence[Value]]) -> str:
    """Archive records as the pipeline's own archive would; return the table."""
    archiving = archive_pipeline(pipeline)
    session = session_of(spark, archiving)
    first = 0
    for number, values in enumerate(batches):
        records = session.createDataFrame(records_table(pipeline.topic, first, values))
        write = WriteContext(archiving.name, number, KafkaCluster("nowhere:9"), home)
        archiving.sink.write(archiving.transform(records.coalesce(1)), write)
        first += len(values)
    return locate(archiving.archive or "", home)


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
    """Append records, each known by its partition, offset and event time, to an archive without Spark: a commit."""
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
        "event_date": pa.array([one.date() for one in times], pa.date32()),
        "event_hour": pa.array([one.hour for one in times], pa.int32()),
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
    return Computation(session_of(spark, request.pipeline), plan, ArchiveReader(table, plan.version))
