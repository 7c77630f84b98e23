"""Run a respool command as a process, and parse the lines that it prints."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from respool.errors import RespoolError
from respool.running.progress import BatchProgress

_VISIT = re.compile(
    r"Partition\[\d+\] > Printing visit=Row\(visit_id='(?P<visit>[^']*)', "
    r"event_time=datetime\.datetime\((?P<time>[\d, ]+)\), page='(?P<page>[^']*)'\)"
)
_RULE = "-" * 43

Visit = tuple[str, str, str]


@dataclass(frozen=True)
class ConsoleTable:
    """A batch on the console: its id, its columns, its rows sorted."""

    batch: int
    columns: str
    rows: tuple[str, ...]


def reported_batches(lines: list[str]) -> list[BatchProgress]:
    """Return the batches that `respool run --json` reported."""
    return [batch for line in lines if (batch := BatchProgress.from_json(line)) is not None]


def tables(lines: list[str]) -> list[ConsoleTable]:
    """Return the complete batches on the console."""
    complete: list[ConsoleTable] = []
    for number, line in enumerate(lines):
        if line.startswith("Batch: ") and number and lines[number - 1].strip() == _RULE:
            # Batch lines of other pipelines may come in between; a table's own lines are framed.
            framed = [row.rstrip() for row in lines[number + 2 :] if row.startswith(("+", "|"))]
            borders = [index for index, row in enumerate(framed) if row.startswith("+")]
            if len(borders) >= 3:
                first, _, last = borders[:3]
                rows = [row for row in framed[first:last] if row.startswith("|")]
                complete.append(ConsoleTable(int(line.removeprefix("Batch: ")), rows[0], tuple(sorted(rows[1:]))))
    return complete


def draw(batch: int, head: str, *rows: str) -> str:
    """Return a batch as the console shows it; `head` and rows are lines such as `|window|count|`."""
    border = "+" + "+".join("-" * len(column) for column in head.strip("|").split("|")) + "+"
    return "\n".join([_RULE, f"Batch: {batch}", _RULE, border, head, border, *rows, border, ""])


def is_visit(line: str) -> bool:
    """Return whether the micro-batch consumer printed this line for a visit."""
    return _VISIT.match(line) is not None


def printed_visits(lines: list[str]) -> list[Visit]:
    """Return the visits that the micro-batch consumer has printed."""
    visits: list[Visit] = []
    for line in lines:
        match = _VISIT.match(line)
        if match:
            year, month, day, hour, minute, second = [*(int(part) for part in match["time"].split(",")), 0][:6]
            time = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
            visits.append((match["visit"], time, match["page"]))
    return visits


# A demo is over before the JVM's slow, thorough compiler would pay off.
_QUICK_START = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


class RunningCommand:
    """A respool command in a separate process."""

    def __init__(self, words: tuple[str, ...], home: Path, show: Callable[[str], None]) -> None:
        """Start the command.

        Args:
            words: The arguments after `respool` on the command line.
            home: The home to use.
            show: Called with every line that it prints.
        """
        self.words = words
        self.lines: list[str] = []
        self._show = show
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "respool", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**_QUICK_START, **os.environ, "RESPOOL_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def wait_for(self, happened: Callable[[list[str]], bool], seconds: float) -> None:
        """Wait until the lines so far satisfy `happened`; raise RespoolError when the command ends or time runs out."""
        end = time.monotonic() + seconds
        with self._changed:
            while not happened(self.lines):
                if not self._reader.is_alive():
                    raise RespoolError(f"{self} ended too early, with exit code {self._process.wait()}.")
                if time.monotonic() > end:
                    raise RespoolError(f"{self} did not print what was expected within {seconds:.0f} s.")
                self._changed.wait(0.5)

    def finish(self, seconds: float) -> int:
        """Wait for the end of the command and return its exit code."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    def stop(self, seconds: float = 60) -> int:
        """Send SIGINT, as Ctrl-C does, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.finish(seconds)

    def kill(self) -> None:
        """Kill the command, as a crash would."""
        self._process.kill()
        self.finish(30)

    def __str__(self) -> str:
        """Return the command as a person would type it."""
        return " ".join(("respool", *self.words))

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "backslashreplace").rstrip("\n")
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
                self._show(line)
        with self._changed:
            self._changed.notify_all()
