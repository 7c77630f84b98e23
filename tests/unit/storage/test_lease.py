"""A checkpoint is held by one process and its JVM; a lease in an object store is never held twice."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from respool import process
from respool.errors import CheckpointError
from respool.storage import lease
from respool.storage.lease import Lease
from respool.storage.remote import RemoteReader, RemoteWriter

PATIENCE = 60.0
LEASE = "_respool/lease.json"


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def take(checkpoint: str, patience: float = 0.0) -> Lease:
    held = lease.hold(checkpoint, patience)
    assert held is not None
    assert held.warning is None
    return held


@contextmanager
def python(code: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """Run Python code in another process, which has printed a line by the time; it is killed in the end."""
    line = [sys.executable, "-c", code, *words]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        try:
            yield other
        finally:
            other.kill()


# On a local disk

LOCKING = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process that has locked the checkpoint `tmp_path` as a JVM does."""
    (tmp_path / "_respool").mkdir()
    with python(LOCKING, str(tmp_path / "_respool" / "jvm.lock")) as other:
        (tmp_path / "_respool" / "jvm.lock").write_text("4711")
        yield other


def test_a_checkpoint_is_in_use_while_the_jvm_of_a_killed_run_lives(
    tmp_path: Path, locked: "subprocess.Popen[str]"
) -> None:
    assert lease.hold(str(tmp_path)) is None
    assert str(lease.holder(str(tmp_path))).startswith("the JVM (process 4711) of a run that was killed")
    with (tmp_path / "_respool" / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nothing of the attempt stays
    locked.kill()
    locked.wait()
    take(str(tmp_path)).close()


def test_whoever_has_patience_waits_for_that_jvm(tmp_path: Path, locked: "subprocess.Popen[str]") -> None:
    threading.Timer(0.5, locked.kill).start()
    take(str(tmp_path), PATIENCE).close()


def test_a_lock_file_that_was_deleted_while_it_was_opened_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock, left = tmp_path / "_respool" / "lock", fcntl.flock, [1]

    def delete_first(file: Any, how: int) -> None:
        if left and how & fcntl.LOCK_EX:  # another run that could not start removes its folder
            left.pop()
            path.unlink()
            path.parent.rmdir()
        lock(file, how)

    with monkeypatch.context() as racing:
        racing.setattr(fcntl, "flock", delete_first)
        held = take(str(tmp_path))
    assert path.read_text() == str(os.getpid())
    assert lease.hold(str(tmp_path)) is None
    held.close()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("/dev/null"), os.mkdir])
@pytest.mark.parametrize("name", ["lock", "jvm.lock"])
def test_what_is_no_file_in_the_place_of_a_lock_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    (tmp_path / "_respool").mkdir()
    make(tmp_path / "_respool" / name)
    with pytest.raises(CheckpointError, match="cannot be"):
        lease.hold(str(tmp_path))


# In an object store


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint in memory, with leases that are renewed all the time."""
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    monkeypatch.setattr(lease, "_RENEW", 0.01)
    monkeypatch.setattr(lease, "_RETRY", 0.01)
    return f"memory://{uuid.uuid4().hex}"


def note(where: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RemoteReader(where).read(LEASE))
    return content


def write(where: str, **changed: object) -> None:
    """Write a lease; without changes, that of a process elsewhere."""
    elsewhere = {
        "token": "x",
        "process": 7,
        "host": "elsewhere",
        "renewed": time.time(),
        "machine": "m",
        "started": "s",
    }
    RemoteWriter(where).replace(LEASE, json.dumps({**elsewhere, **changed}).encode())


def test_a_lease_that_another_process_took_is_lost_and_left_alone(where: str) -> None:
    held = take(where)
    reasons: list[str] = []
    held.on_lost(reasons.append)
    held.require()
    write(where)
    until(lambda: held.lost)
    assert reasons == [held.lost]
    assert "was taken over by process 7 on elsewhere" in reasons[0]
    with pytest.raises(CheckpointError, match="is lost"):
        held.require()
    held.on_lost(reasons.append)
    assert len(reasons) == 2  # whoever asks later is answered, too
    before = note(where)
    time.sleep(0.05)
    held.close()
    assert note(where) == before


def test_a_deleted_lease_is_lost_and_not_written_again(where: str) -> None:
    held = take(where)
    RemoteWriter(where).delete(LEASE)
    until(lambda: held.lost)
    held.close()
    assert lease.holder(where) is None


def test_a_lease_that_cannot_be_renewed_is_lost_before_it_runs_out(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SECONDS", 1.0)
    monkeypatch.setattr(lease, "_MARGIN", 0.5)
    held = take(where)

    def fail(self: RemoteWriter, path: str) -> bytes:
        raise CheckpointError("the store is down")

    with monkeypatch.context() as broken:
        broken.setattr(RemoteWriter, "read", fail)
        until(lambda: held.lost)
    assert "could not be renewed for" in str(held.lost)
    assert "the store is down" in str(held.lost)
    held.close()


def test_a_store_that_does_not_answer_is_noticed_too(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SECONDS", 1.0)
    monkeypatch.setattr(lease, "_MARGIN", 0.5)
    held, answer, read = take(where), threading.Event(), RemoteWriter.read

    def wait(self: RemoteWriter, path: str) -> bytes:
        answer.wait(PATIENCE)
        return read(self, path)

    with monkeypatch.context() as broken:
        broken.setattr(RemoteWriter, "read", wait)
        until(lambda: held.lost)
        assert "the store did not answer" in str(held.lost)
        answer.set()
    held.close()


def test_a_short_outage_of_the_store_does_no_harm(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, read = take(where), RemoteWriter.read
    failures: list[str] = []

    def fail(self: RemoteWriter, path: str) -> bytes:
        if len(failures) < 3:
            failures.append(path)
            raise CheckpointError("the store is down")
        return read(self, path)

    monkeypatch.setattr(RemoteWriter, "read", fail)
    until(lambda: len(failures) == 3)
    before = note(where)
    until(lambda: note(where) != before)
    assert held.lost is None
    held.close()


def test_the_age_of_a_lease_is_measured_by_the_clock_of_the_store(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(where, renewed=time.time() - 3600)  # its machine's clock is an hour late
    assert lease.hold(where) is None
    monkeypatch.setattr(lease, "_SECONDS", 0.0)
    take(where).close()


def test_a_lease_that_is_renewed_while_it_is_judged_is_left_alone(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(where, renewed=time.time() - 3600)

    def renewed(files: RemoteWriter, _: object) -> float:
        write(where)
        return 3600.0

    monkeypatch.setattr(lease, "_age", renewed)
    assert lease.hold(where) is None
    assert note(where)["token"] == "x"


CONTROL = json.dumps({"token": "x", "process": 7, "host": "a\x1b[2J", "renewed": 4e9}).encode()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"token": 1}', b"\xff", b"[" * 100_000, CONTROL])
def test_a_lease_that_is_not_readable_counts_for_nobody(where: str, content: bytes) -> None:
    RemoteWriter(where).replace(LEASE, content)
    assert lease.holder(where) is None
    take(where).close()


def here(pid: int) -> dict[str, Any]:
    return {"machine": process.machine(), "process": pid, "started": process.start_time(pid)}


def test_a_dead_holder_counts_only_on_its_own_machine_and_without_its_jvm(where: str) -> None:
    dead = {**here(os.getpid()), "started": "long ago"}
    write(where, **{**dead, "machine": "another"})
    assert lease.hold(where) is None
    with python("print('runs', flush=True); input()") as jvm:
        write(where, **dead, jvm=jvm.pid, jvm_started=process.start_time(jvm.pid))
        assert lease.hold(where) is None
        assert str(lease.holder(where)).startswith(f"the JVM (process {jvm.pid}) of a run that was killed")
        threading.Timer(0.5, jvm.kill).start()
        take(where, PATIENCE).close()
    write(where, **here(os.getpid()))
    assert lease.hold(where) is None


class Jvm:
    """A JVM, by the id of this process."""

    @property
    def pid(self) -> int:
        return os.getpid()  # asked each time: the tests of `make mutants` run in forks

    def lock(self, path: Path, attempts: int) -> Callable[[], object] | None:
        raise AssertionError(f"{path} is not on a local disk")


def test_a_jvm_that_starts_later_is_named_in_the_lease(where: str) -> None:
    held = take(where)
    held.extend_to(Jvm())
    content = note(where)
    assert (content["jvm"], content["jvm_started"]) == (os.getpid(), process.start_time(os.getpid()))
    held.close()


# On S3, with other processes

BUCKET = "test-leases"
HOLDING = """
import sys, time
from respool.storage import lease
lease._SETTLE, lease._RENEW = 0.0, 0.3
held = lease.hold(sys.argv[1])
print("held" if held and not held.warning else f"not held: {held and held.warning}", flush=True)
while held.lost is None:
    time.sleep(0.01)
print(held.lost, flush=True)
held.close()
print("closed", flush=True)
"""


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A checkpoint on an S3 server, to which the environment points."""
    s3fs = pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    files = s3fs.S3FileSystem(use_listings_cache=False)
    if not files.exists(BUCKET):  # all servers of a process have the same content
        files.mkdir(BUCKET)
    yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_suspended_holder_notices_that_it_lost_its_lease(on_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with python(HOLDING, on_s3) as other:
        assert lease.hold(on_s3) is None
        os.kill(other.pid, signal.SIGSTOP)
        monkeypatch.setattr(lease, "_SECONDS", 3.0)  # only while nobody renews it: a busy machine may be slow to
        deadline = time.monotonic() + PATIENCE
        held = None
        while held is None:
            assert time.monotonic() < deadline
            held = lease.hold(on_s3)
            time.sleep(0.1)
        monkeypatch.setattr(lease, "_SECONDS", 60.0)
        mine = note(on_s3)["token"]
        os.kill(other.pid, signal.SIGCONT)
        assert other.stdout is not None
        assert f"was taken over by process {os.getpid()} on " in other.stdout.readline()
        assert other.stdout.readline() == "closed\n"
    assert note(on_s3)["token"] == mine
    assert held.lost is None
    held.close()
    assert lease.holder(on_s3) is None


def test_a_killed_holder_on_this_machine_is_noticed_immediately(on_s3: str) -> None:
    with python(HOLDING, on_s3) as other:
        assert lease.holder(on_s3) is not None
        other.kill()
        other.wait()
        assert lease.holder(on_s3) is None
        take(on_s3).close()


def test_two_processes_never_create_the_same_lease(on_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has looked, and saw none: S3 itself refuses the second."""
    monkeypatch.setattr(RemoteWriter, "_is_file", lambda self, path: False)
    RemoteWriter(on_s3).create(LEASE, b"first")
    with pytest.raises(FileExistsError):
        RemoteWriter(on_s3).create(LEASE, b"second")
    assert RemoteReader(on_s3).read(LEASE) == b"first"
