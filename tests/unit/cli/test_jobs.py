"""The files in jobs/ are respool's commands under the names of the walk-throughs."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.checkpoints import unpack

REWIND = Path(__file__).parents[3] / "jobs" / "clean_checkpoint_files.py"
REPROCESS = Path(__file__).parents[3] / "jobs" / "visits_counter_reprocessing_job.py"
JOBS = sorted((Path(__file__).parents[3] / "jobs").glob("*.py"))


def test_every_job_of_the_live_walk_throughs_is_there() -> None:
    assert {job.stem for job in JOBS} >= {
        "clean_checkpoint_files",
        "browsers_stats_generation_stateful_job",
        "browsers_stats_generation_stateless_job",
        "data_synchronization_job",
        "incremental_approach_job",
        "kafka_consumer_micro_batch",
        "visits_counter_job",
        "visits_counter_reprocessing_job",
        "visits_windows_counter_job",
    }


@pytest.mark.parametrize("job", [job for job in JOBS if job not in (REWIND, REPROCESS)], ids=lambda job: job.stem)
def test_a_job_takes_the_options_of_respool_run(job: Path, tmp_path: Path) -> None:
    help_ = subprocess.run([sys.executable, job, "--help"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert help_.returncode == 0, help_.stderr
    assert "--available-now" in help_.stdout
    # The pipeline itself is known: what is missing is a broker.
    started = subprocess.run([sys.executable, job], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert started.returncode == 1
    assert "No broker runs" in started.stderr


def test_the_job_that_rewinds_takes_a_batch_and_the_options_of_rewind(tmp_path: Path) -> None:
    def job(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(REWIND), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)

    assert "--same-range" in job("--help").stdout
    assert job().stderr.startswith("Usage: ")
    assert "There is no checkpoint visit-windows. No pipeline has run in" in job("5").stderr
    assert "Invalid value for '--to-batch'" in job("x").stderr
    unpack(tmp_path, "kafka").rename(tmp_path / "visit-windows")
    checkpoints = tmp_path / ".respool" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (tmp_path / "visit-windows").rename(checkpoints / "visit-windows")
    done = job("5")
    assert done.returncode == 0, done.stderr
    assert "Batch 5 is the next to run." in done.stdout
    assert not (checkpoints / "visit-windows" / "offsets" / "5").exists()


def test_the_job_that_reprocesses_takes_a_span_and_the_options_of_reprocess(tmp_path: Path) -> None:
    def job(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(REPROCESS), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)

    assert "--dry-run" in job("--help").stdout
    assert job("2025-09-04T07:00:00.000").returncode == 2
    done = job("2025-09-04T07:00:00.000", "2025-09-04T07:10:00.000")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no archive" in done.stderr
