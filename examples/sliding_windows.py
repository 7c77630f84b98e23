"""Revenue of the last hour, every ten minutes, in a Delta table: windows that overlap.

Run: respool topic create orders; respool run sliding_windows:revenue sliding_windows:orders_archive
Again for a span: respool reprocess sliding_windows:revenue 2025-09-04T07:00Z 2025-09-04T08:00Z
"""

from typing import TYPE_CHECKING

from respool import DeltaSink, JsonDecoder, Pipeline, Windows, archive_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = JsonDecoder("order_id STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at")


def by_window(orders: "DataFrame") -> "DataFrame":
    """Return the revenue of each hour that ends at a multiple of ten minutes."""
    from pyspark.sql import functions as F

    return orders.groupBy(F.window("ordered_at", "1 hour", "10 minutes")).agg(F.sum("amount").alias("revenue"))


revenue = Pipeline(
    name="revenue",
    topic="orders",
    decode=ORDER,
    watermark="10 minutes",
    transform=by_window,
    output_mode="update",
    sink=DeltaSink("revenue", key=("window",)),
    results=Windows("1 hour", slide="10 minutes"),
)
orders_archive = archive_pipeline(revenue)
