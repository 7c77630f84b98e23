"""A job runs under spark-submit, with the jars that `respool jars` names."""

import os
import subprocess
import sys
from pathlib import Path

from respool.kafka import producer
from respool.kafka.cluster import KafkaCluster

JOB = Path(__file__).parents[3] / "jobs" / "visits_windows_counter_job.py"


def test_a_job_runs_under_spark_submit(kafka: KafkaCluster, topic: str, respool: str, tmp_path: Path) -> None:
    visit = b'{"visit_id": 1, "event_time": "2025-09-04T07:00:00"}'
    producer.produce_together(kafka, topic, [visit, visit, visit])
    jars = subprocess.run([respool, "jars"], capture_output=True, text=True, check=True, timeout=120).stdout.strip()
    options = ["--available-now", "--bootstrap-servers", kafka.bootstrap_servers, "--set", f"topic={topic}"]
    done = subprocess.run(
        [Path(sys.executable).parent / "spark-submit", "--jars", jars, JOB, *options],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "|{2025-09-04 07:00:00, 2025-09-04 07:10:00}|3    |" in done.stdout
    assert "visit-windows batch 0  3 rows" in done.stdout  # spark-submit makes one stream of a script's two
