"""The micro-batch consumer: prints the visits of every batch, from the tasks that read them."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent
from respool.sinks.console import FunctionSink
from respool.visits.events import VISIT, VISITS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


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
