"""`respool reprocess` and `respool audit` before Spark starts: what is refused, and how it is reported."""

import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from support.archive import write_hours

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SPAN = ("2025-09-04T07:00:00Z", "2025-09-04T07:10:00Z")
SHARED = (
    *("PIPELINE", "START", "END", "--allow-open", "--allow-partial", "--slice TIME", "--archive PATH", "--json"),
    *("--checkpoint PATH", "--set NAME=VALUE", "--timezone ZONE", "--master", "--bootstrap-servers", "--home"),
)
HELP = {
    "reprocess": ("--dry-run", "--output PATH", "--run-id ID", *SHARED),
    "audit": ("--fix", "--limit N", "Exit code 3", *SHARED),
}


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Run:
    """Run `respool` in a separate folder, where no Java can be found."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [respool, *words],
            cwd=tmp_path,
            env={**os.environ, "JAVA_HOME": str(tmp_path / "no-java")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """An archive of 100 visits, one per minute, in a separate folder."""
    times = [datetime(2025, 9, 4, 7, tzinfo=timezone.utc) + timedelta(minutes=number) for number in range(100)]
    events = [(time, {"visit_id": "v", "event_time": time.isoformat(), "page": "p"}) for time in times]
    return write_hours(tmp_path / "elsewhere", "visits", events)


def refuses(result: "subprocess.CompletedProcess[str]", folder: Path, *expected: str, code: int = 1) -> None:
    """Expect one message with all of these texts and nothing else, and that no file was created."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    for words in expected:
        assert words in result.stderr
    for never in ("Traceback", "Starting Spark"):
        assert never not in result.stderr
    marks = [line for line in result.stderr.splitlines() if line.startswith("error: " if code == 1 else "Error: ")]
    assert len(marks) == 1
    assert not (folder / ".respool").exists()


@pytest.mark.parametrize("command", HELP)
def test_help_lists_every_option(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert [words for words in HELP[command] if words not in result.stdout] == []
    assert "_ " not in result.stdout  # no name of Python's
    assert "- TIME" not in result.stdout


TIMES = [
    (("yesterday", SPAN[1]), ("'yesterday' is not a time", "ISO 8601", "2024-01-01T01:00:00Z")),
    ((SPAN[0], "07:10"), ("'07:10' is not a time",)),
    ((SPAN[1], SPAN[0]), (f"starts at {SPAN[1]} and ends at {SPAN[0]}", "Write the earlier time first.")),
    ((SPAN[0], SPAN[0]), ("it is empty",)),
    (
        ("2025-03-30T02:30:00", "2025-03-30T04:00:00", "--timezone", "Europe/Paris"),
        ("'2025-03-30T02:30:00' does not exist in Europe/Paris", "name an offset"),
    ),
    (
        ("2025-10-26T01:00:00", "2025-10-26T02:30:00", "--timezone", "Europe/Paris"),
        ("'2025-10-26T02:30:00' occurs twice in Europe/Paris", "2025-10-26T02:30+02:00 or 2025-10-26T02:30+01:00"),
    ),
    (("0001-01-01", "0001-01-02", "--timezone", "Europe/Paris"), ("0001-01-01", "the years 1 to 9999")),
    ((*SPAN, "--timezone", "Europe/Pari"), ("'Europe/Pari' is not a time zone", "Did you mean 'Europe/Paris'?")),
    ((*SPAN, "--slice", "soon"), ("'soon' is not a duration",)),
]


@pytest.mark.parametrize(("words", "expected"), TIMES)
def test_a_span_that_cannot_be_read_is_refused(
    run: Run, tmp_path: Path, words: Sequence[str], expected: Sequence[str]
) -> None:
    refuses(run("reprocess", "visit-counts", *words), tmp_path, *expected)


PIPELINES = [
    ("audit", ("sessions", "--set", "rule=timer"), ("sessions depend on the batches", "use the rule gap")),
    ("reprocess", ("browser-stats-stateless",), ("each batch is counted on its own",)),
    ("audit", ("micro-batch",), ("has no results to correct",)),
    ("reprocess", ("visits-archive",), ("it writes the archive", "respool archive verify")),
    ("audit", ("browser-visits-archive",), ("it writes the archive",)),
]


@pytest.mark.parametrize(("command", "words", "expected"), PIPELINES)
def test_a_pipeline_that_cannot_be_reprocessed_is_refused_with_the_reason(
    run: Run, tmp_path: Path, command: str, words: Sequence[str], expected: Sequence[str]
) -> None:
    name, *options = words
    refuses(run(command, name, *SPAN, *options), tmp_path, f"The pipeline {name} cannot be reprocessed:", *expected)


@pytest.mark.parametrize("command", HELP)
def test_an_unknown_pipeline_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, "visit-count", *SPAN)
    refuses(result, tmp_path, "There is no pipeline 'visit-count'", "Did you mean 'visit-counts'?", "module:object")


def test_a_parameter_that_the_pipeline_does_not_have_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("reprocess", "visit-counts", *SPAN, "--set", "windwo=1h")
    refuses(result, tmp_path, "has no parameter 'windwo'", "Did you mean 'window'?")


OWN = """
from respool import JsonDecoder, KafkaSink, Pipeline

orders = Pipeline(
    name="orders", topic="orders", transform=lambda rows: rows, sink=KafkaSink("sums"),
    decode=JsonDecoder("time TIMESTAMP NOT NULL", event_time="time"),
)
"""


def test_a_pipeline_without_declared_results_is_refused_with_an_explanation(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    refuses(
        run("reprocess", "mine:orders", *SPAN), tmp_path, "The pipeline orders does not declare", "results=Windows("
    )


@pytest.mark.parametrize("command", HELP)
def test_an_archive_that_is_not_there_is_reported_with_its_place(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, "visit-counts", *SPAN)
    place = tmp_path / ".respool" / "archive" / "visits_table"
    refuses(result, tmp_path, f"There is no archive at {place}", "respool run visits-archive")
    refuses(run(command, "visit-counts", *SPAN, "--archive", str(tmp_path)), tmp_path, f"no archive at {tmp_path}.")


def test_a_table_that_is_no_archive_is_refused(run: Run, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    table = tmp_path / "other"
    write_deltalake(str(table), pa.table({"value": [1]}))
    refuses(run("reprocess", "visit-counts", *SPAN, "--archive", str(table)), tmp_path, "is not an archive")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("2025-09-04T06:00:00Z", "2025-09-04T06:50:00Z"), ("outside the archive", "2025-09-04T07:00Z")),
        (("2925-09-04", "2925-09-05"), ("in the future",)),
        (("0001-01-01", "2025-09-05"), ("the years 1 to 9999",)),
        (("2025-09-04", "9999-12-31T23:59:00"), ("the years 1 to 9999",)),
        ((*SPAN, "--slice", "99999999d"), ("in slices of 99999999 days", "a shorter --slice")),
    ],
)
def test_a_span_that_the_archive_does_not_have_is_refused(
    run: Run, tmp_path: Path, archive: str, words: Sequence[str], expected: Sequence[str]
) -> None:
    refuses(run("reprocess", "visit-counts", *words, "--archive", archive), tmp_path, *expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reprocess", "visit-counts", SPAN[0]), "Missing argument 'END'"),
        (("audit", "visit-counts"), "Missing argument 'START'"),
        (("reprocess", "visit-counts", *SPAN, "--fix"), "No such option: --fix"),
        (("audit", "visit-counts", *SPAN, "--limit", "-1"), "--limit"),
        (("audit", "visit-counts", *SPAN, "--set", "window"), "--set window is not NAME=VALUE"),
    ],
)
def test_wrong_usage_exits_with_2(run: Run, tmp_path: Path, words: Sequence[str], message: str) -> None:
    refuses(run(*words), tmp_path, message, "--help", code=2)
