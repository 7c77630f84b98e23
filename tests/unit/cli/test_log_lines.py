"""Standard error as JSON: an object for each line, whoever prints it."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.cli.render import log_lines
from respool.cli.render.log_lines import JsonLines, wanted


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def lines(stream: io.StringIO) -> JsonLines:
    return JsonLines(stream)


def printed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_has_time_level_logger_message_and_fields(lines: JsonLines, stream: io.StringIO) -> None:
    moment = datetime(2025, 9, 4, 7, 30, tzinfo=timezone.utc)
    lines.emit("info", "respool.run", "a batch", {"batch": 3, "watermark": moment, "message": "kept out"})
    [line] = printed(stream)
    time = datetime.fromisoformat(line.pop("time").replace("Z", "+00:00"))
    assert abs((datetime.now(timezone.utc) - time).total_seconds()) < 60
    assert line == {
        "level": "info",
        "logger": "respool.run",
        "message": "a batch",
        "batch": 3,
        "watermark": "2025-09-04T07:30:00.000Z",
    }


def test_text_of_others_becomes_a_message_line_by_line(lines: JsonLines, stream: io.StringIO) -> None:
    lines.write("Usage: ")
    lines.write("respool\n\nError: none\nand no ")
    lines.end()
    assert [line["message"] for line in printed(stream)] == ["Usage: respool", "Error: none", "and no"]
    assert {(line["level"], line["logger"]) for line in printed(stream)} == {("error", "stderr")}


def test_control_characters_stay_inside_their_line(lines: JsonLines, stream: io.StringIO) -> None:
    lines.emit("info", "respool", "a\nb\x1b[31m\u2028c")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert printed(stream)[0]["message"] == "a\nb\x1b[31m\u2028c"


def test_lines_of_the_jvm_keep_their_own_objects(lines: JsonLines, stream: io.StringIO) -> None:
    own = {"time": "2025-01-01T00:00:00.000Z", "level": "warning", "logger": "spark.X", "message": "slow"}
    lines.buffer.write(json.dumps(own).encode() + b"\n")
    lines.buffer.write(b'{"time": 1}\n')
    lines.buffer.write(b"{no json\n\n")
    assert printed(stream)[0] == own
    assert [(line["logger"], line["level"], line["message"]) for line in printed(stream)[1:]] == [
        ("spark", "info", '{"time": 1}'),
        ("spark", "info", "{no json"),
    ]


def test_threads_do_not_mix_their_lines(lines: JsonLines, stream: io.StringIO) -> None:
    def write(letter: str) -> None:
        for _ in range(200):
            lines.write(letter)
            lines.write(letter + "\n")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["message"] for line in printed(stream)) == sorted(2 * letter for letter in "abcd" * 200)


@contextmanager
def lines_of_process(stream: io.StringIO) -> Iterator[None]:
    """JSON lines for this process, as a run installs them, and everything as before in the end."""
    root, respool, stderr = logging.getLogger(), logging.getLogger("respool"), sys.stderr
    handlers, level = list(root.handlers), respool.level
    sys.stderr = stream
    log_lines.use_json_lines()
    log_lines.use_json_lines()
    try:
        yield
    finally:
        sys.stderr = stderr
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        respool.setLevel(level)


def test_log_records_of_all_loggers_are_lines(stream: io.StringIO) -> None:
    with lines_of_process(stream):
        logging.getLogger("respool").info("a note")
        logging.getLogger("respool.jars").info("%d jars", 3, extra={"done": 3, "total": 7})
        logging.getLogger("mine").warning("careful")
        logging.getLogger("mine").info("not shown")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("mine").exception("it failed")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        print("plain", file=sys.stderr)
    seen = printed(stream)
    assert [(line["level"], line["logger"]) for line in seen] == [
        ("info", "respool"),
        ("info", "respool.jars"),
        ("warning", "mine"),
        ("error", "mine"),
        ("warning", "py.warnings"),
        ("error", "stderr"),
    ]
    assert (seen[1]["message"], seen[1]["done"], seen[1]["total"]) == ("3 jars", 3, 7)
    assert "ValueError: why" in seen[3]["exception"]


@pytest.mark.parametrize(
    ("words", "variable", "expected"),
    [
        (["run", "a", "--log-format", "json"], None, True),
        (["--debug", "run", "--log-format=json"], None, True),
        (["run", "a"], "json", True),
        (["run", "a", "--log-format", "text"], "json", False),
        (["run", "--log-format"], None, False),
        (["pipelines"], "json", False),
        (["state", "run", "--log-format", "json"], None, False),
        ([], "json", False),
    ],
)
def test_json_is_wanted_before_the_command_line_is_parsed(
    words: list[str], variable: str | None, expected: bool
) -> None:
    assert wanted(words, {"RESPOOL_LOG_FORMAT": variable} if variable else {}) is expected


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--no-such-option",), 2, "No such option"),
        (("--health", "8080"), 2, "expected HOST:PORT"),
        (("nowhere:nothing",), 1, "The module nowhere"),
        (("--give-up-after", "1s"), 1, "No Kafka broker answers"),
    ],
)
def test_every_line_of_a_run_that_fails_is_json(
    respool: str, tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    ran = subprocess.run(
        [respool, "run", "visit-counts", *words, "--bootstrap-servers", "127.0.0.1:1"],
        cwd=tmp_path,
        env={**os.environ, "RESPOOL_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == code, ran.stderr
    objects = [json.loads(line) for line in ran.stderr.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in objects)
    assert objects[-1]["level"] == "error"
    assert text in objects[-1]["message"]


def test_an_unknown_format_is_refused(respool: str, tmp_path: Path) -> None:
    words = [respool, "run", "visit-counts", "--log-format", "xml"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "error: log_format is 'xml'; expected text or json.\n"
