"""What is reported of an object store that cannot be used: one message with the next step; nothing is changed."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from respool.errors import StoreError
from respool.storage import lease
from respool.storage.open import new_writer, open_reader
from support import s3_server

KEYS = "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key and secret_key in the [s3] table"
REGION = "Name its region with AWS_REGION, or with region in the [s3] table"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server with buckets that refuse every request."""
    with s3_server.serving() as address:
        yield address


@pytest.fixture(autouse=True)
def environ(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    s3fs = pytest.importorskip("s3fs")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("bucket", "problem", "remedy"),
    [
        ("no-such-bucket", "the bucket no-such-bucket does not exist", "Correct the URL, or create the bucket."),
        ("refuses-InvalidAccessKeyId", "the store does not know the access key", KEYS),
        ("refuses-SignatureDoesNotMatch", "the secret key is wrong", KEYS),
        ("refuses-ExpiredToken", "the session token has expired", "Renew AWS_SESSION_TOKEN and its keys."),
        ("refuses-AccessDenied", "this account lacks a permission", "Give it permission to list the bucket"),
        ("refuses-PermanentRedirect", "is in another region", REGION),
        ("refuses-AuthorizationHeaderMalformed", "is in another region", REGION),
    ],
)
def test_a_store_that_refuses(bucket: str, problem: str, remedy: str) -> None:
    url = f"s3a://{bucket}/checkpoint"
    for use in (lambda: open_reader(url).walk(), lambda: lease.hold(url), lambda: new_writer(url).replace("a", b"")):
        with pytest.raises(StoreError) as caught:
            use()
        message = str(caught.value)
        assert re.match(rf"s3://{bucket}/\S* cannot be used: ", message)
        assert problem in message
        assert remedy in message


def test_a_bucket_that_can_only_be_read() -> None:
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem(use_listings_cache=False).mkdir("readonly")
    assert new_writer("s3://readonly/x").names("") == []
    with pytest.raises(StoreError, match="this account lacks a permission"):
        lease.hold("s3://readonly/x")


def command(respool: str, folder: Path, *words: str, environ: Mapping[str, str]) -> str:
    """Run a command that must fail within 40 seconds; return its message."""
    variables = {name: value for name, value in {**os.environ, **environ}.items() if value}
    start = time.monotonic()
    done = subprocess.run([respool, *words], cwd=folder, env=variables, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 40
    return " ".join(done.stderr.split())


def silent_server() -> socket.socket:
    """Return a server that accepts connections and never answers."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(50)
    return server


COMMANDS = (
    ("checkpoint", "show", "s3://bucket/checkpoint"),
    ("savepoint", "list", "--savepoints", "s3://bucket/savepoints"),
    ("archive", "show", "--table", "s3a://bucket/table"),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_store_that_does_not_answer_is_reported_soon(respool: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    with silent_server() as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        message = command(respool, tmp_path, *words, environ={"AWS_ENDPOINT_URL": address})
    assert f"{address} does not answer" in message
    assert "Check the network and the endpoint: AWS_ENDPOINT_URL" in message


def test_a_store_that_is_not_there(respool: str, tmp_path: Path) -> None:
    with silent_server() as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    message = command(respool, tmp_path, *COMMANDS[0], environ={"AWS_ENDPOINT_URL": address})
    assert f"{address} does not answer" in message


def test_without_credentials_and_with_an_unknown_profile(respool: str, tmp_path: Path) -> None:
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    message = command(respool, tmp_path, *COMMANDS[0], environ=none)
    assert "there are no credentials for S3. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message
    message = command(respool, tmp_path, *COMMANDS[0], environ={**none, "AWS_PROFILE": "nobody"})
    assert "the profile does not exist. Correct AWS_PROFILE" in message


@pytest.mark.parametrize("url", ["s3//bucket/checkpoint", "s3:/bucket/checkpoint", "s3://"])
def test_a_typo_in_a_url_makes_no_local_folder(respool: str, tmp_path: Path, url: str) -> None:
    for words in (
        ("checkpoint", "show", url),
        ("savepoint", "list", "--savepoints", url),
        ("archive", "show", "--table", url),
        ("run", "visits-archive", "--checkpoint", url, "--bootstrap-servers", "127.0.0.1:1"),
    ):
        message = command(respool, tmp_path, *words, environ={})
        assert "Write it as s3://bucket/checkpoint" in message or "Write the URL as s3://BUCKET/FOLDER" in message
    assert list(tmp_path.iterdir()) == []
