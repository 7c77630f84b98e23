"""Visits counted in windows of event time: finished windows to Kafka, or every update to the console."""

from functools import partial
from typing import TYPE_CHECKING

from respool.pipeline.definition import Pipeline
from respool.pipeline.results import Windows
from respool.sinks.console import ConsoleSink
from respool.sinks.kafka import KafkaSink
from respool.times import spark_interval
from respool.visits.events import ROCKSDB, VISIT, VISITS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
