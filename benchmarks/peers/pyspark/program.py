"""Plain PySpark, as walk-throughs of Structured Streaming have it: counts, sessions, archive.

Spark's own defaults but for two shuffle partitions, RocksDB state with changelogs, and the jars. The state of a session
is kept per visit by `transformWithStateInPandas`, an early row for every update and a final one by a timer.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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


def visits(spark: "SparkSession", asked: argparse.Namespace) -> "DataFrame":
    """Return the events, with the columns of their records."""
    from pyspark.sql import functions as F

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked.servers)
        .option("subscribe", asked.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", asked.batch)
        .load()
    )
    return records.select("*", F.from_json(F.col("value").cast("string"), _VISIT).alias("visit"))


def counts(spark: "SparkSession", asked: argparse.Namespace) -> "DataStreamWriter":
    """Count visits in windows of 10 minutes."""
    from pyspark.sql import functions as F

    events = visits(spark, asked).select("visit.*").withWatermark("event_time", "10 minutes")
    windows = events.groupBy(F.window("event_time", "10 minutes")).count()
    rows = windows.select(F.to_json("window").alias("key"), F.to_json(F.struct("window", "count")).alias("value"))
    return _to_kafka(rows, asked).outputMode("append")


def sessions(spark: "SparkSession", asked: argparse.Namespace) -> "DataStreamWriter":
    """Tell the sessions of every visit, early and final."""
    from pyspark.sql import functions as F

    events = visits(spark, asked).select("visit.*").withWatermark("event_time", "15 minutes")
    found = events.groupBy("visit_id").transformWithStateInPandas(_processor(), _SESSION, "Update", "EventTime")
    rows = found.select(F.col("visit_id").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return _to_kafka(rows, asked).outputMode("update")


def archive(spark: "SparkSession", asked: argparse.Namespace) -> "DataStreamWriter":
    """Write every record to a Delta table, partitioned by the date and hour of its event."""
    from pyspark.sql import functions as F

    at = F.col("visit.event_time")
    rows = visits(spark, asked).withColumns({"event_date": F.to_date(at), "event_hour": F.hour(at)}).drop("visit")
    writer = rows.writeStream.format("delta").partitionBy("event_date", "event_hour").option("path", asked.output)
    return writer.outputMode("append")


def _to_kafka(rows: "DataFrame", asked: argparse.Namespace) -> "DataStreamWriter":
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", asked.servers)
    return writer.option("topic", asked.output)


def _processor() -> "StatefulProcessor":
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Processor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.state = handle.getValueState("session", "start BIGINT, end BIGINT, pages BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> "Iterator[pd.DataFrame]":
            times = sorted(int(one.timestamp() * 1000) for frame in rows for one in frame["event_time"])
            told = []
            start, end, pages = self.state.get() if self.state.exists() else (times[0], times[0], 0)
            for time in times:
                if time - end > _GAP:
                    told.append((start, end, pages, True))
                    start, pages = time, 0
                end, pages = time, pages + 1
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(end + _GAP)
            self.state.update((start, end, pages))
            yield self.rows(key, [*told, (start, end, pages, False)])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> "Iterator[pd.DataFrame]":
            start, end, pages = self.state.get()
            self.state.clear()
            yield self.rows(key, [(start, end, pages, True)])

        def rows(self, key: Any, found: list[tuple[int, int, int, bool]]) -> "pd.DataFrame":
            return pd.DataFrame(
                {
                    "visit_id": [key[0]] * len(found),
                    "session_start": pd.to_datetime([one[0] for one in found], unit="ms"),
                    "session_end": pd.to_datetime([one[1] for one in found], unit="ms"),
                    "visited_pages": [one[2] for one in found],
                    "is_finished": [one[3] for one in found],
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
                print(json.dumps({"rows": event.progress.numInputRows}), flush=True)

        def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
            pass

        def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
            ended.set()

    return Listener()


def main() -> None:
    """Process all that is there, and tell of every batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["counts", "sessions", "archive"])
    for name in ("topic", "servers", "output", "checkpoint", "jars"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch", type=int, required=True)
    asked = parser.parse_args()
    spark = session(asked.jars)
    ended = threading.Event()
    spark.streams.addListener(_listener(ended))
    writer = {"counts": counts, "sessions": sessions, "archive": archive}[asked.job](spark, asked)
    query = writer.option("checkpointLocation", asked.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    ended.wait(10)
    spark.stop()


if __name__ == "__main__":
    main()
