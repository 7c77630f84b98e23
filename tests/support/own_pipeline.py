"""A pipeline as a user would write it."""

from typing import TYPE_CHECKING
from uuid import uuid4

from respool import JsonDecoder, KafkaSink, Pipeline, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = f"orders-{uuid4().hex[:8]}"


def totals(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return events.groupBy(F.window("ordered_at", "1 hour"), "shop").agg(F.sum("amount").alias("total"))


orders = Pipeline(
    name="orders",
    topic=_NAME,
    decode=JsonDecoder("shop STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at"),
    transform=totals,
    watermark="10 minutes",
    output_mode="update",
    sink=KafkaSink(f"{_NAME}-totals", key=("window", "shop")),
    results=Windows("1 hour"),
)
