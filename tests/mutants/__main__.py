"""`make mutants`: change the code in small ways, and check whether a unit test fails. What it does: docs/mutants.md."""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mutants import scope
from mutants.environment import generate
from mutants.model import Mutant, Outcome
from mutants.runner import run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_EQUIVALENT = Path(__file__).parent / "equivalent.toml"
_GOAL = 90


def main() -> int:
    """Run, print and return the exit code: 1 below the goal, 2 if there is no result."""
    wanted = _arguments()
    os.chdir(scope.ROOT)
    modules = wanted.modules or (list(scope.MODULES) if wanted.all else scope.changed(wanted.base))
    if not modules:
        print("No module of the scope has changed. ARGS=--all runs all of them.")
        return 0
    listed = _listed()
    every = generate(modules)
    left_out = [mutant for mutant in every if mutant.key in listed]
    mutants = [mutant for mutant in every if mutant.key not in listed]
    if wanted.line:
        mutants = [mutant for mutant in mutants if mutant.line in wanted.line]
    stream = os.fdopen(os.dup(1), "w")
    started = time.monotonic()

    def show(outcome: Outcome) -> None:
        if wanted.verbose or outcome.kind == "survived":
            mutant = outcome.mutant
            by = f"{outcome.by}" if outcome.by else f"{outcome.tests} tests reach it"
            print(f"{outcome.kind}: {mutant.file}:{mutant.line} in {mutant.function} ({by})", file=stream)
            print(f"  - {mutant.was}\n  + {mutant.becomes}", file=stream, flush=True)

    print(
        f"{len(mutants)} mutants of {len(modules)} modules; first all tests without a mutant …", file=stream, flush=True
    )
    runner = run(mutants, wanted.tests or scope.tests(), wanted.jobs, wanted.budget, show)
    if runner.error:
        print(runner.error, file=stream, flush=True)
        return 2
    below = _report(modules, runner.outcomes, left_out, stream)
    for key in _forgotten(modules, every, listed):
        print(f"listed as equivalent, but there is no such mutant: {' | '.join(key)}", file=stream)
        below = True
    print(f"{time.monotonic() - started:.0f} s", file=stream, flush=True)
    return 1 if below else 0


def _report(modules: list[str], outcomes: list[Outcome], left_out: list[Mutant], stream: Any) -> bool:
    """Print a table; whether a module is below the goal."""
    below = False
    rows = []
    for module in [*modules, "all"]:
        kinds = Counter(outcome.kind for outcome in outcomes if module in ("all", outcome.mutant.file))
        equivalent = sum(1 for mutant in left_out if module in ("all", mutant.file))
        total = sum(kinds.values())
        score = 100 * (total - kinds["survived"]) / total if total else 100.0
        below = below or score < _GOAL
        rows.append((module, total, kinds["killed"], kinds["timeout"], kinds["survived"], equivalent, f"{score:.1f} %"))
    heads = ("module", "mutants", "killed", "timeout", "survived", "equivalent", "score")
    width = max(len(row[0]) for row in rows)
    for row in (heads, *rows):
        print(f"{row[0]:<{width}}" + "".join(f"{cell!s:>12}" for cell in row[1:]), file=stream)
    if below:
        print(f"Below {_GOAL} %.", file=stream)
    return below


def _listed() -> set[tuple[str, str, str, str]]:
    entries = tomllib.loads(_EQUIVALENT.read_text()).get("mutant", [])
    assert all(entry["reason"] for entry in entries)
    return {(entry["file"], entry["function"], entry["was"], entry["becomes"]) for entry in entries}


def _forgotten(modules: list[str], every: list[Mutant], listed: set[Any]) -> list[tuple[str, str, str, str]]:
    return sorted(key for key in listed - {mutant.key for mutant in every} if key[0] in modules)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", help="modules to mutate; by default those that differ from the base")
    parser.add_argument("--all", action="store_true", help="all modules of the scope")
    parser.add_argument(
        "--base", help="a commit to compare with; by default where the branch left origin/main, or HEAD~1"
    )
    parser.add_argument("--tests", nargs="*", help="test files to run instead of all")
    parser.add_argument("--line", type=int, nargs="*", help="only mutants of these lines")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests for a mutant that survives")
    parser.add_argument("--verbose", action="store_true", help="print the killed mutants too, with the test")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
