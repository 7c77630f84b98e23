"""A small HTTP server that reports the state of a run: `/livez` and `/readyz`, for Kubernetes and other supervisors.

Both respond with the same JSON, with status 200 or 503. It binds to the given address only, has no other paths, and
changes nothing.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from respool.errors import RespoolError, SettingsError, UsageError
from respool.running.status import Limits, RunStatus
from respool.times import parse_duration

_REQUEST_TIMEOUT = 5.0  # seconds that a client has to send its request


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, in which an IPv6 address may stand in brackets.

    Raises:
        UsageError: It is not an address, or names no host: a service listens where its user says.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--health {text} is not an address; expected HOST:PORT, such as 127.0.0.1:8080")
    return host, int(port)


@contextmanager
def serving(address: str | None, status: RunStatus) -> Iterator[str | None]:
    """Serve the status of a run for the length of a `with` block, and yield the address; nothing without an address.

    Args:
        address: `HOST:PORT`; with port 0, the system chooses a free port.
        status: What is reported.

    Raises:
        UsageError: It is not an address.
        SettingsError: The address cannot be used.
    """
    if address is None:
        yield None
        return
    host, port = parse_address(address)
    try:
        server = _server(host, port, status)
    except OSError as error:
        raise SettingsError(
            f"The health server cannot listen on {address}: {error.strerror or error}. Name an address of this "
            "machine and a free port with --health."
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="health", daemon=True)
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"{shown}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _server(host: str, port: int, status: RunStatus) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True
        block_on_close = False

        def server_bind(self) -> None:
            """Bind without the name of the host, which DNS may take seconds to answer."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = host, self.server_address[1]

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore a client that has gone."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT
        server_version = "respool"
        sys_version = ""
        _probes: ClassVar[dict[str, Callable[[Limits], list[str]]]] = {
            "/livez": status.not_live,
            "/readyz": status.not_ready,
        }

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            probe = self._probes.get(url.path)
            if probe is None:
                self._answer(404, {"error": f"Unknown path; expected {' or '.join(self._probes)}."})
                return
            try:
                reasons = probe(parse_limits(url.query))
            except RespoolError as error:
                self._answer(400, {"error": str(error)})
                return
            self._answer(503 if reasons else 200, {"ok": not reasons, "reasons": reasons, **status.to_json()})

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

        def _answer(self, code: int, body: dict[str, object]) -> None:
            data = json.dumps(body).encode() + b"\n"
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(OSError):
                    self.wfile.write(data)

    return Server((host, port), Handler)


def parse_limits(query: str) -> Limits:
    """Return the limits that a probe names: `max_silence=10m&max_lag=100000`.

    Raises:
        RespoolError: It names others, or their values cannot be read.
    """
    silence: float | None = None
    lag: int | None = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "max_silence":
            silence = parse_duration(value).total_seconds()
        elif name == "max_lag":
            if not (value.isascii() and value.isdigit() and len(value) < 19):
                raise UsageError(f"max_lag is {value!r}; expected a number of records")
            lag = int(value)
        else:
            raise UsageError(f"unknown parameter {name!r}; expected max_silence or max_lag")
    return Limits(silence, lag)
