"""A schema registry on loopback that speaks Confluent's REST protocol, as far as its client reads schemas."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

_JSON = "application/vnd.schemaregistry.v1+json"


@dataclass
class Registry:
    """The registry's content.

    Attributes:
        url: Its address.
        asked: The paths of all requests.
        status: The HTTP status of every answer, in place of the answer; None to answer.
        user: The user and the password that it asks for, as USER:PASSWORD; None for nothing.
    """

    url: str
    asked: list[str] = field(default_factory=list)
    status: int | None = None
    user: str | None = None
    _schemas: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        serialized: bytes | None = None,
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Add a version of a subject, and return the id of its schema."""
        entry: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # as the real registry: the type is left out for Avro
            entry["schemaType"] = kind
        if references:
            entry["references"] = references
        self._schemas.append((subject, entry, base64.b64encode(serialized).decode() if serialized else None))
        return len(self._schemas)

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        if (by_id := re.fullmatch(r"/schemas/ids/(\d+)", path)) is not None:
            number = int(by_id[1])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            _, entry, serialized = self._schemas[number - 1]
            if query.get("format") == ["serialized"] and serialized is not None:
                entry = {**entry, "schema": serialized}
            return 200, entry
        if (by_subject := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path)) is not None:
            subject, version = by_subject.groups()
            numbers = [number for number, (name, _, _) in enumerate(self._schemas, start=1) if name == subject]
            place = len(numbers) if version in ("latest", "-1") else int(version)
            if not numbers:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            if not 0 < place <= len(numbers):
                return 404, {"error_code": 40402, "message": f"Version {version} not found."}
            number = numbers[place - 1]
            return 200, {"subject": subject, "version": place, "id": number, **self._schemas[number - 1][1]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def running(port: int = 0) -> Iterator[Registry]:
    """Serve a registry for the length of a `with` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlparse(self.path)
            registry.asked.append(self.path)
            if registry.status is not None:
                status, body = registry.status, {"error_code": registry.status * 100, "message": "as the test asks"}
            elif registry.user is not None and self.headers.get("Authorization") != _basic(registry.user):
                status, body = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, body = registry.answer(url.path, parse_qs(url.query))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", _JSON)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        registry = Registry(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()
