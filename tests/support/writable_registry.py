"""A schema registry on 127.0.0.1 that serves the part of Confluent's protocol that producers and consumers use."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class SchemaRegistry:
    """A running registry.

    Attributes:
        url: Its address.
        schemas: The schemas, by id from 1 on.
        subjects: The ids of each subject.
    """

    url: str = ""
    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema; a known schema has one already."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


@contextmanager
def running() -> Iterator[SchemaRegistry]:
    """Run a registry for the length of a `with` block."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            subject = self.path.split("?")[0].removeprefix("/subjects/").removesuffix("/versions")
            if subject == "refused":
                self._answer(422, {"error_code": 42201, "message": "Invalid schema"})
            else:
                self._answer(200, {"id": registry.register(subject, body["schema"])})

        def do_GET(self) -> None:
            number = int(self.path.split("?")[0].rpartition("/")[2])
            if not 0 < number <= len(registry.schemas):
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            else:
                self._answer(200, {"schema": registry.schemas[number - 1]})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield registry
        server.shutdown()
        thread.join()
