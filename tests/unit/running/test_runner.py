"""What a run reports when it ends its queries by force."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from respool.errors import CheckpointError
from respool.kafka.cluster import KafkaCluster
from respool.running import restarts
from respool.running.options import RunOptions
from respool.running.progress import LeaseLost, from_spark
from respool.running.runner import Runner
from respool.settings import Settings


def reported_by_spark(batch: int) -> Any:
    """A batch as `recentProgress` has it."""
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    raw = {
        "id": "00000000-0000-0000-0000-000000000001",
        "runId": "00000000-0000-0000-0000-000000000002",
        "name": "counts",
        "timestamp": "2025-09-04T07:00:00.000Z",
        "batchId": batch,
        "batchDuration": 10,
        "durationMs": {"addBatch": 5, "triggerExecution": 10},
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "foreachBatch", "numOutputRows": -1},
        "numInputRows": 3,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "observedMetrics": {},
    }
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(raw)))


class HangingQuery:
    """A query whose last finished batch is not reported yet, and whose running batch does not end."""

    runId = "00000000-0000-0000-0000-000000000002"
    isActive = True

    def __init__(self, *batches: int) -> None:
        self.recentProgress = [reported_by_spark(batch) for batch in batches]

    def stop(self) -> None:
        """Interrupted at once."""


@pytest.fixture
def reported() -> list[int]:
    return []


@pytest.fixture
def runner(reported: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr(restarts, "stop_gracefully", lambda queries, spark: list[threading.Thread]())
    options = RunOptions(stop_within=timedelta(0))
    spark: Any = None
    kafka = KafkaCluster("127.0.0.1:1")
    with Runner(
        spark, kafka, Settings(home=tmp_path), options, lambda batch: reported.append(batch.batch), lambda _: None
    ) as runner:
        yield runner


def test_batches_that_finished_before_an_interruption_are_reported(runner: Runner, reported: list[int]) -> None:
    query: Any = HangingQuery(3, 4, 5)
    runner._queries["counts"] = query
    third = from_spark("counts", reported_by_spark(3))
    assert third is not None
    runner._events.put(third)  # its event has arrived, those of the others have not
    runner.request_stop()
    runner.wait()
    assert reported == [3, 4, 5]


def test_batches_that_finished_before_a_lease_was_lost_are_reported(runner: Runner, reported: list[int]) -> None:
    query: Any = HangingQuery(8)
    runner._queries["counts"] = query
    runner._events.put(LeaseLost("another process may use it"))
    with pytest.raises(CheckpointError, match="another process"):
        runner.wait()
    assert reported == [8]
