"""`make bench` runs; its figures are for people, not for tests."""

import json
import subprocess
import sys
from pathlib import Path

REWIND = Path(__file__).parents[2] / "benchmarks" / "rewind.py"


def test_the_benchmark_of_rewinds_runs_on_few_batches() -> None:
    words = [sys.executable, str(REWIND), "--batches", "60", "--partitions", "2", "--runs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    rows = json.loads(done.stdout.splitlines()[-1])
    assert [(row["command"], row["batches"]) for row in rows] == [("show", 60), ("plan", 60)]
    assert all(row["median_s"] > 0 for row in rows)
