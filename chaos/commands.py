"""respool commands as real processes: each with a time limit, with its output in a file of the run's folder."""

import itertools
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from chaos.place import Place
from chaos.timeline import Timeline

_TRACEBACK = "Traceback (most recent call last)"
_FAULT = "This is a fault of respool"
_numbers = itertools.count(1)
_numbering = threading.Lock()


@dataclass(frozen=True)
class Done:
    """A command that has ended.

    Attributes:
        words: Its arguments.
        code: Its exit code; None when it was killed at its time limit.
        output: Its standard output.
        errors: Its standard error.
        seconds: How long it took.
    """

    words: tuple[str, ...]
    code: int | None
    output: str
    errors: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether its exit code is 0."""
        return self.code == 0

    @property
    def reason(self) -> str:
        """The last line that it printed about its failure."""
        lines = [line for line in (self.output + "\n" + self.errors).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")] or lines[-1:] or ["no output"]
        return f"exit code {self.code}: {errors[-1][:300]}"


def log_file(place: Place, name: str) -> Path:
    """Return a new file for the output of a command."""
    with _numbering:
        number = next(_numbers)
    return place.logs / f"{number:04}-{re.sub(r'[^A-Za-z0-9.-]+', '-', name)[:60]}.log"


def respool(place: Place, timeline: Timeline, *words: str, limit: float = 120, kill_after: float | None = None) -> Done:
    """Run a command, and return its exit code and output. A traceback or a hang is a violation.

    Args:
        place: The run's folder and environment.
        timeline: Records violations.
        words: The arguments of respool.
        limit: The seconds after which it is killed, which is a violation.
        kill_after: The seconds after which it is killed on purpose.
    """
    file = log_file(place, "-".join(words[:3]))
    begin = time.monotonic()
    out = file.with_suffix(".out")
    code: int | None
    with file.open("wb") as errors, out.open("wb") as output:
        process = subprocess.Popen(
            command(*words),
            cwd=place.folder,
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(kill_after or limit)
        except BaseException as error:
            process.kill()
            process.wait()
            code = None
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            if kill_after is None:
                timeline.violate(f"respool {' '.join(words)} did not end within {limit:.0f} s; see {file.name}")
    done = Done(words, code, _text(out), _text(file), time.monotonic() - begin)
    has_traceback(timeline, f"respool {' '.join(words)}", done.errors, file)
    return done


def command(*words: str) -> list[str]:
    """Return the command line of respool with these arguments."""
    return [sys.executable, "-m", "respool", *words]


def has_traceback(timeline: Timeline, name: str, text: str, file: Path) -> bool:
    """Return whether an output contains a Python traceback or reports a fault of respool, which is a violation."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith(_TRACEBACK)), None)
    if first is not None:
        last = next((line for line in lines[first + 1 :] if line and not line.startswith((" ", "\t"))), "")
        timeline.violate(f"{name} printed a traceback ({last[:200]}); see {file.name}")
    fault = next((line for line in lines if _FAULT in line), None)
    if fault is not None:
        timeline.violate(f"{name}: {fault[:300]}; see {file.name}")
    return first is not None or fault is not None


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")
