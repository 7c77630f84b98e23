"""The health server: what it answers, and to whom."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from respool.errors import RespoolError, SettingsError, UsageError
from respool.running.health import parse_address, parse_limits, serving
from respool.running.status import Limits, Phase, RunStatus


@pytest.fixture
def status() -> RunStatus:
    return RunStatus()


@pytest.fixture
def address(status: RunStatus) -> Iterator[str]:
    with serving("127.0.0.1:0", status) as where:
        assert where is not None
        yield where


def ask(address: str, path: str, method: str = "GET") -> tuple[int, Any]:
    try:
        request = urllib.request.Request(f"http://{address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


def test_both_probes_answer_with_the_state(address: str, status: RunStatus) -> None:
    assert ask(address, "/livez")[0] == 200
    code, answer = ask(address, "/readyz")
    assert (code, answer["ok"], answer["reasons"]) == (503, False, ["the run is waiting for Kafka"])
    status.query_started("counts")
    status.enter(Phase.RUNNING)
    code, answer = ask(address, "/readyz?max_silence=5m&max_lag=10")
    assert (code, answer["ok"], answer["phase"]) == (200, True, "running")
    assert list(answer["pipelines"]) == ["counts"]
    assert ask(address, "/readyz?max_silence=0s")[0] == 503
    assert ask(address, "/readyz", "HEAD") == (200, None)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", 404),
        ("/readyz/more", 404),
        ("/readyz?max_lags=1", 400),
        ("/readyz?max_lag=-1", 400),
        ("/livez?max_silence=soon", 400),
        (f"/readyz?max_lag={'9' * 5000}", 400),
        ("/readyz?max_lag", 400),
    ],
)
def test_other_requests_are_refused_with_what_was_expected(address: str, path: str, code: int) -> None:
    answered, answer = ask(address, path)
    assert answered == code
    assert "expected" in answer["error"]


def test_nothing_can_be_changed(address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(f"http://{address}/livez", b"x"):
        pass
    with refused.value:
        assert refused.value.code == 501


def test_a_client_that_sends_nothing_does_not_keep_others_waiting(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))):
        assert ask(address, "/livez")[0] == 200


def test_it_listens_on_the_given_address_only_and_ends_with_the_run(status: RunStatus) -> None:
    before = threading.active_count()
    with serving("127.0.0.1:0", status) as address:
        assert address is not None
        port = int(address.rpartition(":")[2])
        with socket.socket() as other:
            assert other.connect_ex(("127.0.0.2", port)) != 0
    assert threading.active_count() == before
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_address_that_is_in_use_is_reported(address: str) -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on .*in use.*--health"), serving(address, RunStatus()):
        pass


def test_without_an_address_nothing_listens() -> None:
    with serving(None, RunStatus()) as address:
        assert address is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:8080", "::1", 8080), ("fd00::7:8080", "fd00::7", 8080)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["8080", ":8080", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:²", ""]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        parse_address(text)


def test_limits() -> None:
    assert parse_limits("") == Limits()
    assert parse_limits("max_silence=90s&max_lag=7") == Limits(90.0, 7)
    with pytest.raises(RespoolError, match="expected a number of records"):
        parse_limits("max_lag=many")
