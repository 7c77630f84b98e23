"""A short run of the chaos harness: pipelines survive kills, outages, rewinds and restores with exact results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = ("kill-python", "kill-jvm", "kill-broker", "rewind", "restore")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find the processes of a run")
def test_nothing_is_lost_or_duplicated_or_left_over(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    words = ["--seed", "11", "--minutes", "6", "--faults", ",".join(FAULTS), "--max-faults", str(len(FAULTS))]
    quick = ["--one-process", "--settled", "--pace", "0.4", "--rate", "100"]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words, *quick, "--keep", str(tmp_path / "run"), "--out", str(out)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    report = json.loads(out.read_text())
    assert report["faults"] == {kind: {"done": 1} for kind in FAULTS}
    figures = report["figures"]
    assert figures["archived"] == figures["records"] > 1000
    assert figures["savepoints"] >= 1
    assert figures["checked"][-1] == "leftovers"
