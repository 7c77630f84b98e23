"""What a transform can be, on several inputs and with a state of its own: an example of each, on real Spark."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from respool import ConsoleSink, FileSource, Input, JsonDecoder, KafkaSource, Pipeline
from respool.testing import CRASH, EMPTY, run_batches
from respool.visits.counts import ROCKSDB

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ORDER = JsonDecoder("id INT NOT NULL, shop STRING, ordered_at TIMESTAMP", event_time="ordered_at")
PAYMENT = JsonDecoder("order_id INT NOT NULL, paid_at TIMESTAMP", event_time="paid_at")
ORDERS = Input(KafkaSource("orders"), ORDER, watermark="10 minutes")
PAYMENTS = Input(KafkaSource("payments"), PAYMENT, watermark="10 minutes")
SHOPS = Input(FileSource("unused", "shop STRING, city STRING"), static=True)


def order(number: int, time: str, shop: str = "Lyon") -> dict[str, Any]:
    return {"id": number, "shop": shop, "ordered_at": f"2025-09-04T{time}Z"}


def payment(number: int, time: str) -> dict[str, Any]:
    return {"order_id": number, "paid_at": f"2025-09-04T{time}Z"}


def rows(batches: Any, *columns: str) -> list[list[tuple[Any, ...]]]:
    return [sorted(tuple(row[name] for name in columns) for row in batch.rows) for batch in batches]


def paid(orders: "DataFrame", payments: "DataFrame", how: str = "inner") -> "DataFrame":
    from pyspark.sql import functions as F

    within = "id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
    return orders.join(payments, F.expr(within), how).select("id", "paid_at")


def test_an_inner_join_of_two_streams(spark: "SparkSession") -> None:
    pipeline = Pipeline("mine", inputs={"orders": ORDERS, "payments": PAYMENTS}, transform=paid, sink=ConsoleSink())
    batches = run_batches(
        spark,
        pipeline,
        [
            {"orders": [order(1, "07:00"), order(2, "07:00")]},
            {"payments": [payment(1, "07:30"), {"order_id": None}]},
            {"payments": [payment(2, "08:01")]},
        ],
    )
    assert [row for batch in rows(batches, "id") for row in batch] == [(1,)]
    assert sum(batch.rejected for batch in batches) == 1


def test_an_outer_join_emits_what_found_no_partner_when_the_watermark_has_passed(spark: "SparkSession") -> None:
    def unpaid(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
        return paid(orders, payments, "left_outer")

    pipeline = Pipeline("mine", inputs={"orders": ORDERS, "payments": PAYMENTS}, transform=unpaid, sink=ConsoleSink())
    later = {"orders": [order(9, "12:00")], "payments": [payment(9, "12:00")]}
    first = {"orders": [order(1, "07:00"), order(2, "07:00")], "payments": [payment(1, "07:30")]}
    batches = run_batches(spark, pipeline, [first, later, EMPTY])
    emitted = [(row["id"], row["paid_at"] is None) for batch in batches for row in batch.rows]
    assert sorted(emitted) == [(1, False), (2, True), (9, False)]


def test_a_join_of_a_stream_with_a_table(spark: "SparkSession") -> None:
    def located(orders: "DataFrame", shops: "DataFrame") -> "DataFrame":
        return orders.join(shops, "shop", "left").select("id", "city")

    pipeline = Pipeline("mine", inputs={"orders": ORDERS, "shops": SHOPS}, transform=located, sink=ConsoleSink())
    shops = spark.createDataFrame([("Lyon", "Lyon 3e")], "shop STRING, city STRING")
    given = {"orders": [order(1, "07:00"), order(2, "07:01", shop="Oslo")]}
    batches = run_batches(spark, pipeline, [given], tables={"shops": shops})
    assert rows(batches, "id", "city")[0] == [(1, "Lyon 3e"), (2, None)]


def test_a_union_of_two_streams(spark: "SparkSession") -> None:
    def both(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        ordered = orders.select("id", F.lit("ordered").alias("what"))
        return ordered.union(payments.select("order_id", F.lit("paid")))

    pipeline = Pipeline("mine", inputs={"orders": ORDERS, "payments": PAYMENTS}, transform=both, sink=ConsoleSink())
    given = {"orders": [order(1, "07:00")], "payments": [payment(1, "07:30")]}
    assert rows(run_batches(spark, pipeline, [given]), "id", "what")[0] == [(1, "ordered"), (1, "paid")]


def test_deduplication(spark: "SparkSession") -> None:
    pipeline = Pipeline(
        "mine",
        "orders",
        decode=ORDER,
        watermark="10 minutes",
        transform=lambda orders: orders.dropDuplicatesWithinWatermark(["id"]),
        sink=ConsoleSink(),
    )
    batches = run_batches(
        spark, pipeline, [[order(1, "07:00"), order(1, "07:00")], [order(1, "07:05"), order(2, "07:05")]]
    )
    assert [row for batch in rows(batches, "id") for row in batch] == [(1,), (2,)]


def test_chained_aggregations(spark: "SparkSession") -> None:
    def hourly(orders: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        quarters = orders.groupBy(F.window("ordered_at", "15 minutes")).count()
        return quarters.groupBy(F.window("window", "1 hour")).agg(F.max("count").alias("most"))

    pipeline = Pipeline("mine", "orders", decode=ORDER, watermark="10 minutes", transform=hourly, sink=ConsoleSink())
    first = [order(1, "07:01"), order(2, "07:02"), order(3, "07:20")]
    batches = run_batches(spark, pipeline, [first, [order(4, "10:00")], EMPTY])
    assert [row["most"] for batch in batches for row in batch.rows] == [2]


def running_totals(key: tuple[Any, ...], frames: "Iterator[pd.DataFrame]", state: Any) -> "Iterator[pd.DataFrame]":
    import pandas as pd

    (count,) = state.get if state.exists else (0,)
    count += sum(len(frame) for frame in frames)
    state.update((count,))
    yield pd.DataFrame({"shop": [key[0]], "orders": [count]})


def test_apply_in_pandas_with_state_continues_after_a_crash(spark: "SparkSession") -> None:
    def counted(orders: "DataFrame") -> "DataFrame":
        from pyspark.sql.streaming.state import GroupStateTimeout

        return orders.groupBy("shop").applyInPandasWithState(
            running_totals, "shop STRING, orders INT", "orders INT", "update", GroupStateTimeout.NoTimeout
        )

    pipeline = Pipeline("mine", "orders", decode=ORDER, transform=counted, output_mode="update", sink=ConsoleSink())
    two, three = [order(1, "07:00"), order(2, "07:01")], [order(3, "07:02")]
    batches = run_batches(spark, pipeline, [two, three, CRASH])
    assert rows(batches, "shop", "orders") == [[("Lyon", 2)], [("Lyon", 3)], [("Lyon", 3)]]


def test_transform_with_state_in_pandas(spark: "SparkSession") -> None:
    def largest_ids(orders: "DataFrame") -> "DataFrame":
        import pandas as pd
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor

        class Largest(StatefulProcessor):
            def init(self, handle: Any) -> None:
                self._largest = handle.getValueState("largest", "id INT")

            def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> "Iterator[pd.DataFrame]":
                known = self._largest.get()[0] if self._largest.exists() else 0
                largest = max(known, *(int(frame["id"].max()) for frame in rows))
                self._largest.update((largest,))
                yield pd.DataFrame({"shop": [key[0]], "largest": [largest]})

            def close(self) -> None:
                """Nothing to close."""

        grouped = orders.groupBy("shop")
        return grouped.transformWithStateInPandas(Largest(), "shop STRING, largest INT", "Update", "None")

    pipeline = Pipeline(
        "mine",
        "orders",
        decode=ORDER,
        transform=largest_ids,
        output_mode="update",
        spark=ROCKSDB,
        sink=ConsoleSink(),
    )
    batches = run_batches(spark, pipeline, [[order(7, "07:00"), order(3, "07:00")], [order(5, "07:01")]])
    assert rows(batches, "largest") == [[(7,)], [(7,)]]


def test_an_idle_input_holds_back_the_watermark_unless_it_is_ignored(spark: "SparkSession") -> None:
    def hourly(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        events = orders.select("ordered_at").union(payments.select("paid_at"))
        return events.groupBy(F.window("ordered_at", "1 hour")).count()

    waiting = Pipeline("mine", inputs={"orders": ORDERS, "payments": PAYMENTS}, transform=hourly, sink=ConsoleSink())
    first = {"orders": [order(1, "07:00")], "payments": [payment(1, "07:30")]}
    without_payments = {"orders": [order(2, "12:00")]}
    given = [first, without_payments, without_payments]
    assert [row for batch in run_batches(spark, waiting, given) for row in batch.rows] == []
    ignoring = replace(waiting, idle_inputs="ignore")
    assert [row["count"] for batch in run_batches(spark, ignoring, given) for row in batch.rows] == [2]
