"""Stop queries, and restart them after a transient failure.

A query stops after its batch, immediately, or together with the JVM; signals ask for it. A query that a transient
failure interrupted is restarted later and later, until respool gives up.
"""

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.errors import BrokerUnreachable
from respool.kafka import outage, topics
from respool.kafka.cluster import NO_KAFKA, KafkaCluster
from respool.kafka.outage import Watch
from respool.spark import failures
from respool.spark.failures import Failure
from respool.spark.internals import ignore_ended_jvm, jvm_process, stop_after_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_ASK_AGAIN = 0.2  # seconds


_HALT = 2.0  # seconds that queries have to stop when their lease is lost, or the time for a stop is over
_SAME_SIGNAL = 0.5  # seconds; `timeout` and others send a signal to the process, and again to its group
_STOPPING = 5.0  # seconds that a query has to stop while Kafka is down


@dataclass
class _Interruption:
    """A query that has failed for a transient cause and has finished no batch since.

    Attributes:
        failure: The last failure.
        began: When the first failed; all times are of the monotonic clock.
        failed: When the last failed.
        attempts: How many restarts there were.
        due: When it may be restarted; None while it runs.
        noted: Its interruption was reported on its own, not as an outage of Kafka.
    """

    failure: Failure
    began: float
    failed: float
    attempts: int = 0
    due: float | None = None
    noted: bool = False


class Restarts:
    """The interrupted queries of a run."""

    def __init__(
        self, kafka: KafkaCluster, watch: outage.Watch, patience: timedelta | None, on_note: Callable[[str], None]
    ) -> None:
        """Begin without an interrupted query.

        Args:
            kafka: The cluster of all queries.
            watch: Reports whether that cluster answers.
            patience: How long a query may fail before it counts as failed; None for ever.
            on_note: Called when a query is interrupted, and when it runs again.
        """
        self._kafka = kafka
        self._watch = watch
        self._patience = patience
        self._on_note = on_note
        self._interruptions: dict[str, _Interruption] = {}

    def waiting(self) -> list[str]:
        """Return the queries that wait for a restart."""
        return [name for name, interruption in self._interruptions.items() if interruption.due is not None]

    def cancel(self) -> None:
        """Restart no query that waits."""
        for name in self.waiting():
            del self._interruptions[name]

    def add(self, failure: Failure, stopping: bool) -> bool:
        """Plan the restart of a query that has failed; return whether it has failed for good.

        Args:
            failure: Why it failed.
            stopping: The run stops: no query is restarted.
        """
        now = time.monotonic()
        before = self._interruptions.pop(failure.pipeline, None) or _Interruption(failure, began=now, failed=now)
        interruption = replace(before, failure=failure, failed=now, attempts=before.attempts + 1)
        exhausted = failure.attempts is not None and interruption.attempts > failure.attempts
        if stopping and failure.is_transient:
            return False
        if not failure.is_transient or exhausted:
            return True
        wait = outage.backoff(interruption.attempts)
        interruption.due = now + wait
        self._interruptions[failure.pipeline] = interruption
        if failure.needs_kafka:
            self._watch.ask_now()
        else:
            self._note(interruption, wait)
        return False

    def due(self, checkpoints: Mapping[str, str]) -> Iterator[tuple[str, Failure | None]]:
        """Yield the queries to restart now; with a failure, the query cannot be restarted and has failed for good.

        A query that needs Kafka is due once Kafka has answered since the query failed.

        Args:
            checkpoints: The checkpoint of each query.
        """
        now = time.monotonic()
        for name in self.waiting():
            interruption = self._interruptions[name]
            failure = interruption.failure
            assert interruption.due is not None
            if now < interruption.due:
                continue
            if failure.needs_kafka and not self._watch.answered_since(interruption.failed):
                continue
            try:
                topic = failure.topic if self._kafka is not NO_KAFKA else None
                if topic is not None and not topics.topic_exists(self._kafka, topic):
                    del self._interruptions[name]
                    yield name, failures.topic_gone(failure, checkpoints[name])
                    continue
            except BrokerUnreachable:
                self._watch.ask_now()
                interruption.failed = time.monotonic()
                continue
            if failure.needs_kafka and not self._watch.reported_since(interruption.failed):
                self._note(interruption, 0)
            interruption.due = None
            yield name, None

    def overdue(self, running: Collection[str]) -> list[str]:
        """Return the queries, of those that run or wait for a restart, that have been interrupted for too long."""
        if self._patience is None:
            return []
        limit = self._patience.total_seconds()
        down = self._watch.down_for
        if down is not None and down > limit:
            return [*running, *self.waiting()]
        now = time.monotonic()
        return [name for name in self.waiting() if now - self._interruptions[name].began > limit]

    def give_up(self, name: str) -> Failure:
        """Forget an overdue query, and return its failure."""
        assert self._patience is not None
        interruption = self._interruptions.pop(name, None)
        waited = outage.duration(self._patience.total_seconds())
        return failures.gave_up(name, interruption.failure if interruption else None, waited)

    def batch_finished(self, name: str) -> None:
        """Note that a query has finished a batch: once restarted, it is no longer interrupted."""
        interruption = self._interruptions.get(name)
        if interruption is None or interruption.due is not None:
            return
        del self._interruptions[name]
        if interruption.noted:
            lasted = outage.duration(time.monotonic() - interruption.began)
            self._on_note(f"{name} runs again, {lasted} after it was interrupted.")

    def query_finished(self, name: str) -> None:
        """Note that a query has ended without a failure."""
        self._interruptions.pop(name, None)

    def _note(self, interruption: _Interruption, wait: float) -> None:
        failure = interruption.failure
        when = f"in {outage.duration(wait)}" if wait >= 0.5 else "now"
        self._on_note(
            f"{failure.pipeline} is interrupted: {failure.cause.value} ({failure.reason}). "
            f"Restart {interruption.attempts} {when}."
        )
        interruption.noted = True


def retry_until_answered(
    ask: Callable[[], object],
    kafka: KafkaCluster,
    watch: outage.Watch,
    patience: timedelta | None,
    is_stopping: Callable[[], bool],
) -> None:
    """Ask something of Kafka, again and again while it does not answer.

    Args:
        ask: Raises BrokerUnreachable when Kafka does not answer.
        kafka: The cluster.
        watch: Reports whether the cluster answers.
        patience: How long to wait; None for ever.
        is_stopping: Returns whether to return without an answer.

    Raises:
        BrokerUnreachable: Kafka has not answered for longer than `patience`.
    """
    while not is_stopping():
        asked = time.monotonic()
        try:
            ask()
            return
        except BrokerUnreachable:
            watch.ask_now()
        while not (watch.answered_since(asked) or is_stopping()):
            down = watch.down_for
            if patience is not None and down is not None and down > patience.total_seconds():
                raise outage.gave_up(kafka, patience)
            time.sleep(_ASK_AGAIN)


def stop_gracefully(queries: "Iterable[StreamingQuery]", spark: "SparkSession") -> list[threading.Thread]:
    """Let queries end after their running batch; return the threads that wait for it."""

    def stop(query: "StreamingQuery") -> None:
        with ignore_ended_jvm():  # whoever waits for the query notices the end of the JVM
            stop_after_batch(query, spark)

    return [_in_background(stop, query) for query in queries]


def interrupt(queries: "Mapping[str, StreamingQuery]", watch: Watch) -> list[str]:
    """Stop queries without waiting for their batches; return the names of those that have not stopped yet.

    While Kafka is down, a query stops only when Spark's client gives up, after two minutes. Such a query does nothing
    more, and is left to end with Spark.
    """
    threads = {name: _in_background(_interrupt, query) for name, query in queries.items()}
    join(list(threads.values()), watch)
    return [name for name, thread in threads.items() if thread.is_alive()]


def join(threads: Sequence[threading.Thread], watch: Watch) -> None:
    """Wait for threads that stop queries, but only for seconds while Kafka is down."""
    deadline = time.monotonic() + _STOPPING
    while any(thread.is_alive() for thread in threads):
        if watch.down_for is not None and time.monotonic() > deadline:
            return
        time.sleep(0.02)


def halt(queries: "Iterable[StreamingQuery]") -> None:
    """Interrupt every query. A batch that cannot be interrupted, as in Python code, is ended with the JVM."""
    end = time.monotonic() + _HALT
    threads = [_in_background(_interrupt, query) for query in queries]
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    process = jvm_process()
    if any(thread.is_alive() for thread in threads) and process is not None:
        process.kill()


def _interrupt(query: "StreamingQuery") -> None:
    with ignore_ended_jvm():
        query.stop()


def _in_background(stop: "Callable[[StreamingQuery], None]", query: "StreamingQuery") -> threading.Thread:
    thread = threading.Thread(target=stop, args=(query,), daemon=True)
    thread.start()
    return thread


@contextmanager
def stopping_on_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGINT and SIGTERM, for the length of a `with` block."""
    last = -_SAME_SIGNAL

    def handle(*_: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before >= _SAME_SIGNAL:
            request_stop()

    handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
