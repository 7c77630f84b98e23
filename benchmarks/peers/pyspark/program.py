"""Plain PySpark, written as in tutorials of Structured Streaming: counts, sessions, archive.

Spark's defaults except for two shuffle partitions, RocksDB state with changelogs, and the jars. The state of a session
is stored per visit by `transformWithStateInPandas`, an early row for every update and a final row by a timer.
"""

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.peers.command import make_parser, report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

_VISIT = "event_id STRING, visit_id STRING, event_time TIMESTAMP, page STRING"
_SESSION = "visit_id STRING, session_start TIMESTAMP, session_end TIMESTAMP, visited_pages BIGINT, is_finished BOOLEAN"
_GAP = 10 * 60 * 1000
_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(jars: str) -> "SparkSession":
    """Start Spark."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("plain")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def visits(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    """Return the events, with the columns of their records."""
    from pyspark.sql import functions as F

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .load()
    )
    return records.select("*", F.from_json(F.col("value").cast("string"), _VISIT).alias("visit"))


def counts(spark: "SparkSession", arguments: argparse.Namespace) -> "DataStreamWriter":
    """Count visits in windows of 10 minutes."""
    from pyspark.sql import functions as F

    events = visits(spark, arguments).select("visit.*").withWatermark("event_time", "10 minutes")
    windows = events.groupBy(F.window("event_time", "10 minutes")).count()
    rows = windows.select(F.to_json("window").alias("key"), F.to_json(F.struct("window", "count")).alias("value"))
    return _to_kafka(rows, arguments).outputMode("append")


def sessions(spark: "SparkSession", arguments: argparse.Namespace) -> "DataStreamWriter":
    """Publish the sessions of every visit, early and final."""
    from pyspark.sql import functions as F

    events = visits(spark, arguments).select("visit.*").withWatermark("event_time", "15 minutes")
    results = events.groupBy("visit_id").transformWithStateInPandas(_processor(), _SESSION, "Update", "EventTime")
    rows = results.select(F.col("visit_id").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return _to_kafka(rows, arguments).outputMode("update")


def archive(spark: "SparkSession", arguments: argparse.Namespace) -> "DataStreamWriter":
    """Write every record to a Delta table, partitioned by the date and hour of its event."""
    from pyspark.sql import functions as F

    at = F.col("visit.event_time")
    rows = visits(spark, arguments).withColumns({"event_date": F.to_date(at), "event_hour": F.hour(at)}).drop("visit")
    writer = rows.writeStream.format("delta").partitionBy("event_date", "event_hour").option("path", arguments.output)
    return writer.outputMode("append")


def _to_kafka(rows: "DataFrame", arguments: argparse.Namespace) -> "DataStreamWriter":
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", arguments.servers)
    return writer.option("topic", arguments.output)


def _processor() -> "StatefulProcessor":
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Processor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.state = handle.getValueState("session", "start BIGINT, end BIGINT, pages BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> "Iterator[pd.DataFrame]":
            times = sorted(int(time.timestamp() * 1000) for frame in rows for time in frame["event_time"])
            results = []
            start, end, pages = self.state.get() if self.state.exists() else (times[0], times[0], 0)
            for time in times:
                if time - end > _GAP:
                    results.append((start, end, pages, True))
                    start, pages = time, 0
                end, pages = time, pages + 1
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(end + _GAP)
            self.state.update((start, end, pages))
            yield self.rows(key, [*results, (start, end, pages, False)])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> "Iterator[pd.DataFrame]":
            start, end, pages = self.state.get()
            self.state.clear()
            yield self.rows(key, [(start, end, pages, True)])

        def rows(self, key: Any, sessions: list[tuple[int, int, int, bool]]) -> "pd.DataFrame":
            return pd.DataFrame(
                {
                    "visit_id": [key[0]] * len(sessions),
                    "session_start": pd.to_datetime([row[0] for row in sessions], unit="ms"),
                    "session_end": pd.to_datetime([row[1] for row in sessions], unit="ms"),
                    "visited_pages": [row[2] for row in sessions],
                    "is_finished": [row[3] for row in sessions],
                }
            )

        def close(self) -> None:
            pass

    return Processor()


def _listener(ended: threading.Event) -> "StreamingQueryListener":
    from pyspark.sql.streaming import listener

    class Listener(listener.StreamingQueryListener):
        def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
            pass

        def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
            if "addBatch" in event.progress.durationMs:
                report(rows=event.progress.numInputRows)

        def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
            pass

        def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
            ended.set()

    return Listener()


def main() -> None:
    """Process all events of the topic, and report every batch."""
    parser = make_parser(("counts", "sessions", "archive"))
    for name in ("checkpoint", "jars"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch", type=int, required=True)
    arguments = parser.parse_args()
    spark = session(arguments.jars)
    ended = threading.Event()
    spark.streams.addListener(_listener(ended))
    writer = {"counts": counts, "sessions": sessions, "archive": archive}[arguments.job](spark, arguments)
    query = writer.option("checkpointLocation", arguments.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    ended.wait(10)
    spark.stop()


if __name__ == "__main__":
    main()
