"""What a run reports of itself while it runs: its phase, its queries, and whether its main loop still runs.

The run's thread writes, the health server reads, from another thread. Nothing here calls Spark or Kafka: a JVM
that hangs must not block the response.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from respool.running.progress import BatchProgress
from respool.text import plural

LOOP_LIMIT = 60.0  # seconds; the loop handles an event at least every 2, unless a call hangs


class Phase(Enum):
    """The phase of a run."""

    KAFKA = "waiting for Kafka"
    SPARK = "starting Spark"
    QUERIES = "starting queries"
    RUNNING = "running"
    STOPPING = "stopping"


class QueryState(Enum):
    """The state of a query."""

    RUNNING = "running"
    WAITING = "waiting for a restart"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True)
class QueryStatus:
    """The status of a query; times are of the monotonic clock.

    Attributes:
        state: Its state.
        began: When it started, for the first time.
        batch: Its last finished batch in this run; None before the first.
        batch_ended: When that was reported.
        triggered: When Spark last reported a finished batch, or that there are no new records.
        lag: Records that Kafka had when the last batch was planned, and that no batch has read yet.
        cause: Why it waits or has failed.
    """

    state: QueryState
    began: float
    batch: int | None = None
    batch_ended: float | None = None
    triggered: float | None = None
    lag: int | None = None
    cause: str | None = None

    def silent_for(self, now: float) -> float:
        """Return the seconds since Spark last reported something of the query, or since its start."""
        return now - (self.triggered if self.triggered is not None else self.began)

    def to_json(self, now: float) -> dict[str, Any]:
        """Return it as data, with ages in seconds in place of times."""
        return {
            "state": self.state.value,
            "cause": self.cause,
            "batch": self.batch,
            "seconds_since_batch": _age(self.batch_ended, now),
            "seconds_since_report": _age(self.triggered, now),
            "lag": self.lag,
        }


@dataclass(frozen=True)
class Limits:
    """Further conditions of a probe; None sets no condition.

    Attributes:
        silence: The most seconds for which Spark may report nothing of a running query.
        lag: The most records that a query may be behind.
    """

    silence: float | None = None
    lag: int | None = None


class RunStatus:
    """The state of a run, for other threads to read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with a run that has not reached Kafka yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = Phase.KAFKA
        self._began = self._turned = clock()
        self._queries: dict[str, QueryStatus] = {}
        self._down_for: Callable[[], float | None] = lambda: None

    def enter(self, phase: Phase) -> None:
        """Note that a phase begins."""
        with self._lock:
            self._phase = phase
            self._turned = self._clock()

    def watch_kafka(self, down_for: Callable[[], float | None]) -> None:
        """Ask this function for how many seconds Kafka has not answered; None while it answers."""
        self._down_for = down_for

    def loop_continued(self) -> None:
        """Note that the run's main loop has handled an event, or has waited for one without result."""
        self._turned = self._clock()

    def query_started(self, name: str) -> None:
        """Note that a query runs, also after a restart."""
        with self._lock:
            now = self._clock()
            before = self._queries.get(name, QueryStatus(QueryState.RUNNING, began=now))
            triggered = None if before.triggered is None else now
            self._queries[name] = replace(before, state=QueryState.RUNNING, cause=None, triggered=triggered)

    def batch_finished(self, batch: BatchProgress) -> None:
        """Note a finished batch."""
        now = self._clock()
        self._change(batch.pipeline, batch=batch.batch, batch_ended=now, triggered=now, lag=batch.lag)

    def query_idle(self, name: str) -> None:
        """Note that Spark has found no new records for a query."""
        self._change(name, triggered=self._clock(), lag=0)

    def query_waits(self, name: str, cause: str) -> None:
        """Note that a query has failed for a cause that may pass, and is restarted later."""
        self._change(name, state=QueryState.WAITING, cause=cause)

    def query_failed(self, name: str, cause: str) -> None:
        """Note that a query has failed for good."""
        self._change(name, state=QueryState.FAILED, cause=cause)

    def query_ended(self, name: str) -> None:
        """Note that a query has ended without a failure."""
        self._change(name, state=QueryState.ENDED, cause=None)

    def not_live(self, limits: Limits) -> list[str]:
        """Return why the process should be restarted; empty while it need not be."""
        down = self._down_for()
        with self._lock:
            now, reasons = self._clock(), []
            # Before the loop runs, and after it, a restart would only repeat slow work.
            if self._phase is Phase.RUNNING and now - self._turned > LOOP_LIMIT:
                reasons.append(f"the run's main loop has handled no event for {now - self._turned:.0f} s")
            return reasons if down is not None else reasons + self._silent(now, limits)

    def not_ready(self, limits: Limits) -> list[str]:
        """Return why results cannot be expected of the run now; empty when they can."""
        down = self._down_for()
        with self._lock:
            now, reasons = self._clock(), []
            if self._phase is not Phase.RUNNING:
                reasons.append(f"the run is {self._phase.value}")
            if down is not None:
                reasons.append(f"Kafka has not answered for {down:.0f} s")
            for name, query in self._queries.items():
                if query.state in (QueryState.WAITING, QueryState.FAILED):
                    reasons.append(f"{name} {_REASON[query.state]}: {query.cause}")
                elif limits.lag is not None and query.lag is not None and query.lag > limits.lag:
                    reasons.append(f"{name} is {plural(query.lag, 'record')} behind; expected at most {limits.lag:,}")
            return reasons + self._silent(now, limits)

    def to_json(self) -> dict[str, Any]:
        """Return everything as data."""
        down = self._down_for()
        with self._lock:
            now = self._clock()
            return {
                "phase": self._phase.value,
                "seconds_since_start": round(now - self._began, 1),
                "seconds_since_loop": _age(self._turned, now),
                "seconds_without_kafka": None if down is None else round(down, 1),
                "pipelines": {name: query.to_json(now) for name, query in self._queries.items()},
            }

    def _silent(self, now: float, limits: Limits) -> list[str]:
        if limits.silence is None or self._phase is not Phase.RUNNING:
            return []
        silent = {
            name: query.silent_for(now) for name, query in self._queries.items() if query.state is QueryState.RUNNING
        }
        return [
            f"Spark has reported nothing of {name} for {seconds:.0f} s; expected at most {limits.silence:.0f} s"
            for name, seconds in silent.items()
            if seconds > limits.silence
        ]

    def _change(self, name: str, **changes: Any) -> None:
        with self._lock:
            before = self._queries.get(name)
            # A query can fail before it runs.
            before = before or QueryStatus(QueryState.RUNNING, began=self._clock())
            self._queries[name] = replace(before, **changes)


_REASON = {QueryState.WAITING: "is interrupted", QueryState.FAILED: "has failed"}


def _age(moment: float | None, now: float) -> float | None:
    return None if moment is None else round(now - moment, 1)
