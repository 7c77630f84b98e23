"""A checkpoint on a real S3 server: how many requests a command sends, and what it does when the store fails."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import measure_all
from respool.errors import CheckpointError, CheckpointNotFoundError, RespoolError, StoreError
from respool.operations.checkpoint import Checkpoint
from respool.operations.savepoints import Savepoints
from respool.settings import Settings
from respool.storage import lease
from respool.storage.remote import RemoteWriter
from support import checkpoints, object_store, small_checkpoint
from support.store_proxy import Request, StoreProxy

STOPPED: dict[str, Any] = {"sink": "console", "assume_stopped": True, "allow_data_loss": True}


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respool.storage.object_store._ATTEMPTS", 1)  # which the tests of errors would wait for


def upload(files: dict[str, bytes], store: str) -> None:
    """Write files with markers of their folders, as s3a does."""
    fs, place = object_store.filesystem(_address()), store.removeprefix("s3://")
    folders = {path.rpartition("/")[0] for path in files}
    fs.pipe({f"{place}/{path}": data for path, data in files.items()})
    for folder in folders - {""}:
        bucket, _, key = f"{place}/{folder}/".partition("/")
        fs.call_s3("put_object", Bucket=bucket, Key=key, Body=b"")


def tree(store: str, but: str = "/_respool/") -> dict[str, bytes]:
    """Return all files of a folder, without respool's own."""
    fs, place = object_store.filesystem(_address()), store.removeprefix("s3://")
    paths = [path for path in fs.find(place) if but not in path and not path.endswith("/")]
    return {path.removeprefix(f"{place}/"): fs.cat_file(path) for path in paths}


def _address() -> str:
    return os.environ["AWS_ENDPOINT_URL"]


def recorded(folder: Path) -> dict[str, bytes]:
    """Return the files of a recorded checkpoint of 14 batches; s3a writes no checksum files."""
    place = checkpoints.unpack(folder, "hdfs") if not (folder / "hdfs").exists() else folder / "hdfs"
    paths = [path for path in place.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}


def many(folder: Path, batches: int, partitions: int) -> dict[str, bytes]:
    """Return the files of a checkpoint with more partitions than a recorded one."""
    small_checkpoint.kafka(folder, batches)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    states = {path: data for path, data in files.items() if path.startswith("state/0/0/")}
    for partition in range(1, partitions):
        files |= {path.replace("state/0/0/", f"state/0/{partition}/"): data for path, data in states.items()}
    return files


@pytest.fixture
def checkpoint(store: str, tmp_path: Path) -> Checkpoint:
    """A checkpoint of 14 batches on the store."""
    upload(recorded(tmp_path), f"{store}/query")
    return Checkpoint(f"{store}/query", settings=Settings(home=tmp_path / "home", storage=store))


@contextmanager
def counted(proxy: StoreProxy) -> Iterator[StoreProxy]:
    proxy.forget()
    yield proxy


def test_a_checkpoint_is_listed_once_and_its_files_are_read_by_one_request_each(
    store: str, store_proxy: StoreProxy, tmp_path: Path
) -> None:
    files = many(tmp_path / "local", batches=50, partitions=20)
    upload(files, f"{store}/query")
    checkpoint = Checkpoint(f"{store}/query", settings=Settings(home=tmp_path / "home", storage=store))
    assert checkpoint.summary().next_batch == 50  # now the bucket is known
    with counted(store_proxy) as proxy:
        checkpoint.summary()
    whole = [request for request in proxy.requests if request == Request("LIST", f"{_key(store)}/query/")]
    assert len(files) > 1000
    assert len(whole) == 2  # one for each 1,000 keys
    reads = [request.key for request in proxy.requests if request.kind == "GET"]
    assert len(reads) == len(set(reads))
    assert proxy.kinds()["HEAD"] == 0


def _key(url: str) -> str:
    return url.removeprefix(f"s3://{object_store.BUCKET}/")


def test_files_are_copied_inside_the_store_and_many_at_a_time(
    checkpoint: Checkpoint, store: str, store_proxy: StoreProxy, tmp_path: Path
) -> None:
    savepoints = Savepoints(settings=checkpoint.settings)
    store_proxy.delay = 0.05
    with counted(store_proxy) as proxy:
        saved = savepoints.create(checkpoint, "ten", batch=12, sink="console")
    count = len(saved.manifest.files)
    assert proxy.kinds()["COPY"] == count
    assert proxy.at_once >= 8
    written = [request.key for request in proxy.requests if request.kind == "PUT" and "/_respool/" not in request.key]
    assert written == [f"{_key(saved.location)}/manifest.json"]  # no data goes through this machine twice
    copies = [number for number, request in enumerate(proxy.requests) if request.kind == "COPY"]
    manifest = proxy.requests.index(Request("PUT", written[0]))
    assert max(copies) < manifest  # a savepoint without all of its data has no manifest

    plan = checkpoint.plan_rewind(to_batch=11, **STOPPED)
    moves = len(plan.journal.moves)
    with counted(store_proxy) as proxy:
        checkpoint.apply(plan)
    assert proxy.kinds()["COPY"] == moves
    assert proxy.at_once >= 8
    assert proxy.kinds().total() <= 3 * moves + 35
    pending = proxy.requests.index(Request("PUT", f"{_key(checkpoint.location)}/_respool/pending.json"))
    assert pending < min(number for number, request in enumerate(proxy.requests) if request.kind == "COPY")

    with counted(store_proxy) as proxy:
        checkpoint.apply(checkpoint.plan_undo())
    assert proxy.kinds()["COPY"] == moves
    assert proxy.at_once >= 8
    assert tree(checkpoint.location) == recorded(tmp_path)


def test_a_slow_store_changes_nothing_but_the_time(
    checkpoint: Checkpoint, store_proxy: StoreProxy, tmp_path: Path
) -> None:
    before = tree(checkpoint.location)
    store_proxy.delay = 0.5
    checkpoint.rewind(to_batch=12, **STOPPED)
    store_proxy.delay = 0.0
    checkpoint.apply(checkpoint.plan_undo())
    assert tree(checkpoint.location) == before


def test_a_store_out_of_reach_is_reported_and_nothing_changes(checkpoint: Checkpoint, store_proxy: StoreProxy) -> None:
    before = tree(checkpoint.location)
    plan = checkpoint.plan_rewind(to_batch=12, **STOPPED)
    store_proxy.down()
    calls: dict[str, Callable[[], object]] = {
        "show": checkpoint.summary,
        "verify": checkpoint.verify,
        "plan": lambda: checkpoint.plan_rewind(to_batch=12, **STOPPED),
        "apply": lambda: checkpoint.apply(plan),
        "savepoint": lambda: Savepoints(settings=checkpoint.settings).create(checkpoint, "none", sink="console"),
    }
    try:
        for name, call in calls.items():
            with pytest.raises(StoreError, match=f"{store_proxy.address} does not answer") as caught:
                call()
            assert "endpoint" in str(caught.value), name
    finally:
        store_proxy.up()
    assert tree(checkpoint.location, but="//") == before  # not even a file of respool's own


@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.9])
def test_a_rewind_that_the_store_interrupts_is_finished_by_the_same_command(
    checkpoint: Checkpoint, store_proxy: StoreProxy, tmp_path: Path, share: float
) -> None:
    before = tree(checkpoint.location)
    plan = checkpoint.plan_rewind(to_batch=11, **STOPPED)
    with counted(store_proxy) as proxy:
        checkpoint.apply(plan)
        count = len(proxy.requests)
    checkpoint.apply(checkpoint.plan_undo())
    plan = checkpoint.plan_rewind(to_batch=11, **STOPPED)
    store_proxy.left = int(share * count)
    with pytest.raises(RespoolError):
        checkpoint.apply(plan)
    store_proxy.up()
    if checkpoint.pending() is None:  # the store went away before the first step
        assert tree(checkpoint.location) == before
    checkpoint.rewind(to_batch=11, **STOPPED)
    assert checkpoint.pending() is None
    assert checkpoint.summary().next_batch == 11
    checkpoint.apply(checkpoint.plan_undo())
    assert tree(checkpoint.location) == before


def test_a_half_uploaded_checkpoint_is_reported_and_not_changed(store: str, tmp_path: Path) -> None:
    """A copy of a checkpoint that was interrupted: the first half of its files, by name."""
    files = recorded(tmp_path)
    half = dict(sorted(files.items())[: len(files) * 3 // 4])  # commits and metadata, some of the offsets
    assert "metadata" in half
    upload(half, f"{store}/query")
    settings = Settings(home=tmp_path / "home", storage=store)
    checkpoint = Checkpoint(f"{store}/query", settings=settings)
    report = checkpoint.verify()
    assert not report.ok
    with pytest.raises(RespoolError):
        checkpoint.rewind(to_batch=11, **STOPPED)
    with pytest.raises(RespoolError):
        Savepoints(settings=settings).create(checkpoint, "half", sink="console")
    assert tree(f"{store}/query", but="/lease") == half
    assert not tree(f"{store}/savepoints")


def test_an_account_without_permission_to_write_reads_and_changes_nothing(
    checkpoint: Checkpoint, store_proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(checkpoint.location, but="//")
    object_store.configure(monkeypatch, store_proxy.address, object_store.READER)
    assert checkpoint.summary().next_batch == 14
    assert checkpoint.verify().ok
    plan = checkpoint.plan_rewind(to_batch=12, **STOPPED)
    savepoints = Savepoints(settings=checkpoint.settings)
    for call in (lambda: checkpoint.apply(plan), lambda: savepoints.create(checkpoint, "none", sink="console")):
        with pytest.raises(StoreError, match="lacks a permission") as caught:
            call()
        assert caught.value.is_permission
        assert "write and delete its objects" in str(caught.value)
    object_store.configure(monkeypatch, store_proxy.address)
    assert tree(checkpoint.location, but="//") == before


def test_a_url_with_a_typo_is_reported(checkpoint: Checkpoint, store: str, tmp_path: Path) -> None:
    settings = checkpoint.settings
    with pytest.raises(StoreError, match="the bucket bukcet does not exist"):
        Checkpoint(store.replace("bucket", "bukcet") + "/query", settings=settings).summary()
    with pytest.raises(CheckpointNotFoundError, match="missing or empty"):
        Checkpoint(f"{store}/qurey", settings=settings).summary()
    with pytest.raises(CheckpointError, match="expected '://'"):
        Checkpoint(f"{store}/query".replace("://", ":/"), settings=settings).summary()
    with pytest.raises(CheckpointNotFoundError):
        Checkpoint(f"{store}/qurey", settings=settings).rewind(to_batch=11, **STOPPED)
    fs = object_store.filesystem(_address())
    assert not fs.find(f"{store.removeprefix('s3://')}/qurey")
    assert not fs.exists("bukcet")


def test_an_expired_lease_is_taken_over_by_exactly_one(store: str) -> None:
    location = f"{store}/query"
    renewed = datetime.now(timezone.utc) - timedelta(hours=1)
    note = {"token": "t", "process": 1, "host": "elsewhere", "renewed": renewed.isoformat(), "machine": "another"}
    note |= {"started": "x", "jvm": None}
    _write_lease(location, note)
    assert lease.holder(location) is None
    writers = [RemoteWriter(location) for _ in range(6)]
    with ThreadPoolExecutor(len(writers)) as pool:
        taken = [held for held in pool.map(lease._RemoteLease.take, writers) if held is not None]
    try:
        assert len(taken) == 1
        assert lease.holder(location) is not None
        assert lease._RemoteLease.take(RemoteWriter(location)) is None  # a valid lease is respected
    finally:
        for held in taken:
            held.close()
    assert lease.holder(location) is None


def _write_lease(location: str, note: dict[str, Any]) -> None:
    object_store.filesystem(_address()).pipe_file(
        f"{location.removeprefix('s3://')}/_respool/lease.json", json.dumps(note).encode()
    )


def test_the_benchmark_of_the_store_runs_on_a_small_checkpoint() -> None:
    rows = {row["command"]: row for row in measure_all(batches=60, partitions=2, runs=1)}
    assert set(rows) == {"show", "savepoint create", "rewind", "undo"}
    assert all(row["requests"] >= row["least_requests"] for row in rows.values())
