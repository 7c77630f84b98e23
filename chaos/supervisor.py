"""`respool run` processes with their pipelines, restarted whenever they end, as by a service manager."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from chaos import processes
from chaos.commands import command, has_traceback, log_file
from chaos.place import Place
from chaos.timeline import Timeline

STOP_SECONDS = 90.0  # for a stop after the current batch
AFTERMATH_SECONDS = 120.0  # after a fault, within which the end of the process is attributed to it
STALL_SECONDS = 240.0  # without a committed batch, although everything that a pipeline needs is available
_FREQUENT = 8  # failed starts in a row
_SIGNALS = {"term": signal.SIGTERM, "int": signal.SIGINT, "kill": signal.SIGKILL}


@dataclass
class Group:
    """A `respool run` process and its pipelines.

    Attributes:
        name: Its name.
        pipelines: Its pipelines.
        place: The folder of the run.
        timeline: Records starts and ends.
        starts: How many times it was started.
        unforced: How many times it ended without a fault aimed at it.
    """

    name: str
    pipelines: tuple[str, ...]
    place: Place
    timeline: Timeline
    starts: int = 0
    unforced: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _log: IO[bytes] | None = None
    _file: Path | None = None
    _aimed_at: float = float("-inf")  # when a fault was aimed at it
    _not_before: float = 0.0
    _failures: int = 0
    _commits: dict[str, int] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)  # the newest commits when it was started
    _progress: dict[str, float] = field(default_factory=dict)
    _owner: threading.RLock = field(default_factory=threading.RLock)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the supervision away from the process for the length of a `with` block."""
        with self._owner:
            yield

    def start(self, *options: str) -> None:
        """Start the process."""
        self.starts += 1
        self._file = log_file(self.place, f"run-{self.name}")
        self._log = self._file.open("wb")
        self._progress = dict.fromkeys(self.pipelines, time.monotonic())
        self._before = {pipeline: newest_commit(self.place.home, pipeline) for pipeline in self.pipelines}
        self._process = subprocess.Popen(
            command("run", *self.pipelines, *(options or ("--trigger", "1s"))),
            cwd=self.place.folder,
            env=self.place.environment(self.name),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int | None:
        """The id of the process while it runs, otherwise None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_settled(self) -> bool:
        """Whether every pipeline has committed a batch since the process was started."""
        newest = {pipeline: newest_commit(self.place.home, pipeline) for pipeline in self.pipelines}
        return self.pid is not None and all(
            newest[pipeline] > self._before.get(pipeline, -1) for pipeline in self.pipelines
        )

    def members(self) -> list[processes.Process]:
        """Return all processes of the group: `respool run`, its JVM, its workers."""
        return processes.find(self.place.marker, self.name)

    def expect_end(self) -> None:
        """Note that a fault is aimed at the process."""
        self._aimed_at = time.monotonic()

    def signal(self, number: signal.Signals, whole_group: bool = False) -> bool:
        """Send a signal to the process; return False if it is not running."""
        if self.pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(self.pid, number)
        return True

    def stop(self, how: str) -> None:
        """Stop the process and wait until all its processes have ended, as an operator would before an operation."""
        self.expect_end()
        self.signal(_SIGNALS[how])
        self.wait_for_end(how)
        left = processes.wait_until_gone(self.place.marker, self.name, 60)
        if left:
            names = ", ".join(f"{process.role} {process.pid}" for process in left)
            self.timeline.violate(f"60 s after the end of run {self.name}, these processes are still running: {names}")
            for process in left:
                processes.send(process.pid, signal.SIGKILL)
            processes.wait_until_gone(self.place.marker, self.name, 10)

    def wait_for_end(self, how: str = "") -> int | None:
        """Wait for the end of a process after a stop signal, and return its exit code; a hang is a violation."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.timeline.violate(
                f"run {self.name} did not end within {STOP_SECONDS:.0f} s of a stop ({how}); see {self._name}"
            )
            for process in self.members():
                processes.send(process.pid, signal.SIGKILL)
            code = self._process.wait(30)
        self._ended(code)
        return code

    def finish(self, seconds: float) -> bool:
        """Wait for the end of a process that stops on its own, and return whether it succeeded."""
        assert self._process is not None
        try:
            code: int | None = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            for process in self.members():
                processes.send(process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._ended(code)
        return code == 0

    def supervise(self, calm: bool) -> None:
        """Restart the process if it has ended; report a pipeline that makes no progress.

        Args:
            calm: Everything that the pipelines need is available, so a lack of progress is a violation.
        """
        if not self._owner.acquire(blocking=False):
            return
        try:
            if self._process is not None and self._process.poll() is not None:
                self._ended(self._process.returncode)
            if self._process is not None:
                self._watch(calm)
            elif time.monotonic() >= self._not_before:
                self.start()
        finally:
            self._owner.release()

    def _watch(self, calm: bool) -> None:
        now = time.monotonic()
        for pipeline in self.pipelines:
            newest = newest_commit(self.place.home, pipeline)
            if newest != self._commits.get(pipeline) or not calm:
                self._commits[pipeline] = newest
                self._progress[pipeline] = now
                self._failures = 0
        stalled = [pipeline for pipeline, since in self._progress.items() if now - since > STALL_SECONDS]
        if stalled:
            self.timeline.violate(
                f"{', '.join(stalled)} in run {self.name} committed no batch for {STALL_SECONDS:.0f} s; "
                f"the process is killed; see {self._name}"
            )
            self.expect_end()
            for process in self.members():
                processes.send(process.pid, signal.SIGKILL)

    def _ended(self, code: int | None) -> None:
        self._process = None
        assert self._log is not None
        assert self._file is not None
        self._log.close()
        text = self._file.read_bytes().decode(errors="replace")
        has_traceback(self.timeline, f"run {self.name}", text, self._file)
        lines = [line for line in text.splitlines() if line.startswith("error:")] or text.splitlines()[-1:] or [""]
        aimed_at = time.monotonic() - self._aimed_at < AFTERMATH_SECONDS
        unforced = not aimed_at and code != 0
        self.unforced += unforced
        self._failures = self._failures + 1 if unforced else 0
        self._not_before = time.monotonic() + min(self._failures, 10)
        self.timeline.add(
            "ended",
            f"run {self.name}",
            f"exit code {code}: {lines[-1][:200]}" if code or not aimed_at else "",
            outcome="on its own" if unforced else "as expected",
        )
        if self._failures == _FREQUENT:
            self.timeline.violate(
                f"run {self.name} failed {_FREQUENT} times in a row: {lines[-1][:200]}; see {self._name}"
            )

    @property
    def _name(self) -> str:
        return self._file.name if self._file else ""


def newest_commit(home: Path, pipeline: str) -> int:
    """Return the newest committed batch of a pipeline; -1 if there is none."""
    try:
        names = os.listdir(home / "checkpoints" / pipeline / "commits")
    except OSError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def wait_for_batches(groups: dict[str, Group], seconds: float = 300) -> None:
    """Return when every pipeline has committed a batch; raise TimeoutError if that takes too long."""
    deadline = time.monotonic() + seconds
    pipelines = [(group.place.home, pipeline) for group in groups.values() for pipeline in group.pipelines]
    while any(newest_commit(home, pipeline) < 0 for home, pipeline in pipelines):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not every pipeline committed a batch within {seconds:.0f} s")
        time.sleep(0.5)
