"""The thread that produces the events, through all outages, each exactly once.

Events are sent in small chunks, and a chunk is sent after all events of the previous chunk are acknowledged. So no
partition of the topic is ever ahead of another by more than a chunk, and the limit on the disorder of event times
holds.

A client that does not deliver a chunk for a long time is replaced. What the old client delivered is read from the
topic, and only the rest is sent again.
"""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from chaos.events import Event, closing_events
from chaos.reading import Topics

TOPIC = "visits"
_CHUNK_SECONDS = 0.2
_PATIENCE = 40.0  # seconds for a chunk, before the topic is read for what has arrived


class Producer(threading.Thread):
    """Produces the events of a run until it is stopped."""

    def __init__(self, address: str, events: Iterator[Event], rate: float, step: timedelta) -> None:
        """Store the arguments; nothing is sent before `start`.

        Args:
            address: The broker.
            events: The events.
            rate: How many events are sent per second while the broker responds.
            step: How far the clock of event times advances with each event.
        """
        super().__init__(name="producer", daemon=True)
        self.sent: list[Event] = []
        self.failure = ""
        self.seconds = 0.0
        self._events = events
        self._rate = rate
        self._step = step
        self._stopping = threading.Event()
        self._refused: list[str] = []
        self._topics = Topics(address)
        self._address = address
        self._client = self._new_client()
        self.replaced = 0

    def _new_client(self) -> Any:
        from confluent_kafka import Producer as Client

        return Client(
            {
                "bootstrap.servers": self._address,
                "log_level": 0,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 0,  # wait for the end of an outage, however long
                "socket.timeout.ms": 20_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 0,
                "partitioner": "murmur2_random",
            }
        )

    def run(self) -> None:
        """Send chunk after chunk."""
        size = max(int(self._rate * _CHUNK_SECONDS), 1)
        begin = time.monotonic()
        try:
            while not self._stopping.is_set():
                due = time.monotonic() + size / self._rate
                self._send(list(islice(self._events, size)))
                self._stopping.wait(max(due - time.monotonic(), 0))
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self.seconds = time.monotonic() - begin

    def stop(self, seconds: float) -> bool:
        """Stop after the current chunk, and return whether that happened in time."""
        self._stopping.set()
        self.join(seconds)
        return not self.is_alive()

    def close_event_time(self, seconds: float) -> bool:
        """Send the events that let the watermark pass all others; return whether they were acknowledged in time."""
        return self._send(closing_events(len(self.sent), self._step), seconds)

    def _send(self, chunk: list[Event], seconds: float = float("inf")) -> bool:
        deadline = time.monotonic() + seconds
        left = chunk
        while left:
            if self._deliver(left, min(_PATIENCE, seconds)):
                break
            if time.monotonic() > deadline:
                return False
            left = self._undelivered(left)
        self.sent += chunk
        return True

    def _deliver(self, chunk: list[Event], seconds: float) -> bool:
        """Send a chunk, and return whether all of it was acknowledged in time."""
        for event in chunk:
            self._client.produce(TOPIC, event.value, event.visit.encode(), on_delivery=self._report)
        deadline = time.monotonic() + seconds
        while self._client.flush(0.5) and time.monotonic() < deadline:
            pass
        return len(self._client) == 0 and not self._refused

    def _undelivered(self, chunk: list[Event]) -> list[Event]:
        """Replace the client, and return what it did not deliver; wait for the broker if necessary."""
        self._client.purge()
        self._client.flush(5)
        self._refused.clear()
        self.replaced += 1
        while True:
            try:
                arrived = {record.value for record in self._topics.newest(TOPIC, 10 * len(chunk))}
                break
            except Exception:  # the broker is down
                time.sleep(1)
        self._client = self._new_client()
        return [event for event in chunk if event.value not in arrived]

    def _report(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._refused.append(str(error))
