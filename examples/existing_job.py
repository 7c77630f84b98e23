"""A job that exists: nothing in `build` is of respool. Savepoints, forks, rewinds and diffs know its query.

Either respool runs it:           respool run --job existing_job.py:build
or it registers its own query:    python existing_job.py, which calls respool.attach
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PLACE = os.environ.get("SALES", "/data/sales")


def build(spark: "SparkSession") -> "DataStreamWriter":
    """Return the writer of the job's query."""
    sales = spark.readStream.schema("shop STRING, amount DOUBLE").json(f"{PLACE}/in")
    totals = sales.groupBy("shop").sum("amount").withColumnRenamed("sum(amount)", "total")
    writer = totals.writeStream.queryName("shop-totals").format("delta").outputMode("complete")
    return writer.option("path", f"{PLACE}/totals").option("checkpointLocation", f"{PLACE}/checkpoint")


def main() -> None:
    """Start the query as before, and register it."""
    import respool
    from respool.spark.session import spark_session

    with spark_session(respool.load_settings()) as spark:  # or any session with Delta's jars
        query = build(spark).trigger(availableNow=True).start()
        print(respool.attach(query, key="shop", code=build))
        query.awaitTermination()


if __name__ == "__main__":
    main()
