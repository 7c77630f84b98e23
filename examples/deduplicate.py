"""Orders without the duplicates that a retrying producer sends: the first of each id, as long as the watermark lasts.

Run: respool topic create orders; respool run deduplicate:unique_orders
"""

from typing import TYPE_CHECKING

from respool import DeltaSink, JsonDecoder, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = JsonDecoder("order_id STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at")


def first_of_each(orders: "DataFrame") -> "DataFrame":
    """Return the first order of each id within the watermark."""
    return orders.dropDuplicatesWithinWatermark(["order_id"])


unique_orders = Pipeline(
    name="unique-orders",
    topic="orders",
    decode=ORDER,
    watermark="1 hour",
    transform=first_of_each,
    sink=DeltaSink("unique-orders", key=("order_id",)),
)
