"""Unit tests need no JVM, and take no notice of one that other tests have started in the same process."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.storage import lease


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would hold every checkpoint that a test holds, also those of forked processes, which are killed.
    monkeypatch.setattr(lease, "_jvm", lambda: None)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The server's filesystem with the empty bucket `test-bucket`, to which the environment points."""
    s3fs = pytest.importorskip("s3fs")
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(lease, "_SETTLE", 0.0)
    files = s3fs.S3FileSystem(use_listings_cache=False)
    if files.exists("test-bucket"):
        files.rm("test-bucket", recursive=True)
    files.mkdir("test-bucket")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
