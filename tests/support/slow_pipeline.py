"""A pipeline whose batches last until a file appears; the folder comes from the environment.

Once Spark will start no other batch, because the run is to stop, the file `stopping` is there.

With SLOW_PIPELINE_LOSES, a run loses its lease while the first batch lasts: a store that Spark reaches, too, would be
needed for a real lease.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool import FunctionSink, Pipeline
from respool.running import restarts
from respool.spark.internals import stop_after_batch
from respool.storage.lease import Lease
from respool.visits.counts import VISIT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: "DataFrame", batch: int) -> None:
    folder = Path(os.environ["SLOW_PIPELINE_FOLDER"])
    # Through Python workers, which report to this process: that connection, too, is lost with the JVM.
    count = frame.mapInArrow(lambda batches: batches, frame.schema).count()
    (folder / f"started-{batch}").write_text(str(count))
    while not (folder / "go").exists():
        time.sleep(0.02)


def stop_and_note(query: Any, spark: "SparkSession") -> None:
    def note() -> None:
        state = query._jsq.streamingQuery().state()
        while state.get().toString() != "TERMINATED":
            time.sleep(0.02)
        (Path(os.environ["SLOW_PIPELINE_FOLDER"]) / "stopping").touch()

    threading.Thread(target=note, daemon=True).start()
    stop_after_batch(query, spark)


setattr(restarts, "stop_after_batch", stop_and_note)  # noqa: B010


def lose_later(lease: Lease, call: Callable[[str], None]) -> None:
    def lose() -> None:
        while not (Path(os.environ["SLOW_PIPELINE_FOLDER"]) / "started-0").exists():
            time.sleep(0.02)
        call(f"The lease of the checkpoint {lease.checkpoint} is lost.")

    threading.Thread(target=lose, daemon=True).start()


if "SLOW_PIPELINE_LOSES" in os.environ:
    setattr(Lease, "on_lost", lose_later)  # noqa: B010

slow = Pipeline(
    name="slow",
    topic=os.environ.get("SLOW_PIPELINE_TOPIC", "slow"),
    transform=lambda events: events.select("visit_id"),
    sink=FunctionSink(write, "nowhere"),
    decode=VISIT,
    max_offsets_per_trigger=2,
)


def fail(frame: "DataFrame", batch: int) -> None:
    raise ValueError("this pipeline never works")


broken = Pipeline(
    name="broken", topic=slow.topic, transform=slow.transform, sink=FunctionSink(fail, "nowhere"), decode=VISIT
)
