"""The files in jobs/ are the walk-throughs' own names for `respool run`."""

import subprocess
import sys
from pathlib import Path

import pytest

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.py"))


def test_every_job_of_the_live_walk_throughs_is_there() -> None:
    assert {job.stem for job in JOBS} >= {
        "browsers_stats_generation_stateful_job",
        "browsers_stats_generation_stateless_job",
        "data_synchronization_job",
        "incremental_approach_job",
        "kafka_consumer_micro_batch",
        "visits_counter_job",
        "visits_windows_counter_job",
    }


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_a_job_takes_the_options_of_respool_run(job: Path, tmp_path: Path) -> None:
    help_ = subprocess.run([sys.executable, job, "--help"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert help_.returncode == 0, help_.stderr
    assert "--available-now" in help_.stdout
    # The pipeline itself is known: what is missing is a broker.
    started = subprocess.run([sys.executable, job], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert started.returncode == 1
    assert "No broker runs" in started.stderr
