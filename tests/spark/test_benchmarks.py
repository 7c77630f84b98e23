"""The benchmark of reprocessing runs; its figures are not tested."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import reprocess as bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_both_ways_count_alike_and_the_archive_reads_an_hour(spark: "SparkSession", tmp_path: Path) -> None:
    assert bench.expected(60) == 10
    archives = bench.make_archives(tmp_path, [1, 2], 60)
    rows = bench.measure_all(spark, archives, 10, repeat=1, warm_up=0)
    assert [(row["way"], row["days"], row["records"], row["files"]) for row in rows] == [
        ("reprocess", 1, 1440, 24),
        ("reprocess", 2, 2880, 48),
        ("walk-through", 1, 1440, 24),
        ("walk-through", 2, 2880, 48),
    ]
    assert [(row["read_files"], row["spark_files"]) for row in rows] == [(1, 1), (1, 1), (24, 24), (48, 48)]
    assert all(row["read_bytes"] == row["spark_bytes"] for row in rows)
    assert rows[0]["read_bytes"] == rows[1]["read_bytes"] < rows[2]["read_bytes"] / 20
    assert all(row["median_s"] > 0 for row in rows)


@pytest.mark.parametrize("counts", [[], [9], [10, 1]])
def test_a_wrong_count_ends_the_benchmark(counts: list[int]) -> None:
    archive = bench.Archive("here", 1, 1440)
    bench.require("reprocess", archive, [10], 10)
    with pytest.raises(SystemExit, match="there are 10"):
        bench.require("reprocess", archive, counts, 10)


def test_what_grows_with_the_archive_is_reported() -> None:
    def row(days: int, seconds: float, size: int) -> dict[str, Any]:
        return {"way": "reprocess", "days": days, "median_s": seconds, "read_bytes": size, "spark_bytes": 5}

    slow = {**row(100, 60, 999), "way": "walk-through"}
    assert bench.complaints([row(1, 2, 5), row(100, 3, 5), slow]) == []
    assert bench.complaints([row(100, 3.2, 5), row(1, 2, 5), slow]) == [
        "The largest archive takes 1.60 times as long as the smallest; allowed is 1.5"
    ]
    assert bench.complaints([row(1, 2, 5), row(10, 2, 6), row(100, 2, 5)]) == ["read_bytes differ: 5, 6, 5"]
