"""The layout of the package: levels that can be overlooked, and a table of changes that names existing files."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "respool"
MOST = 14  # files at one level of a package


def test_no_level_has_too_many_files() -> None:
    levels = Counter(file.parent.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
    assert {str(level): count for level, count in levels.items() if count > MOST} == {}


def test_contributing_names_files_that_exist() -> None:
    rows = [line.split("|") for line in (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines() if line[:1] == "|"]
    changes = [row for row in rows if len(row) == 5]
    assert len(changes) > 12
    in_package = {name for row in changes for name in re.findall(r"`([\w/]+(?:\.py|/))`", row[2])}
    elsewhere = {name for row in changes for name in re.findall(r"`?((?:docs|tests|requirements)/[\w/.]+\w)`?", row[3])}
    assert len(in_package) > 20
    missing = {name for name in in_package if not (PACKAGE / name).exists() and not (ROOT / name).exists()}
    assert missing | {name for name in elsewhere if not (ROOT / name).exists()} == set()
