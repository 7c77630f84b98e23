"""A home with the archive of visits in it, on the tests' own broker and Spark."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.kafka.cluster import KafkaCluster
from respool.running.options import RunOptions
from respool.running.progress import BatchProgress
from respool.running.runner import Runner
from respool.settings import Settings
from respool.visits.events import visits_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 180


@dataclass(frozen=True)
class ArchiveStage:
    """A home of its own, and the archive in it.

    Attributes:
        spark: The tests' session.
        kafka: The tests' broker.
        settings: Those of the home.
    """

    spark: "SparkSession"
    kafka: KafkaCluster
    settings: Settings

    @property
    def table(self) -> Path:
        return self.settings.home / "archive" / "visits_table"

    @property
    def checkpoint(self) -> Path:
        return self.settings.checkpoints / "visits-archive"

    @contextmanager
    def running(self, topic: str, **options: Any) -> Iterator[list[BatchProgress]]:
        """Archive a topic as long as the block lasts."""
        told: list[BatchProgress] = []
        wanted = RunOptions(trigger=timedelta(0), **options)
        with Runner(self.spark, self.kafka, self.settings, wanted, told.append, print) as runner:
            runner.start([visits_archive(topic=topic, table="visits_table")])
            waiting = threading.Thread(target=runner.wait)
            waiting.start()
            try:
                yield told
            finally:
                runner.request_stop()
                waiting.join(PATIENCE)

    def run(self, topic: str, **options: Any) -> list[BatchProgress]:
        """Archive what is in a topic now."""
        told: list[BatchProgress] = []
        wanted = RunOptions(available_now=True, **options)
        with Runner(self.spark, self.kafka, self.settings, wanted, told.append, print) as runner:
            runner.start([visits_archive(topic=topic, table="visits_table")])
            runner.wait()
        return told

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table, read without Spark, in the order of their places."""
        import pyarrow as pa
        from deltalake import DeltaTable

        found: list[dict[str, Any]] = pa.table(DeltaTable(str(self.table)).scan()).to_pylist()
        return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def until(done: Callable[[], bool], pause: float = 0.05) -> None:
    """Wait until something is so; fail after some minutes."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(pause)
