"""What users test their pipelines with."""

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from respool.errors import UsageError
from respool.testing import CRASH, EMPTY, run_batches
from respool.visits.counts import visit_counts, visit_windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def visit(minute: int) -> dict[str, str]:
    return {"visit_id": "v", "event_time": f"2025-09-04T07:{minute:02}:00", "page": "home"}


def test_a_crash_lets_the_batch_in_front_of_it_be_replayed(spark: "SparkSession") -> None:
    plain = run_batches(spark, visit_windows(), [[visit(1)], [visit(2)]])
    results = run_batches(spark, visit_windows(), [[visit(1)], CRASH, CRASH, [visit(2)], CRASH])
    counts = [(result.batch, [row["count"] for row in result.rows]) for result in results if result.rows]
    first, second = (result.batch for result in plain if result.rows)
    assert counts == [(first, [1])] * 3 + [(second, [2])] * 2
    assert {result.batch: result for result in results} == {result.batch: result for result in plain}


def test_an_empty_batch_lets_a_watermark_take_effect(spark: "SparkSession") -> None:
    late = run_batches(spark, visit_counts(), [[visit(59)], EMPTY, [visit(1)]])
    assert sum(result.late_rows for result in late) == 1
    assert late[-1].watermark is not None
    assert late[-1].watermark > datetime(2025, 9, 4, 7, tzinfo=timezone.utc)


def test_a_crash_without_a_batch_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(UsageError, match="CRASH replays the batch before it"):
        run_batches(spark, visit_counts(), [CRASH, [visit(1)]])
