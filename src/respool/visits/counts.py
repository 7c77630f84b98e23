"""Visits counted in windows of event time: finished windows to Kafka, or every update to the console.

The micro-batch consumer does not count: it prints the visits of every batch, from the tasks that read them.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Windows
from respool.sinks.console import ConsoleSink, FunctionSink
from respool.sinks.kafka import KafkaSink
from respool.times import spark_interval
from respool.visits.events import ROCKSDB, VISIT, VISITS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


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
