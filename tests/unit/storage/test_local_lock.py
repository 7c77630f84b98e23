"""What makes a query count as running that respool did not start: real processes, and batches without a commit."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.storage.local import LocalReader
from respool.storage.local_lock import processes_in
from support.checkpoints import unpack

LATER = datetime.now(timezone.utc) + timedelta(days=30)
HOLD = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return unpack(tmp_path, "kafka")


@contextmanager
def holding(path: Path, mode: str) -> Iterator[int]:
    """Another process that has a file open."""
    command = [sys.executable, "-c", HOLD, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process.pid
        finally:
            process.communicate("")


def why(checkpoint: Path, *, stopped: bool = False, world: RewindContext | None = None) -> str:
    world = world or RewindContext(now=LATER, processes=processes_in(checkpoint))
    plan = plan_rewind(CheckpointSnapshot(LocalReader(checkpoint)), RewindRequest(ToBatch(3), stopped=stopped), world)
    return " | ".join(f"{refusal.why} {refusal.way_out}" for refusal in plan.refusals)


def test_a_batch_without_a_commit_may_be_running_whatever_its_age(checkpoint: Path) -> None:
    assert why(checkpoint) == ""
    newest = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(newest)).unlink()
    reasons = why(checkpoint)
    assert f"Batch {newest} is planned but not committed: the query may be running it" in reasons
    assert "as after a crash" in reasons
    assert "--stopped" in reasons
    assert why(checkpoint, stopped=True) == ""
    assert why(checkpoint, world=RewindContext(now=LATER, ours=True)) == ""  # the lock is the whole truth then


def test_a_first_batch_without_a_commit_may_be_running(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "kafka")
    for log in ("offsets", "commits"):
        for file in (folder / log).glob("[0-9]*"):
            if log == "commits" or file.name != "0":
                file.unlink()
    plan = plan_rewind(CheckpointSnapshot(LocalReader(folder)), RewindRequest(ToBatch(0)), RewindContext(now=LATER))
    assert "Batch 0 is planned but not committed" in plan.refusals[0].why


def test_a_process_that_writes_to_the_checkpoint_stops_a_rewind_even_with_stopped(checkpoint: Path) -> None:
    file = checkpoint / "state" / "0" / "0" / ".15.delta.tmp"
    with holding(file, "w") as pid:
        for stopped in (False, True):
            reasons = why(checkpoint, stopped=stopped)
            assert f"process {pid} (" in reasons
            assert "15.delta.tmp open for writing" in reasons
            assert "Stop that process first" in reasons
    file.unlink()
    assert why(checkpoint) == ""


def test_a_process_that_reads_the_checkpoint_is_named_and_outweighed_by_stopped(checkpoint: Path) -> None:
    with holding(checkpoint / "offsets" / "3", "r") as pid:
        reasons = why(checkpoint)
        assert f"process {pid} (" in reasons
        assert "offsets/3 open." in reasons
        assert "--stopped" in reasons
        world = RewindContext(now=LATER, processes=processes_in(checkpoint))
        plan = plan_rewind(CheckpointSnapshot(LocalReader(checkpoint)), RewindRequest(ToBatch(3), stopped=True), world)
        assert not plan.refusals
        assert any(f"process {pid} (" in note for note in plan.notes)


def test_other_folders_respools_own_files_and_this_process_do_not_count(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "_respool").mkdir()
    sibling = tmp_path / f"{checkpoint.name}-2"
    sibling.mkdir()
    with (
        (checkpoint / "offsets" / "3").open(),
        holding(checkpoint / "_respool" / "lock", "w"),
        holding(sibling / "x", "w"),
    ):
        assert processes_in(checkpoint) == ()


def test_a_checkpoint_behind_a_link_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(checkpoint)
    with holding(checkpoint / "offsets" / "3", "r") as pid:
        assert [process.pid for process in processes_in(link)] == [pid]


def test_the_command_names_the_process(respool: str, checkpoint: Path, tmp_path: Path) -> None:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    with holding(checkpoint / "offsets" / "3", "a") as pid:
        command = [respool, "checkpoint", "rewind", str(checkpoint), "--to-batch", "3", "--dry-run", "--stopped"]
        done = run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"process {pid} (" in done.stdout
