"""`make bench` with few events, without the peers that are downloaded."""

import json
from pathlib import Path

import pytest

from benchmarks.run import main


def test_three_engines_count_the_same_and_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "counts", "--engines", "respool,pyspark,bare", "--events", "3000", "--runs", "1", "--offline"]
    main([*words, "--folder", str(tmp_path)])
    printed = capsys.readouterr()
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [(run["engine"], run["status"], run["events"]) for run in report["runs"]] == [
        ("respool", "right", 3_000),
        ("pyspark", "right", 3_000),
        ("bare", "right", 3_000),
    ], printed.err
    assert all(run["steady"] > 0 and run["cpu_s"] > 0 and run["pss_mb"] > 0 for run in report["runs"])
    assert "at least 1.5 × plain PySpark's steady rate" in printed.out
    assert (tmp_path / "report" / "report.svg").read_text().startswith("<svg")
