"""Which modules are mutated, and which tests may kill a mutant."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mutants"

# The code that parses, plans, journals and applies changes of a checkpoint.
MODULES = tuple(
    f"src/respool/{name}.py"
    for name in (
        "untrusted",
        *(
            f"checkpoint/{module}"
            for module in (
                "apply",
                "availability",
                "file_log",
                "history",
                "layout",
                "loading",
                "logs",
                "model",
                "moves",
                "plan",
                "read",
                "refusals",
                "request",
                "sources",
                "steps",
                "target",
                "undo",
            )
        ),
        *(f"savepoint/{module}" for module in ("bring", "copying", "manifest", "needs", "plan", "store", "verify")),
    )
)

# Tests that reach these modules and need no JVM. The tests that cut an operation at each of its steps, and those
# with an object store or a process for each command, take minutes: they are left to `make test`.
TESTS = "tests/unit"
LEFT_OUT = (
    "archive_facts",
    "benchmarks",
    "broker_files",
    "chaos",
    "check",
    "checkpoint_s3",
    "class_archive",
    "cli",
    "compatibility",
    "ddl",
    "demo_output",
    "diff",
    "doctor",
    "failures",
    "fingerprint",
    "fuzz",
    "generator",
    "jars",
    "java",
    "jobs",
    "kafka_options",
    "own_classes",
    "pipeline",
    "power_cut",
    "printable",
    "public_names",
    "reprocess_beginning",
    "reprocess_cli",
    "reprocess_manifest",
    "results",
    "savepoint_faults",
    "session_rules",
    "session_state",
    "settings",
    "span",
    "state_cli",
    "untrusted_files",
    "wrong_places",
)


def tests() -> list[str]:
    """Return the test files that may kill a mutant."""
    left_out = {f"test_{name}.py" for name in LEFT_OUT}
    return [
        str(path.relative_to(ROOT)) for path in sorted((ROOT / TESTS).glob("test_*.py")) if path.name not in left_out
    ]


def changed(base: str | None) -> list[str]:
    """Return the modules of the scope that differ from a commit.

    Args:
        base: The commit; by default where the branch left origin/main, or the commit before when it did not.
    """
    since = base or _git("merge-base", "HEAD", "origin/main") or "HEAD~1"
    if since == _git("rev-parse", "HEAD"):
        since = "HEAD~1"
    differing = set(_git("diff", "--name-only", since, "--", "src").split())
    return [module for module in MODULES if module in differing]


def _git(*words: str) -> str:
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""
