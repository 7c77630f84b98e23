"""Stop queries: after their batch, immediately, or together with the JVM; and the signals that ask for it."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from respool.kafka.outage import Watch
from respool.spark.internals import ignore_ended_jvm, jvm_process, stop_after_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_HALT = 2.0  # seconds that queries have to stop when their lease is lost, or the time for a stop is over
_SAME_SIGNAL = 0.5  # seconds; `timeout` and others send a signal to the process, and again to its group
_STOPPING = 5.0  # seconds that a query has to stop while Kafka is down


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
