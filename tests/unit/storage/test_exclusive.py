"""Of two processes that begin the same change on an object store at the same moment, exactly one succeeds."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from respool.cli.app import app
from respool.errors import CheckpointError
from respool.storage import lease, remote
from respool.storage.open import open_writer
from respool.storage.remote import RemoteReader, RemoteWriter
from support import s3_server
from support.checkpoints import unpack

ROUNDS = 50
FILES = {
    "fence": "offsets/5",
    "journal": "_respool/pending.json",
    "manifest": "one/manifest.json",
    "lease": "_respool/lease.json",
    "takeover": "_respool/lease.json",
}
NOTE = "Two simultaneous changes cannot be excluded"
LACKS = "the store of this checkpoint does not support conditional writes"


def started(module: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended"
    return line.strip()


def send(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An S3 server in its own process, to which the environment points, with the buckets of `s3_server`."""
    s3fs = pytest.importorskip("s3fs")
    tests = Path(__file__).parents[2]
    with ExitStack() as clean_up, pytest.MonkeyPatch.context() as environ:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environ.delenv(name)
        environ.setenv("PYTHONPATH", f"{tests.parent / 'src'}:{tests}")
        environ.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        process = clean_up.enter_context(started("support.s3_server"))
        clean_up.callback(process.kill)
        environ.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line_of(process)}")
        environ.setenv("AWS_ACCESS_KEY_ID", "test")
        environ.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environ.setenv("AWS_REGION", "us-east-1")
        environ.setenv("AWS_CONFIG_FILE", os.devnull)
        environ.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        environ.setenv("AWS_EC2_METADATA_DISABLED", "true")
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem(use_listings_cache=False)
        for bucket in s3_server.BUCKETS:
            files.mkdir(bucket)
        yield
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def contenders(server: None) -> Iterator[list["subprocess.Popen[str]"]]:
    with ExitStack() as clean_up:
        processes = [clean_up.enter_context(started("support.contender")) for _ in range(2)]
        for process in processes:
            clean_up.callback(process.kill)
        for process in processes:
            assert line_of(process) == "ready"
        yield processes


@pytest.mark.parametrize("kind", FILES)
def test_exactly_one_of_two_processes_wins(contenders: "list[subprocess.Popen[str]]", kind: str) -> None:
    for number in range(ROUNDS):
        where = f"s3://plain/{kind}/{number}"
        if kind == "takeover":
            RemoteWriter(where).replace(FILES[kind], b"a lease that counts for nobody")
        for process in contenders:
            # In every other round both processes write even if one sees the file of the other.
            send(process, f"{kind} {where} {'blind' if number % 2 else 'looks'}")
        answers = [line_of(process) for process in contenders]
        winners = [process.pid for process, answer in zip(contenders, answers, strict=True) if answer == "won"]
        assert len(winners) == 1, answers
        written = RemoteReader(where).read(FILES[kind]).decode()
        assert (f"process-{winners[0]}" in written) or json.loads(written)["process"] == winners[0]


# Lost answers, conflicts, and what stores lack


@pytest.mark.parametrize("bucket", ["loses", "conflicts", "plain", "memory:"])
def test_a_file_is_created_once(server: None, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RemoteWriter("memory://created" if bucket == "memory:" else f"s3://{bucket}/created")
    assert files.exclusive()
    monkeypatch.setattr(RemoteWriter, "_is_file", lambda self, path: False)  # each has looked, and saw none
    files.create("a", b"mine")
    with pytest.raises(FileExistsError):
        files.create("a", b"theirs")
    assert files.read("a") == b"mine"


@pytest.mark.parametrize("bucket", ["loses", "conflicts", "plain", "ignores", "memory:"])
def test_a_file_is_replaced_only_while_it_is_unchanged(server: None, bucket: str) -> None:
    files = RemoteWriter("memory://replaced" if bucket == "memory:" else f"s3://{bucket}/replaced")
    files.replace("a", b"first")
    before = files.versioned("a")
    assert (before.version is None) == (bucket == "ignores")
    assert files.replace_version("a", before, b"second")
    assert not files.replace_version("a", before, b"third")
    assert files.read("a") == b"second"
    gone = files.versioned("a")
    files.delete("a")
    assert not files.replace_version("a", gone, b"fourth")
    assert files.names("") == []


def test_a_file_of_many_parts_is_created_once(server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RemoteWriter("s3://plain/large")
    large = bytes(10 * 2**20)
    assert files.exclusive()
    monkeypatch.setattr(files._fs, "pipe_file", partial(files._fs.pipe_file, chunksize=5 * 2**20), raising=False)
    monkeypatch.setattr(RemoteWriter, "_is_file", lambda self, path: False)
    files.create("a", large)
    with pytest.raises(FileExistsError):
        files.create("a", large[:-1] + b"?")
    assert files.read("a") == large


@pytest.mark.parametrize("bucket", ["ignores", "rejects"])
def test_without_conditions_the_last_writer_has_the_file(
    server: None, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, both = f"s3://{bucket}/created", threading.Barrier(2)
    monkeypatch.setattr(remote, "_SETTLE", 1.0)
    assert not RemoteWriter(where).exclusive()
    winners: list[bytes] = []

    def create(mine: bytes) -> None:
        files = RemoteWriter(where)
        files.exclusive()
        both.wait()
        try:
            files.create("a", mine)
            winners.append(mine)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=create, args=(mine,)) for mine in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert winners == [RemoteReader(where).read("a")]
    with pytest.raises(FileExistsError):
        RemoteWriter(where).create("a", b"three")


@pytest.mark.parametrize("bucket", ["ignores", "rejects"])
def test_a_lease_without_conditions_is_held_once(server: None, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_SETTLE", 0.0)
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    where = f"s3://{bucket}/held"
    with lease.hold(where) or pytest.fail("it is free"):
        assert lease.hold(where) is None
    RemoteWriter(where).replace(FILES["lease"], b"a lease that counts for nobody")
    with lease.hold(where) or pytest.fail("it is free"):
        assert lease.hold(where) is None
    assert RemoteReader(where).names("_respool") == []


def test_what_else_fails_is_reported_and_nothing_is_overwritten(server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every error means that the store has no conditions."""
    files = RemoteWriter("s3://plain/failing")
    assert files.exclusive()
    files.replace("a", b"theirs")

    def fail(*_: object, **__: object) -> None:
        raise OSError("the connection is lost")

    with monkeypatch.context() as broken:
        broken.setattr(RemoteWriter, "_is_file", lambda self, path: False)
        broken.setattr(files._fs, "pipe_file", fail, raising=False)
        with pytest.raises(CheckpointError, match="the connection is lost"):
            files.create("a", b"mine")
    assert files.read("a") == b"theirs"


def test_a_local_folder_and_memory_need_no_conditions(tmp_path: Path) -> None:
    assert open_writer(str(tmp_path)).exclusive()
    assert RemoteWriter("memory://anywhere").exclusive()


def test_probes_of_killed_processes_are_temporary_files(server: None) -> None:
    files = RemoteWriter("s3://plain/probed")
    probe = "_respool/probe-12345678-1234-1234-1234-123456789abc"
    files.replace(probe, b"?")
    files.replace("_respool/run.json", b"{}")
    assert files.temporary("_respool") == [probe]


# What a plan says


def called(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def uploaded(bucket: str, tmp_path: Path) -> str:
    """Put a checkpoint of 14 batches, without its state, into a bucket, and return its URL."""
    where, folder = f"s3://{bucket}/checkpoint", unpack(tmp_path, "rocksdb")
    files = RemoteWriter(where)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).parts[0] != "state" and path.suffix != ".crc":
            files.replace(str(path.relative_to(folder)), path.read_bytes())
    return where


@pytest.mark.parametrize("bucket", ["plain", "ignores", "rejects"])
def test_every_plan_says_when_a_store_lacks_conditional_writes(
    server: None, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SETTLE", 0.0)
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    where, fork = uploaded(bucket, tmp_path), f"s3://{bucket}/fork"
    home = ("--home", str(tmp_path / "home"))
    flags = ("--stopped", "--allow-data-loss", *home)
    called("savepoint", "create", where, "one", *home)
    called("savepoint", "fork", "one", fork, "--allow-data-loss", *home)
    before = sorted(RemoteReader(where).below(""))
    plans = [
        called("checkpoint", "rewind", where, "--to-batch", "13", "--dry-run", *flags),
        called("savepoint", "restore", "one", where, "--dry-run", *flags),
        called("promote", fork, where, "--dry-run", *flags),
        called("savepoint", "fork", "one", f"{fork}-2", "--dry-run", "--allow-data-loss", *home),
    ]
    assert sorted(RemoteReader(where).below("")) == before
    for plan in plans:
        notes = [note for note in plan["notes"] if NOTE in note]
        assert len(notes) == (bucket != "plain")
        assert all(LACKS in note for note in notes)
    words = ["checkpoint", "rewind", where, "--to-batch", "13", "--yes", *flags]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert (NOTE in " ".join(shown.output.split())) == (bucket != "plain")
    assert called("checkpoint", "show", where, *home)["next_batch"] == 13


def test_an_account_that_may_only_read_gets_a_plan(
    server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = uploaded("plain", tmp_path)

    def denied(*_: object) -> None:
        raise CheckpointError("permission denied")

    monkeypatch.setattr(RemoteWriter, "_conditions", denied)
    words = ("--stopped", "--allow-data-loss", "--dry-run", "--home", str(tmp_path / "home"))
    plan = called("checkpoint", "rewind", where, "--to-batch", "13", *words)
    assert any("could not be determined" in note for note in plan["notes"])
    with pytest.raises(CheckpointError, match="permission denied"):
        RemoteWriter("s3://readonly/x").create("a", b"mine")
