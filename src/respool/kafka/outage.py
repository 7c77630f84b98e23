"""Outages of Kafka: notice them, report each once, and wait until a broker answers again."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from respool.errors import BrokerError, BrokerUnreachable
from respool.kafka.cluster import NO_KAFKA, KafkaCluster, broker_error, make_client

_EVERY = 5.0  # seconds between requests while Kafka answers
_TIMEOUT = 10.0  # seconds for an answer before Kafka counts as unreachable
_FIRST, _LONGEST = 1.0, 60.0  # seconds between restarts of a query
_PROBE_FIRST, _PROBE_LONGEST = 0.5, 5.0  # seconds between requests while Kafka does not answer


def backoff(attempt: int, first: float = _FIRST, longest: float = _LONGEST) -> float:
    """Return the seconds to wait before an attempt, counted from 1: doubled each time, varied by up to a fifth."""
    return float(min(first * 2 ** (min(attempt, 32) - 1), longest) * random.uniform(0.8, 1.2))  # noqa: S311


@dataclass(frozen=True)
class Answer:
    """The outcome of a request to a cluster.

    Attributes:
        reached: A broker answered, even if it refused the client.
        refused: Why it refused the client; None when it did not.
    """

    reached: bool
    refused: str | None = None


class Probe:
    """Asks a cluster whether it answers, by a small request on a connection that is kept."""

    def __init__(self, kafka: KafkaCluster) -> None:
        """Create the client, without a connection yet."""
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import AdminClient

        self._refusals = (KafkaError._AUTHENTICATION, KafkaError._SSL)
        self._refused: str | None = None
        self._kafka = kafka
        options = {"error_cb": self._on_error, "reconnect.backoff.max.ms": 1000}
        self._client = make_client(AdminClient, kafka, options)

    def ask(self, timeout: float = _TIMEOUT) -> Answer:
        """Return whether a broker answers within `timeout` seconds."""
        from confluent_kafka import KafkaException

        self._refused = None
        future: Any = self._client.describe_cluster(request_timeout=timeout)
        try:
            future.result(timeout + 1)
        except FutureTimeout:
            return Answer(reached=False)
        except KafkaException as error:
            if isinstance(broker_error(self._kafka, error), BrokerUnreachable):
                self._client.poll(0)  # calls _on_error, which gets the reason
                return Answer(reached=self._refused is not None, refused=self._refused)
        return Answer(reached=True)  # a cluster that refuses this request is reachable all the same

    def _on_error(self, error: Any) -> None:
        if error.code() in self._refusals:
            self._refused = error.str()


class Watch:
    """A thread that asks a cluster every few seconds, and reports the start and the end of an outage once."""

    def __init__(self, kafka: KafkaCluster, on_note: Callable[[str], None], limit: timedelta | None = None) -> None:
        """Start the thread.

        Args:
            kafka: The cluster.
            on_note: Called in another thread, once when an outage starts and once when it ends.
            limit: How long an outage may last, for the note.
        """
        self._kafka = kafka
        self._on_note = on_note
        self._limit = limit
        self._closed = False
        self._wake = threading.Event()
        # When the last answered request was sent; a run without a cluster of its own waits for no answer.
        self._answered = time.monotonic() if kafka is not NO_KAFKA else float("inf")
        self._down: float | None = None
        self._last_end: float | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-watch", daemon=True)
        if kafka is not NO_KAFKA:
            self._thread.start()

    @property
    def down_for(self) -> float | None:
        """How many seconds the present outage has lasted; None while Kafka answers."""
        down = self._down
        return None if down is None else time.monotonic() - down

    def answered_since(self, moment: float) -> bool:
        """Return whether Kafka has answered a request that was sent after a moment of the monotonic clock."""
        return self._down is None and self._answered >= moment

    def reported_since(self, moment: float) -> bool:
        """Return whether an outage lasts, or ended after a moment of the monotonic clock."""
        return self._down is not None or (self._last_end is not None and self._last_end >= moment)

    def ask_now(self) -> None:
        """Send the next request now."""
        self._wake.set()

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_EVERY)

    def _run(self) -> None:
        probe = Probe(self._kafka)
        failed = 0
        while not self._closed:
            asked = time.monotonic()
            if probe.ask().reached:
                self._answered = asked
                failed = 0
                self._end()
            else:
                failed += 1
                self._begin(asked)
            self._wake.wait(backoff(failed, _PROBE_FIRST, _PROBE_LONGEST) if failed else _EVERY)
            self._wake.clear()

    def _begin(self, asked: float) -> None:
        if self._down is None and not self._closed:
            self._down = asked
            self._on_note(waiting(self._kafka, _clock(time.monotonic() - asked), self._limit))

    def _end(self) -> None:
        if self._down is not None:
            lasted = time.monotonic() - self._down
            self._last_end = time.monotonic()
            self._down = None
            if not self._closed:
                self._on_note(answers_again(lasted))


def waiting(kafka: KafkaCluster, since: str, limit: timedelta | None) -> str:
    """Return the note at the start of an outage."""
    bound = "" if limit is None else f", for at most {duration(limit.total_seconds())}"
    return f"Kafka at {kafka.bootstrap_servers} is unreachable since {since}; waiting for it{bound} …"


def answers_again(seconds: float) -> str:
    """Return the note at the end of an outage."""
    return f"Kafka answers again at {_clock()}, after {duration(seconds)}."


def gave_up(kafka: KafkaCluster, limit: timedelta) -> BrokerUnreachable:
    """Return the error after the limit has passed."""
    return BrokerUnreachable(
        f"No Kafka broker answers at {kafka.bootstrap_servers}; waited for {duration(limit.total_seconds())}. Check "
        "the address, and the [kafka] table of respool.toml. Wait longer with --give-up-after."
    )


def wait_until_answers(kafka: KafkaCluster, limit: timedelta | None, on_note: Callable[[str], None]) -> None:
    """Return once a broker answers; report the wait once.

    Args:
        kafka: The cluster.
        limit: The longest wait; None for no limit.
        on_note: Called when the wait begins and when it ends.

    Raises:
        BrokerUnreachable: None answered within the limit.
        BrokerError: A broker refuses this client: waiting does not help.
    """
    if kafka is NO_KAFKA:
        return
    probe = Probe(kafka)
    start = time.monotonic()
    failed = 0
    while True:
        left = None if limit is None else limit.total_seconds() - (time.monotonic() - start)
        answer = probe.ask(_TIMEOUT if left is None else max(1.0, min(_TIMEOUT, left)))
        if answer.refused is not None:
            raise BrokerError(
                f"The broker at {kafka.bootstrap_servers} refuses this client: {answer.refused}. "
                "Check the [kafka] table of respool.toml."
            )
        if answer.reached:
            if failed:
                on_note(answers_again(time.monotonic() - start))
            return
        failed += 1
        if limit is not None and time.monotonic() - start >= limit.total_seconds():
            raise gave_up(kafka, limit)
        if failed == 1:
            on_note(waiting(kafka, _clock(time.monotonic() - start), limit))
        time.sleep(backoff(failed, _PROBE_FIRST, _PROBE_LONGEST))


def duration(seconds: float) -> str:
    """Return a number of seconds as text: 8 s, 2 min 5 s, 3 h 20 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    parts = (f"{hours} h", f"{minutes} min") if hours else (f"{minutes} min", f"{rest} s")
    return " ".join(part for part in parts if not part.startswith("0 "))


def _clock(seconds_ago: float = 0.0) -> str:
    moment = datetime.now(timezone.utc) - timedelta(seconds=seconds_ago)
    return f"{moment:%H:%M:%S}Z"
