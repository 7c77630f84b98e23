"""Which lines of the mutated modules each test executes, and how long it takes: measured in a run without a mutant."""

import hashlib
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from mutants.scope import FOLDER, ROOT


@dataclass
class Reach:
    """What a test executes.

    Attributes:
        seconds: How long the test takes.
        lines: The lines that it executes, by module.
    """

    seconds: float = 0.0
    lines: dict[str, set[int]] = field(default_factory=dict)


@contextmanager
def traced(files: dict[str, str]) -> Iterator[Reach]:
    """Record the lines that are executed in some files, in all threads.

    Args:
        files: The files by the name that their code objects have.
    """
    reach = Reach(lines={name: set() for name in files.values()})
    places = {path: reach.lines[name] for path, name in files.items()}

    def called(frame: FrameType, event: str, _: Any) -> Any:
        lines = places.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def line(inner: FrameType, _event: str, _arg: Any) -> Any:
            lines.add(inner.f_lineno)
            return line

        lines.add(frame.f_lineno)
        return line

    start = time.perf_counter()
    threading.settrace(called)
    sys.settrace(called)
    try:
        yield reach
    finally:
        sys.settrace(None)
        threading.settrace(None)
        reach.seconds = time.perf_counter() - start
        reach.lines = {name: lines for name, lines in reach.lines.items() if lines}


class Cache:
    """Earlier measurements by test file, as long as neither the file nor the code has changed.

    Attributes:
        reaches: What the tests of a file reach.
    """

    def __init__(self, files: set[str]) -> None:
        """Read what is still valid for some test files."""
        common = [
            *(ROOT / "src").rglob("*.py"),
            *(ROOT / "tests" / "support").rglob("*.py"),
            ROOT / "tests" / "conftest.py",
        ]
        self._code = _digest(common)
        self._digests = {file: _digest([Path(file)]) for file in files}
        self._place = FOLDER / "reach.pickle"
        self.reaches: dict[str, dict[str, Reach]] = {}
        if self._place.exists():
            code, digests, reaches = pickle.loads(self._place.read_bytes())
            if code == self._code:
                same = [file for file in files if digests.get(file) == self._digests[file]]
                self.reaches = {file: reaches[file] for file in same}

    def save(self) -> None:
        """Keep it for the next time."""
        kept = {file: self._digests[file] for file in self.reaches}
        self._place.write_bytes(pickle.dumps((self._code, kept, self.reaches)))


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()
