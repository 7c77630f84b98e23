"""A proxy before an S3 server: it counts requests, delays them, or is out of reach.

It passes bytes on unchanged, with the client's Host header, so that signatures stay valid.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

_CHUNK = 1 << 16


class Request(NamedTuple):
    """A request: its kind, such as GET, LIST or COPY, and the key of the object or the prefix of the list."""

    kind: str
    key: str


class StoreProxy:
    """Serves on a port of its own while `serving`.

    Attributes:
        address: Where clients reach it.
        delay: How many seconds each request waits before the server gets it.
        requests: All requests since the last `forget`.
        at_once: The most requests that waited at the same time since then.
        left: How many more requests it passes on before it is out of reach; None for any number.
    """

    def __init__(self, upstream: str) -> None:
        """Keep the server's address."""
        self._upstream = urlsplit(upstream)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        self.requests: list[Request] = []
        self.at_once = 0
        self.left: int | None = None
        self._waiting = 0

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def serving(self) -> "Iterator[StoreProxy]":
        """Serve for the length of a `with` block."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        self.up()
        try:
            yield self
        finally:
            self.down()
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def up(self) -> None:
        """Accept connections, again on the same port."""
        self.left = None
        if self._server is not None:
            return
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()

    def forget(self) -> None:
        """Start to count anew."""
        self.requests = []
        self.at_once = 0

    def kinds(self) -> "Counter[str]":
        """Return how many requests there were of each kind."""
        return Counter(request.kind for request in self.requests)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            self._server = None

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        server_writer = None
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            server, server_writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
            answers = asyncio.ensure_future(_pass_on(server, writer))
            try:
                await self._pass_requests(reader, server_writer)
            finally:
                server_writer.close()
                await answers
        writer.close()
        self._writers.discard(writer)

    async def _pass_requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            if self.left is not None:
                if self.left <= 0:
                    await self._stop()
                    return
                self.left -= 1
            self.requests.append(_request(lines[0], headers))
            if self.delay:
                self._waiting += 1
                self.at_once = max(self.at_once, self._waiting)
                await asyncio.sleep(self.delay)
                self._waiting -= 1
            server.write(head)
            left = int(headers.get("content-length", 0))
            if "chunked" in headers.get("transfer-encoding", ""):
                await _pass_chunks(reader, server)
            while left:
                await server.drain()
                data = await reader.read(min(left, _CHUNK))
                if not data:
                    return
                left -= len(data)
                server.write(data)
            await server.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _pass_chunks(reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    while True:
        line = await reader.readuntil(b"\r\n")
        data = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        server.write(line + data)
        if len(data) == 2:
            return


def _request(line: str, headers: dict[str, str]) -> Request:
    method, target, _ = line.split(" ", 2)
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    key = unquote(url.path).strip("/").partition("/")[2]
    if method == "GET" and not key:
        return Request("LIST", query.get("prefix", [""])[0])
    if method == "PUT" and "x-amz-copy-source" in headers:
        return Request("COPY", key)
    if method == "POST" and "delete" in query:
        return Request("DELETE MANY", "")
    return Request(method, key)
