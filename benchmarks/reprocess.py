"""Time and bytes read to compute a 10-minute window of `visit-counts` from archives of 1, 10 and 100 days.

Two ways to compute the same count are compared. `reprocess` is what `respool reprocess --dry-run` does after Spark has
started: read the table's log, make the plan, check that the archive is complete, compute. `walk-through` is a batch job
written by hand: read the whole table, parse the JSON of every value, keep `event_time >= start AND event_time <= end`,
count by window. The time and the bytes of `reprocess` must not depend on the size of the archive: the exit code is 1 if
the largest takes more than 1.5 times as long as the smallest, or if the bytes differ.

The archives are written by delta-rs: a commit for each day, a file for each hour of event time, a single Kafka
partition, values as `respool generate` writes them. The window is in the first day. The smaller archives consist of the
same files as the first days of the largest. All runs share a Spark session, after warm-up runs on the smallest archive;
archives and ways take turns, so that a JVM that is still warming up favors none of them. Before every run Spark's cache
of table logs is cleared. A figure counts only if the count is right.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from respool.archive.high_water import ArchivedOffsets
from respool.archive.reader import ArchiveReader
from respool.archive.table import COLUMNS, PARTITION_COLUMNS, Size
from respool.reprocessing.completeness import check_beginning, wait_until_archived
from respool.reprocessing.computation import Computation
from respool.reprocessing.job import ReprocessJob, preview
from respool.reprocessing.live import LiveQuery
from respool.reprocessing.plan import ReprocessPlan, ReprocessRequest, make_plan
from respool.settings import Settings
from respool.spark.session import session_for, spark_session
from respool.testing import records_table
from respool.times import Span
from respool.visits.counts import visit_counts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FIRST = datetime(2025, 1, 1, tzinfo=timezone.utc)
ASKED = Span(FIRST + timedelta(hours=12, minutes=20), FIRST + timedelta(hours=12, minutes=30))
TOPIC = "visits"
MOST = 1.5  # how many times longer the largest archive may take than the smallest
_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = "event_id STRING, visit_id STRING, event_time TIMESTAMP, page STRING"
_PAGES = ("home", "categories", "cart", "search", "contact", "about")


@dataclass(frozen=True)
class Archive:
    """An archive written for the benchmark.

    Attributes:
        table: The path of the table.
        days: The number of days of event time.
        records: The number of records.
    """

    table: str
    days: int
    records: int


@dataclass(frozen=True)
class Measured:
    """The measurements of a run.

    Attributes:
        seconds: How long it took.
        read: The files and bytes to read, according to the table's log.
        events: The events of the computation, from which Spark reports the files that it reads.
    """

    seconds: float
    read: Size
    events: "DataFrame"


def make_archives(folder: Path, days: Sequence[int], per_hour: int) -> list[Archive]:
    """Write an archive for each number of days, and return them in that order."""
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    growing = folder / "growing"
    archives = []
    for day in range(max(days)):
        known = ArchivedOffsets(day - 1, {(TOPIC, 0): day * 24 * per_hour - 1} if day else {})
        write_deltalake(
            str(growing),
            _visits(day, per_hour),
            mode="append",
            partition_by=list(PARTITION_COLUMNS),
            # As the archive's sink records the earlier contents, so that they are known without reading the table.
            commit_properties=CommitProperties(custom_metadata={"userMetadata": known.to_json()}),
        )
        if day + 1 in days:
            DeltaTable(str(growing)).create_checkpoint()
            table = folder / f"{day + 1}-days"
            shutil.copytree(growing, table, copy_function=os.link)
            archives.append(Archive(str(table), day + 1, (day + 1) * 24 * per_hour))
    shutil.rmtree(growing)
    return archives


def _visits(day: int, per_hour: int) -> "pa.Table":
    """Return the records of a day in the format of the archive, at even intervals."""
    import pyarrow as pa

    first = day * 24 * per_hour
    times = [_time(first + number, per_hour) for number in range(24 * per_hour)]
    values = [_value(first + number, at) for number, at in enumerate(times)]
    records = records_table(TOPIC, first, values)
    columns = {
        "event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
        "event_date": pa.array([at.date() for at in times], pa.date32()),
        "event_hour": pa.array([at.hour for at in times], pa.int32()),
        "rejected": pa.nulls(len(times), pa.string()),
    }
    for name, column in columns.items():
        records = records.append_column(name, column)
    return records.select(COLUMNS)


def _value(number: int, at: datetime) -> bytes:
    visit = number * 7919 % 1_000_003  # spread, so that the values do not compress better than real values
    return (
        f'{{"event_id": "click-{number}", "visit_id": "139630864590304_{visit}", '
        f'"event_time": "{at:%Y-%m-%dT%H:%M:%S.%f}", "page": "{_PAGES[visit % len(_PAGES)]}"}}'
    ).encode()


def _time(number: int, per_hour: int) -> datetime:
    return FIRST + number * timedelta(hours=1) // per_hour


def expected(per_hour: int) -> int:
    """Return the number of visits in the window."""
    return sum(ASKED.start <= _time(number, per_hour) < ASKED.end for number in range(24 * per_hour))


def by_reprocess(spark: "SparkSession", archive: Archive, count: int) -> Measured:
    """Compute the window as `respool reprocess --dry-run` does."""
    pipeline = visit_counts(topic=TOPIC)
    live = LiveQuery("a checkpoint", 1, FIRST + timedelta(days=1), {0: archive.records})
    start = time.perf_counter()
    wait_until_archived(spark, None, archive.table, TOPIC, live, lambda text: None)
    reader = ArchiveReader(archive.table)
    plan = make_plan(ReprocessRequest(pipeline, ASKED), reader, live, _NOW)
    check_beginning(spark, reader, plan)
    result = preview(ReprocessJob(spark, None, Settings(), plan, reader), 20, lambda done, results: None)
    seconds = time.perf_counter() - start
    counts = [json.loads(value)["count"] for value in result.values]
    require("reprocess", archive, counts, count)
    return Measured(seconds, reader.was_read(), _events(spark, plan))


def _events(spark: "SparkSession", plan: ReprocessPlan) -> "DataFrame":
    session = session_for(spark, plan.pipeline.timezone, plan.pipeline.spark)
    return Computation(session, plan, ArchiveReader(plan.table, plan.version)).events(plan.computed)


def by_walk_through(spark: "SparkSession", archive: Archive, count: int) -> Measured:
    """Compute the window from the whole table."""
    from pyspark.sql import functions as F

    start = time.perf_counter()
    value = F.from_json(F.col("value").cast("string"), _SCHEMA)
    visits = spark.read.format("delta").load(archive.table).select(value.alias("visit")).select("visit.*")
    at = F.col("event_time")
    visits = visits.where((at >= F.lit(ASKED.start)) & (at <= F.lit(ASKED.end)))
    rows = visits.groupBy(F.window("event_time", "10 minutes")).count().collect()
    seconds = time.perf_counter() - start
    # A visit at exactly the end is also counted, in the next window.
    counts = [row["count"] for row in rows if row.window.start.timestamp() == ASKED.start.timestamp()]
    require("walk-through", archive, counts, count)
    return Measured(seconds, ArchiveReader(archive.table).size, visits)


def require(way: str, archive: Archive, counts: Sequence[int], count: int) -> None:
    """Raise SystemExit unless a way returns exactly the right count."""
    if list(counts) != [count]:
        raise SystemExit(f"{way} counts {list(counts)} visits in the archive of {archive.days} days; there are {count}")


WAYS = {"reprocess": by_reprocess, "walk-through": by_walk_through}


def _seen(frame: "DataFrame") -> Size:
    files = [Path(unquote(urlparse(url).path)) for url in frame.inputFiles()]
    return Size(len(files), sum(file.stat().st_size for file in files))


def measure_all(
    spark: "SparkSession", archives: Sequence[Archive], count: int, repeat: int, warm_up: int
) -> list[dict[str, Any]]:
    """Return a row for each way and archive."""
    runs: dict[tuple[str, int], list[Measured]] = {(way, archive.days): [] for way in WAYS for archive in archives}
    for number in range(-warm_up, repeat):
        first = number % len(archives)
        # Each archive is first in turn, because earlier runs and other load may slow down the next run.
        for archive in (*archives[first:], *archives[:first]) if number >= 0 else archives[:1]:
            for way, compute in WAYS.items():
                # As in a new process; otherwise Spark caches the log of a table.
                jvm: Any = spark._jvm
                jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
                measured = compute(spark, archive, count)
                if number >= 0:
                    runs[way, archive.days].append(measured)
    return [_row(way, archive, runs[way, archive.days]) for way in WAYS for archive in archives]


def _row(way: str, archive: Archive, runs: Sequence[Measured]) -> dict[str, Any]:
    seconds = [run.seconds for run in runs]
    size, seen = ArchiveReader(archive.table).size, _seen(runs[-1].events)
    return {
        "way": way,
        "days": archive.days,
        "records": archive.records,
        "files": size.files,
        "bytes": size.bytes,
        "read_files": runs[-1].read.files,
        "read_bytes": runs[-1].read.bytes,
        "spark_files": seen.files,
        "spark_bytes": seen.bytes,
        "median_s": round(statistics.median(seconds), 3),
        "least_s": round(min(seconds), 3),
        "most_s": round(max(seconds), 3),
    }


def ratio(rows: Sequence[dict[str, Any]]) -> float:
    """Return how many times as long the largest archive takes as the smallest."""
    mine = sorted((row for row in rows if row["way"] == "reprocess"), key=lambda row: int(row["days"]))
    return float(mine[-1]["median_s"] / mine[0]["median_s"])


def complaints(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the requirements that are not met."""
    mine = [row for row in rows if row["way"] == "reprocess"]
    problems = []
    if ratio(rows) > MOST:
        problems.append(f"The largest archive takes {ratio(rows):.2f} times as long as the smallest; allowed is {MOST}")
    for name in ("read_bytes", "spark_bytes"):
        if len({row[name] for row in mine}) > 1:
            problems.append(f"{name} differ: {', '.join(f'{row[name]:,}' for row in mine)}")
    return problems


def _show(rows: Sequence[dict[str, Any]]) -> None:
    print(
        f"{'way':13} {'days':>5} {'records':>11} {'archive MB':>10} {'files read':>10} {'KB read':>9} "
        f"{'median s':>9} {'least':>7} {'most':>7}"
    )
    for row in rows:
        print(
            f"{row['way']:13} {row['days']:5,} {row['records']:11,} {row['bytes'] / 1e6:10.1f} "
            f"{row['spark_files']:10,} {row['spark_bytes'] / 1e3:9,.0f} "
            f"{row['median_s']:9.2f} {row['least_s']:7.2f} {row['most_s']:7.2f}"
        )


def _sizes(text: str) -> list[int]:
    sizes = sorted({int(size) for size in text.split(",")})
    if sizes[0] < 1:
        raise ValueError(text)
    return sizes


def main() -> None:
    """Measure, print a table, and exit with 1 if the time or the bytes grow with the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=_sizes, default="1,10,100", metavar="N,N,…", help="sizes of the archives")
    parser.add_argument("--per-hour", type=int, default=2_000, metavar="N", help="visits per hour of event time")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="measured runs")
    parser.add_argument(
        "--warm-up", type=int, default=3, metavar="N", help="runs on the smallest archive that are not measured"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="respool-bench-") as made:
        archives = make_archives(Path(made), asked.days, asked.per_hour)
        with spark_session(Settings(home=Path(made) / "home")) as spark:
            rows = measure_all(spark, archives, expected(asked.per_hour), asked.repeat, asked.warm_up)
    _show(rows)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    problems = complaints(rows)
    fine = f"The largest archive takes {ratio(rows):.2f} times as long as the smallest, and the same bytes are read."
    print("\n".join(problems) or fine)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
