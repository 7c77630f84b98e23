"""A small process that runs respool commands and kills them before a given change on disk.

The commands run in forks of this process, so that each starts within milliseconds. The process of the tests cannot fork
itself: after tests with Spark, it has threads and maps more memory than the machine may promise a second time.

Run as a program, it reads a JSON line for each command, and answers each with a line:
`{"at": 3, "words": ["savepoint", "create", …]}` → `{"changes": 17}`, `{"killed": true}` or `{"failed": "…"}`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGES = ("replace", "link", "rename", "unlink", "rmdir", "mkdir", "fsync")


class KillServer:
    """The process, and what it is asked."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, at: int | None, *words: str) -> int | None:
        """Run a command, and return how many changes it made on disk; None when it was killed.

        Args:
            at: The change before which it is killed; None to let it end.
            words: The command.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"at": at, "words": words}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return None if "killed" in answer else int(answer["changes"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)


def _watch_changes(at: int | None) -> list[str]:
    """Return a list that grows with every change that this process makes; before change `at`, the process is killed."""
    changes: list[str] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(changes) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            changes.append(name)
            return function(*args, **kwargs)

        return call

    for name in _CHANGES:
        setattr(os, name, watched(name, getattr(os, name)))
    return changes


def _run_in_fork(at: int | None, words: list[str]) -> dict[str, Any]:
    from typer.testing import CliRunner

    from respool.cli.app import app

    result_pipe, fork_pipe = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            changes = _watch_changes(at)
            result = CliRunner().invoke(app, words, catch_exceptions=False)
            answer = {"changes": len(changes)} if result.exit_code == 0 else {"failed": result.output}
        except BaseException as error:
            answer = {"failed": repr(error)}
        os.write(fork_pipe, json.dumps(answer).encode())
        os._exit(0)
    os.close(fork_pipe)
    with os.fdopen(result_pipe) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        by_kill = os.WTERMSIG(status) == signal.SIGKILL
        return {"killed": True} if by_kill else {"failed": f"ended by signal {os.WTERMSIG(status)}"}
    return dict(json.loads(text))


def main() -> None:
    """Answer each line of standard input."""
    # A killed process loses nothing that it has written, as a machine without power does; waiting for the disk is slow.
    os.fsync = lambda fd: None
    os.sync = lambda: None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a command prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(_run_in_fork(request["at"], request["words"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
