"""An S3 server in a process of its own: `python -m support.s3_server` prints its port and serves until stdin closes.

A conditional write is one step, as on S3. The buckets behave differently:

    ignores     the conditions of writes are ignored
    rejects     a write with a condition is answered with 501 NotImplemented
    loses       the first answer to each conditional write is lost: the file is written, and the client gets a 500
    conflicts   the first conditional write of each file is answered with 409 ConditionalRequestConflict
    readonly    every write is denied
    refuses-*   every request is refused with that code of S3, such as refuses-InvalidAccessKeyId
    any other   as on S3
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKETS = ("ignores", "rejects", "loses", "conflicts", "readonly", "plain")
_STATUS = {"PermanentRedirect": "301 Moved Permanently", "AuthorizationHeaderMalformed": "400 Bad Request"}
_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")

Start = Callable[..., Any]


class Store:
    """moto's S3, with one write at a time."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._writing = threading.Lock()
        self._seen: set[str] = set()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = str(environ["PATH_INFO"])
        bucket, _, key = path.strip("/").partition("/")
        if bucket.startswith("refuses-"):
            if environ["REQUEST_METHOD"] == "HEAD":  # its answer has no room for a code
                start("403 Forbidden", [])
                return [b""]
            code = bucket.removeprefix("refuses-")
            return _error(environ, start, _STATUS.get(code, "403 Forbidden"), code)
        if environ["REQUEST_METHOD"] != "PUT" or not key:
            return list(self._app(environ, start))
        if bucket == "readonly":
            return _error(environ, start, "403 Forbidden", "AccessDenied")
        conditional = any(name in environ for name in _CONDITIONS)
        with self._writing:
            first = path not in self._seen
            self._seen.add(path)
            if bucket == "ignores":
                for name in _CONDITIONS:
                    environ.pop(name, None)
            if conditional and bucket == "rejects":
                return _error(environ, start, "501 Not Implemented", "NotImplemented")
            if conditional and first and bucket == "conflicts":
                return _error(environ, start, "409 Conflict", "ConditionalRequestConflict")
            if conditional and first and bucket == "loses":
                list(self._app(environ, lambda *_: lambda data: None))
                return _error({}, start, "500 Internal Server Error", "InternalError")
            return list(self._app(environ, start))


def _error(environ: dict[str, Any], start: Start, status: str, code: str) -> Iterable[bytes]:
    if environ:  # nobody has read the request
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>of the test</Message></Error>".encode()]


@contextmanager
def serving() -> Iterator[str]:
    """Run the server in a process of its own for the length of a `with` block; return its address."""
    folder = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "support.s3_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": folder},
    )
    with process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Store(), True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
