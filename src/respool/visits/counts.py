"""The events of the website: pipelines that archive them, and count visits and browsers in windows of event time.

The micro-batch consumer does not count: it prints the visits of every batch, from the tasks that read them.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from respool.archive.sink import archive_topic
from respool.decoders.json import JsonDecoder
from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Windows
from respool.sinks.console import ConsoleSink, FunctionSink
from respool.sinks.kafka import KafkaSink
from respool.times import spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

VISITS_TOPIC = "visits"
VISIT = JsonDecoder(
    schema="event_id STRING, visit_id STRING NOT NULL, event_time TIMESTAMP NOT NULL, page STRING",
    event_time="event_time",
)
BROWSER_VISIT = JsonDecoder(
    schema="userId STRING, page STRING, eventTime TIMESTAMP NOT NULL, browser STRING NOT NULL",
    event_time="eventTime",
)
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `visits-archive`."""
    return archive_topic("visits-archive", topic, VISIT, table=table, timezone=timezone)


def browser_visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `browser-visits-archive`."""
    table = table or browser_table(topic)
    return archive_topic("browser-visits-archive", topic, BROWSER_VISIT, table=table, timezone=timezone)


def browser_table(topic: str) -> str:
    """Return the archive of a topic of browser visits, whose event time is in another field."""
    return f"browser_{topic}_table"


def visit_counts(
    *,
    topic: str = VISITS_TOPIC,
    output_topic: str = "visits_counter",
    window: str = "10 minutes",
    watermark: str = "10 minutes",
    timezone: str = "UTC",
) -> Pipeline:
    """Return the pipeline `visit-counts`: each window is published once, when the watermark has passed its end."""
    return Pipeline(
        name="visit-counts",
        summary=f"Counts visits in windows of {window}; each window once, when it is closed",
        topic=topic,
        decode=VISIT,
        watermark=watermark,
        transform=partial(count_windows, window=spark_interval(window)),
        output_mode="append",
        sink=KafkaSink(output_topic, key=("window",)),
        timezone=timezone,
        results=Windows(window),
    )


def visit_windows(
    *, topic: str = VISITS_TOPIC, window: str = "10 minutes", watermark: str = "20 minutes", timezone: str = "UTC"
) -> Pipeline:
    """Return the pipeline `visit-windows`: each window is published whenever it changes."""
    return Pipeline(
        name="visit-windows",
        summary=f"Counts visits in windows of {window}; each window whenever it changes",
        topic=topic,
        decode=VISIT,
        watermark=watermark,
        transform=partial(count_windows, window=spark_interval(window)),
        output_mode="update",
        sink=ConsoleSink(),
        timezone=timezone,
        spark=ROCKSDB,
        results=Windows(window),
    )


def count_windows(events: "DataFrame", window: str) -> "DataFrame":
    """Return the number of events in every window."""
    from pyspark.sql import functions as F

    return events.groupBy(F.window("event_time", window)).count()


def micro_batch(*, topic: str = VISITS_TOPIC, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `micro-batch`."""
    return Pipeline(
        name="micro-batch",
        summary="Prints each visit, with the partition that read it",
        topic=topic,
        decode=VISIT,
        transform=visits,
        sink=FunctionSink(print_visits, "prints from the tasks"),
        trigger="20 seconds",
        max_offsets_per_trigger=1000,
        timezone=timezone,
        results=ArrivalDependent("it prints visits as they arrive, and has no results to correct"),
    )


def visits(events: "DataFrame") -> "DataFrame":
    """Return visit, time and page; the time without a zone, so that Python shows it in the pipeline's."""
    from pyspark.sql import functions as F

    return events.select("visit_id", F.col("event_time").cast("timestamp_ntz").alias("event_time"), "page")


def print_visits(frame: "DataFrame", batch: int) -> None:
    """Print every visit from the task that read it: on a cluster, into the executor's log."""
    print("✍️ Printing visits", flush=True)
    frame.foreachPartition(_print_partition)


def _print_partition(rows: "Iterator[Row]") -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for row in rows:
        # One write per line: workers share the stream, and print() would write the line's end separately.
        sys.stdout.write(f"Partition[{context.partitionId()}] > Printing visit={row}\n")


def browser_stats_stateless(
    *,
    topic: str = VISITS_TOPIC,
    output_topic: str = "browser-stats-stateless",
    window: str = "5 minutes",
    timezone: str = "UTC",
) -> Pipeline:
    """Return the pipeline `browser-stats-stateless`: each batch is counted on its own."""
    return Pipeline(
        name="browser-stats-stateless",
        summary=f"Statistics by browser in windows of {window}, of each batch on its own",
        topic=topic,
        decode=BROWSER_VISIT,
        transform=partial(browser_stats, window=spark_interval(window)),
        stateless=True,
        sink=KafkaSink(output_topic, key=("browser", "window")),
        timezone=timezone,
        results=ArrivalDependent("each batch is counted on its own, so results depend on which records share a batch"),
        archive=browser_table(topic),
    )


def browser_stats_stateful(
    *,
    topic: str = VISITS_TOPIC,
    output_topic: str = "browser-stats-stateful",
    window: str = "5 minutes",
    watermark: str = "20 minutes",
    timezone: str = "UTC",
) -> Pipeline:
    """Return the pipeline `browser-stats-stateful`: each batch adds to the state of the batches before."""
    return Pipeline(
        name="browser-stats-stateful",
        summary=f"Statistics by browser in windows of {window}, kept from batch to batch",
        topic=topic,
        decode=BROWSER_VISIT,
        watermark=watermark,
        transform=partial(browser_stats, window=spark_interval(window)),
        output_mode="update",
        trigger="15 seconds",
        sink=KafkaSink(output_topic, key=("browser", "window")),
        timezone=timezone,
        results=Windows(window),
        archive=browser_table(topic),
    )


def browser_stats(events: "DataFrame", window: str) -> "DataFrame":
    """Return the count and the newest event time of every browser in every window."""
    from pyspark.sql import functions as F

    return events.groupBy("browser", F.window("eventTime", window)).agg(
        F.count("*").alias("count"), F.max("eventTime").alias("last_event_time_in_window")
    )
