"""An interrupted demo leaves no process behind."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.processes import processes_of


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes")
@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(
    respool: str, tmp_path: Path, interruption: signal.Signals
) -> None:
    demo = subprocess.Popen(
        [respool, "demo", "windows", "--home", str(tmp_path / "home")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    with demo.stdout as lines:
        assert any("batch 0" in line for line in lines)
        assert len(processes_of(tmp_path)) >= 3  # the demo, the pipeline, its JVM, the broker
        # Ctrl-C reaches the whole process group of a terminal; SIGTERM reaches a single process.
        (os.killpg if interruption == signal.SIGINT else os.kill)(demo.pid, interruption)
        rest = lines.read()
    assert demo.wait(60) == (130 if interruption == signal.SIGINT else 143), rest
    assert processes_of(tmp_path) == []
