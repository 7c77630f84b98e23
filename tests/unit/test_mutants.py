"""What `make mutants` names is there: a module that is moved or changed must not drop out of it unnoticed."""

import sys
from pathlib import Path

from mutants import scope

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_module_of_the_scope_and_every_test_that_is_left_out_exists() -> None:
    named = [*scope.MODULES, *(f"{scope.TESTS}/{name}.py" for name in scope.LEFT_OUT)]
    assert [name for name in named if not (scope.ROOT / name).is_file()] == []


def test_every_equivalent_change_is_of_a_line_that_is_there() -> None:
    entries = tomllib.loads((Path(scope.__file__).parent / "equivalent.toml").read_text())["mutant"]
    assert [entry for entry in entries if entry["was"] not in (scope.ROOT / entry["file"]).read_text()] == []
    assert all(entry["reason"] for entry in entries)


def test_every_score_is_of_a_module_of_the_scope() -> None:
    text = (scope.ROOT / "docs" / "mutants.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    modules = [f"src/respool/{name}" for row in rows for name in row.split("|")[1].split("`")[1::2]]
    assert len(modules) > 20
    assert sorted(set(modules) - set(scope.MODULES)) == []
