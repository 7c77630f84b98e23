"""A respool command that runs while the scenario goes on: its lines, as they come."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from respool.errors import RespoolError

# A demo is over before the JVM's slow, thorough compiler would pay off.
_QUICK_START = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


class Running:
    """A respool command in a process of its own."""

    def __init__(self, words: tuple[str, ...], home: Path, show: Callable[[str], None]) -> None:
        """Start the command.

        Args:
            words: What stands behind `respool` on the command line.
            home: The home that it works in.
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
                    raise RespoolError(f"{self} did not get there in {seconds:.0f} s.")
                self._changed.wait(0.5)

    def finish(self, seconds: float) -> int:
        """Wait for the end of the command and return its exit code."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    def stop(self, seconds: float = 60) -> int:
        """Press Ctrl-C, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.finish(seconds)

    def kill(self) -> None:
        """End the command at once, as a crash would."""
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
