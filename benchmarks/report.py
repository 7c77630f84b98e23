"""The report."""

import json
from pathlib import Path

from benchmarks.results import Results


def write(results: Results, out: Path) -> str:
    """Write."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(results.to_json(), indent=1) + "\n", encoding="utf-8")
    return ""
