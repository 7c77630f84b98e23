"""Which modules are mutated, and which tests may kill a mutant."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mutants"

# The code that parses, plans, journals and applies changes of a checkpoint.
MODULES = tuple(
    f"src/respool/{name}.py"
    for name in (
        "checkpoint/journal/apply",
        "checkpoint/journal/history",
        "checkpoint/journal/steps",
        "checkpoint/planning/refusals",
        "checkpoint/planning/request",
        "checkpoint/planning/rewind",
        "checkpoint/planning/sources",
        "checkpoint/planning/undo",
        "checkpoint/reachability",
        "checkpoint/snapshot",
        "checkpoint/state_versions",
        "format/layout",
        "format/logs",
        "format/model",
        "format/positions",
        "format/state_files",
        "savepoint/copying",
        "savepoint/install",
        "savepoint/manifest",
        "savepoint/planning",
        "savepoint/promote",
        "savepoint/restore",
        "savepoint/store",
        "savepoint/verify",
        "untrusted",
    )
)

# Tests that reach these modules and need no JVM. The tests that cut an operation at each of its steps, and those
# with an object store or a process for each command, take minutes: they are left to `make test`.
TESTS = "tests/unit"
LEFT_OUT = (
    "archive/test_contents",
    "test_benchmarks",
    "local/test_broker_files",
    "test_chaos",
    "operations/test_check",
    "storage/test_s3",
    "spark/test_class_archive",
    "cli/test_app",
    "checkpoint/test_compatibility",
    "spark/test_sql",
    "demo/test_process",
    "comparing/test_diff",
    "operations/test_doctor",
    "spark/test_failures",
    "pipeline/test_fingerprint",
    "test_fuzz",
    "visits/test_generator",
    "local/test_jars",
    "local/test_java",
    "cli/test_jobs",
    "kafka/test_cluster",
    "spark/test_jvm_classes",
    "pipeline/test_registry",
    "faults/test_power_cut",
    "test_text",
    "contracts/test_folder",
    "contracts/test_public_api",
    "archive/test_high_water",
    "cli/test_reprocess",
    "reprocessing/test_runs",
    "pipeline/test_results",
    "faults/test_savepoint_killed",
    "sessions/test_rules",
    "sessions/test_table",
    "test_settings",
    "test_times",
    "cli/test_state",
    "test_untrusted_files",
    "cli/test_wrong_places",
)


def tests() -> list[str]:
    """Return the test files that may kill a mutant."""
    left_out = {ROOT / TESTS / f"{name}.py" for name in LEFT_OUT}
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / TESTS).rglob("test_*.py")) if path not in left_out]


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
