"""Orders that are paid within an hour, and those that are not: a join of two streams, each with its own watermark.

Run: respool topic create orders payments; respool run join_streams:paid_orders
"""

from typing import TYPE_CHECKING

from respool import Input, JsonDecoder, KafkaSink, KafkaSource, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = JsonDecoder("order_id STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at")
PAYMENT = JsonDecoder("paid_id STRING NOT NULL, method STRING, paid_at TIMESTAMP", event_time="paid_at")


def join(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
    """Return every order once: with its payment, or without when the watermark says that none can come any more."""
    from pyspark.sql import functions as F

    in_time = "order_id = paid_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
    joined = orders.join(payments, F.expr(in_time), "left_outer")
    return joined.select("order_id", "amount", "method", "paid_at")


paid_orders = Pipeline(
    name="paid-orders",
    inputs={
        "orders": Input(KafkaSource("orders"), ORDER, watermark="10 minutes"),
        "payments": Input(KafkaSource("payments"), PAYMENT, watermark="10 minutes"),
    },
    transform=join,
    sink=KafkaSink("paid-orders", key=("order_id",)),
)
