"""Statistics of browsers in windows of event time: of each batch on its own, or kept from batch to batch."""

from functools import partial
from typing import TYPE_CHECKING

from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Windows
from respool.sinks.kafka import KafkaSink
from respool.times import spark_interval
from respool.visits.events import BROWSER_VISIT, VISITS_TOPIC, browser_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
