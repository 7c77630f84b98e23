"""Start, watch and stop the streaming queries of pipelines."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from respool.decoders.json import JsonDecoder
from respool.errors import (
    BrokerUnreachable,
    CheckpointError,
    CheckpointInUseError,
    PipelineError,
    QueryError,
    RespoolError,
)
from respool.kafka import outage, records, topics
from respool.kafka.cluster import KafkaCluster
from respool.locations import OWN, local_path
from respool.pipeline import definition
from respool.pipeline.definition import Pipeline
from respool.pipeline.fingerprint import summarize_changes
from respool.running import progress
from respool.running.claim import changed_since, claim
from respool.running.progress import BatchProgress
from respool.settings import Settings
from respool.sinks.console import ConsoleSink
from respool.sinks.protocol import ForkableSink, WriteContext, check_key
from respool.spark import failures
from respool.spark.failures import Failure
from respool.spark.internals import stop_after_batch
from respool.spark.session import session_of
from respool.storage.lease import JVM_PATIENCE, Lease, hold, holder
from respool.times import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery


_LOOK_AGAIN = 2.0  # seconds between looks at what sends no event
_HALT = 2.0  # seconds that queries have to stop when their lease is lost
_SAME_SIGNAL = 0.5  # seconds; `timeout` and others send a signal to the process, and again to its group
_LOOK_SOON = 0.2  # the same while a query waits for its restart
_STOPPING = 5.0  # seconds that a query has to stop while Kafka is down
_BOUNDED = timedelta(minutes=5)  # how long a run that ends on its own waits for Kafka, unless it is told otherwise


@dataclass(frozen=True)
class RunOptions:
    """What a run changes in its pipelines.

    Attributes:
        available_now: Process what is there now, then stop.
        trigger: The time from batch to batch, in place of the pipeline's own.
        max_offsets_per_trigger: How many records a batch takes at most, in place of the pipeline's own.
        checkpoint: The checkpoint's folder or URL, in place of the one under the home; for a single pipeline.
        console: Print the results in place of writing them to the pipeline's sink.
        sink_suffix: Write to a topic or table beside the pipeline's own, whose name ends with this.
        dead_letter: Write rejected records to the topic `<topic>-rejected`.
        timezone: The zone of all pipelines, in place of their own.
        give_up_after: How long a query may fail for a transient cause before it counts as failed. None waits for ever,
            or 5 minutes with `available_now`.
        fail_fast: Stop all pipelines when one has failed.
    """

    available_now: bool = False
    trigger: timedelta | None = None
    max_offsets_per_trigger: int | None = None
    checkpoint: str | None = None
    console: bool = False
    dead_letter: bool = True
    timezone: str | None = None
    sink_suffix: str | None = None
    give_up_after: timedelta | None = None
    fail_fast: bool = False

    @property
    def patience(self) -> timedelta | None:
        """How long to wait for what may pass; None for ever."""
        if self.give_up_after is None and self.available_now:
            return _BOUNDED
        return self.give_up_after

    def checkpoint_of(self, one: Pipeline, settings: Settings) -> str:
        """Return the checkpoint's folder or URL of a pipeline in this run."""
        if self.checkpoint and not one.is_companion:
            return self.checkpoint
        return str(settings.checkpoints / one.name)

    def apply(self, one: Pipeline) -> Pipeline:
        """Return the pipeline as this run wants it."""
        changed = replace(one, timezone=self.timezone) if self.timezone else one
        if self.sink_suffix:
            if not isinstance(one.sink, ForkableSink):
                raise PipelineError(
                    f"The pipeline {one.name} writes to {one.sink.describe()}, of which there cannot be a second one. "
                    "Leave --sink-suffix out, or print the results with --console."
                )
            changed = replace(changed, sink=one.sink.beside(self.sink_suffix))
        return replace(changed, sink=ConsoleSink()) if self.console else changed


@dataclass(frozen=True)
class _Ended:
    """A query ended: on its own, by request, or by a failure.

    Attributes:
        name: The pipeline's name.
        run: Which run of the query; a query that is restarted has another.
    """

    name: str
    run: str


@dataclass(frozen=True)
class _StopWanted:
    """The user wants the run to end; twice means now."""


@dataclass(frozen=True)
class _LeaseLost:
    """Another process may use a checkpoint from now on, for this reason."""

    reason: str


@dataclass
class _Trouble:
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


class Runner:
    """Queries of several pipelines in one Spark application.

    Use it as a context manager: on leaving, every query has stopped and every checkpoint is let go of.
    """

    def __init__(
        self,
        spark: "SparkSession",
        kafka: KafkaCluster,
        settings: Settings,
        options: RunOptions,
        on_progress: Callable[[BatchProgress], None],
        on_note: Callable[[str], None],
        held: "Mapping[str, Lease] | None" = None,
        resources: ExitStack | None = None,
    ) -> None:
        """Take what the queries need; nothing starts yet.

        Args:
            spark: The application's session.
            kafka: The cluster to read from and write to.
            settings: Where the checkpoints are.
            options: What this run changes in its pipelines.
            on_progress: Called with every finished batch, in the thread that waits.
            on_note: Called with what else a user should know.
            held: The checkpoints that `holding` holds for this run; it releases them, too.
            resources: Closed after the queries have stopped, such as the Spark application.
        """
        self._resources = resources or ExitStack()
        self._held = held or {}
        self._spark = spark
        self._kafka = kafka
        self._settings = settings
        self._options = options
        self._on_progress = on_progress
        self._on_note = on_note
        self._queries: dict[str, StreamingQuery] = {}
        self._newest: dict[str, int] = {}  # the newest batch of each query that was told
        self._late: Counter[str] = Counter()  # late rows of each query
        self._where: dict[str, str] = {}  # the checkpoint of each query
        # Decoders whose rejected records are not kept here yet: another process keeps them.
        self._companions: dict[str, dict[JsonDecoder, list[str]]] = {}
        self._sessions: dict[str, SparkSession] = {}  # of each query, for its restarts too
        self._pipelines: dict[str, Pipeline] = {}  # of each query
        self._troubles: dict[str, _Trouble] = {}  # queries that wait for a restart, or have not recovered since
        self._failed: list[Failure] = []  # for good
        self._stops_wanted = 0
        self._events: SimpleQueue[BatchProgress | _Ended | _StopWanted | _LeaseLost] = SimpleQueue()
        self._stops: list[threading.Thread] = []
        self._claims = ExitStack()
        self._watch = outage.Watch(kafka, on_note, options.patience)

    def __enter__(self) -> "Runner":
        """Return the runner."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Stop what still runs, immediately."""
        try:
            with self._claims:
                self._interrupt()
                self._join(self._stops)
                self._watch.close()
        finally:
            self._resources.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"Runner({', '.join(sorted(self._queries))})"

    def stop(self) -> None:
        """Stop every query after its running batch, and release everything; raise QueryError if a query has failed."""
        self.request_stop()
        with self:
            self.wait()

    def start(self, pipelines: Sequence[Pipeline]) -> None:
        """Start the pipelines, and the companions that keep their rejected records.

        Everything that can be refused is refused before the first query starts.
        """
        wanted = [self._options.apply(one) for one in pipelines]
        for one in wanted:
            self._patiently(partial(topics.require_topic, self._kafka, one.topic))
        for one in wanted:
            if not self._hold(one):
                raise _in_use(one, self._checkpoint(one))
        for one in wanted:
            self._patiently(partial(one.sink.prepare, self._kafka, one.topic))
            self._start(one)
        if self._options.dead_letter and not self._stops_wanted:
            self._companions = rejected_pipelines(wanted)
            self._start_companions(first=True)

    def wait(self) -> None:
        """Return when all queries have ended; raise QueryError then if some have failed for good.

        A query that fails for a transient cause is restarted on its checkpoint, which stays locked meanwhile. One that
        fails for good is reported, and the others continue, unless the run is to fail fast.
        """
        stopping = False  # no query is started any more
        stops = 0
        while self._queries or self._waiting():
            event = self._next()
            if isinstance(event, BatchProgress):
                self._tell(event)
            elif isinstance(event, _LeaseLost):
                self._halt()
                raise CheckpointError(event.reason)
            elif isinstance(event, _StopWanted):
                stops += 1
                stopping = True
                self._stop(gracefully=stops == 1 and self._watch.down_for is None)
            elif isinstance(event, _Ended):
                self._ended(event, stopping)
            elif event is None and stops == 1 and self._watch.down_for is not None:
                stops += 1
                self._stop(gracefully=False)  # the running batch cannot end while Kafka is down
            elif event is None and not stopping:
                self._start_companions(first=False)
            if not stopping and self._is_over():
                stopping = True
                self._stop(gracefully=True)
            if stopping:
                for name in self._waiting():
                    del self._troubles[name]
            else:
                self._restart_due()
                self._give_up_if_due()
        if self._failed:
            raise QueryError("\n".join(one.message for one in self._failed))

    def _is_over(self) -> bool:
        """Return whether what still runs need not run: after a failure that ends the run."""
        if not self._failed:
            return False
        # A companion alone has nothing to keep; one that ends on its own may finish.
        mine = [one for one in (*self._queries, *self._waiting()) if not self._pipelines[one].is_companion]
        return self._options.fail_fast or not (mine or self._options.available_now)

    def _waiting(self) -> list[str]:
        return [name for name, one in self._troubles.items() if one.due is not None]

    def _ended(self, event: _Ended, stopping: bool) -> None:
        query = self._queries.get(event.name)
        if query is None or str(query.runId) != event.run:
            return
        del self._queries[event.name]
        self._tell_rest(event.name, query)
        error = query.exception()
        if error is None:
            self._troubles.pop(event.name, None)
            return
        self._fail(failures.classify(event.name, error, self._where[event.name]), stopping)

    def _fail(self, failure: Failure, stopping: bool) -> None:
        """Take note of a failure: a restart is planned, or the query has failed for good."""
        now = time.monotonic()
        before = self._troubles.pop(failure.pipeline, None)
        trouble = before or _Trouble(failure, began=now, failed=now)
        trouble = replace(trouble, failure=failure, failed=now, attempts=trouble.attempts + 1)
        exhausted = failure.attempts is not None and trouble.attempts > failure.attempts
        if stopping and failure.is_transient:
            return
        if not failure.is_transient or exhausted:
            self._fail_for_good(failure)
            return
        wait = outage.backoff(trouble.attempts)
        self._troubles[failure.pipeline] = replace(trouble, due=now + wait)
        if failure.needs_kafka:
            self._watch.ask_now()
        else:
            self._note_restart(self._troubles[failure.pipeline], wait)

    def _fail_for_good(self, failure: Failure) -> None:
        self._failed.append(failure)
        if self._queries or self._waiting():  # else it is raised now
            self._on_note(failure.message)

    def _note_restart(self, trouble: _Trouble, wait: float) -> None:
        name, cause = trouble.failure.pipeline, trouble.failure.cause.value
        self._on_note(
            f"{name} is interrupted: {cause} ({trouble.failure.reason}). Restart {trouble.attempts} "
            f"{f'in {outage.duration(wait)}' if wait >= 0.5 else 'now'}."
        )
        trouble.noted = True

    def _restart_due(self) -> None:
        """Restart the queries whose time has come; those that need Kafka, once it has answered since they failed."""
        now = time.monotonic()
        for name in self._waiting():
            trouble = self._troubles[name]
            assert trouble.due is not None
            if now < trouble.due or (trouble.failure.needs_kafka and not self._watch.answered_since(trouble.failed)):
                continue
            try:
                if trouble.failure.topic is not None and not topics.topic_exists(self._kafka, trouble.failure.topic):
                    del self._troubles[name]
                    self._fail_for_good(failures.topic_gone(trouble.failure, self._where[name]))
                    continue
            except BrokerUnreachable:
                self._watch.ask_now()
                trouble.failed = time.monotonic()
                continue
            if trouble.failure.needs_kafka and not self._watch.reported_since(trouble.failed):
                self._note_restart(trouble, 0)
            trouble.due = None
            self._start(self._pipelines[name])

    def _give_up_if_due(self) -> None:
        """End the queries that have waited for longer than they may."""
        limit = self._options.patience
        if limit is None:
            return
        down = self._watch.down_for
        late = [one for one in self._waiting() if time.monotonic() - self._troubles[one].began > limit.total_seconds()]
        if down is not None and down > limit.total_seconds():
            late = [*self._queries, *self._waiting()]
        for name in late:
            if name in self._queries:
                self._interrupt(name)
                self._queries.pop(name, None)
            trouble = self._troubles.pop(name, None)
            waited = outage.duration(limit.total_seconds())
            self._fail_for_good(failures.gave_up(name, trouble.failure if trouble else None, waited))

    def _patiently(self, ask: Callable[[], object]) -> None:
        """Ask something of Kafka at the start of a run; wait while it does not answer."""
        while not self._stops_wanted:
            asked = time.monotonic()
            try:
                ask()
                return
            except BrokerUnreachable:
                self._watch.ask_now()
            limit = self._options.patience
            while not (self._watch.answered_since(asked) or self._stops_wanted):
                down = self._watch.down_for
                if limit is not None and down is not None and down > limit.total_seconds():
                    raise outage.gave_up(self._kafka, limit)
                time.sleep(_LOOK_SOON)

    def _tell(self, one: BatchProgress) -> None:
        """Tell of a batch, once."""
        if one.batch <= self._newest.get(one.pipeline, -1):
            return
        self._newest[one.pipeline] = one.batch
        trouble = self._troubles.get(one.pipeline)
        if trouble is not None and trouble.due is None:  # restarted, and this batch is finished since
            del self._troubles[one.pipeline]
            if trouble.noted:
                lasted = outage.duration(time.monotonic() - trouble.began)
                self._on_note(f"{one.pipeline} runs again, {lasted} after it was interrupted.")
        if one.late_rows is not None:
            self._late[one.pipeline] += one.late_rows
            one = replace(one, late_rows_total=self._late[one.pipeline])
        self._on_progress(one)

    def _tell_rest(self, name: str, query: "StreamingQuery") -> None:
        """Tell of the last batches of a query that has ended: their events may come later than its end is noticed."""
        for raw in query.recentProgress:
            found = progress.from_spark(name, raw)
            if found is not None:
                self._tell(found)

    def request_stop(self) -> None:
        """Ask for a stop after the running batch; asked again, immediately. Safe in a signal handler."""
        self._stops_wanted += 1
        self._events.put(_StopWanted())

    def _next(self) -> BatchProgress | _Ended | _StopWanted | _LeaseLost | None:
        try:
            return self._events.get(timeout=_LOOK_SOON if self._waiting() else _LOOK_AGAIN)
        except Empty:
            # An event could be lost with the connection that brings it; the query itself knows.
            for name, query in self._queries.items():
                if not query.isActive:
                    return _Ended(name, str(query.runId))
            return None

    def _checkpoint(self, one: Pipeline) -> str:
        return self._options.checkpoint_of(one, self._settings)

    def _hold(self, one: Pipeline) -> bool:
        changes = changed_since(self._checkpoint(one), one)
        early = self._held.get(self._checkpoint(one))
        held = claim(self._checkpoint(one), one, self._settings.home, early)
        if held is not None:
            if early is None:
                self._claims.callback(held.close)
            held.on_lost(lambda reason: self._events.put(_LeaseLost(reason)))
            if held.warning:
                self._on_note(held.warning)
            if changes:
                self._on_note(f"{one.name} has changed since it ran last: {summarize_changes(changes)}")
        return held is not None

    def _start_companions(self, first: bool) -> None:
        """Start the companions of all decoders whose rejected records no other process keeps."""
        for topic, decoders in self._companions.items():
            if not decoders:
                continue
            companion = self._hold_companion(topic, decoders)
            if companion is not None:
                self._patiently(partial(companion.sink.prepare, self._kafka, topic))
                self._start(companion)
            if first:
                keepers = {holder(self._checkpoint(definition.rejected(topic, {one: ()}))) for one in decoders}
                for keeper in sorted(filter(None, keepers)):
                    self._on_note(f"Rejected records of {topic} are kept by {keeper}.")

    def _hold_companion(self, topic: str, decoders: dict[JsonDecoder, list[str]]) -> Pipeline | None:
        """Hold the checkpoint of a companion of as many decoders as possible, and take these out of `decoders`.

        The lock of a decoder is the one of the companion that it has when it is alone, so that in every mix of runs a
        decoder is applied by a single process.
        """
        mine = dict(decoders)
        if len(mine) > 1:
            leases = {one: hold(self._checkpoint(definition.rejected(topic, {one: ()}))) for one in mine}
            mine = {one: mine[one] for one, lease in leases.items() if lease is not None}
            for lease in filter(None, leases.values()):
                if len(mine) > 1:
                    self._claims.callback(lease.close)
                else:
                    lease.close()  # its checkpoint is held below
        if not mine:
            return None
        companion = definition.rejected(topic, mine)
        if not self._hold(companion):
            return None
        for one in mine:
            del decoders[one]
        return companion

    def _start(self, one: Pipeline) -> None:
        """Start the query of a pipeline; again, in the same session, when it has failed."""
        if self._stops_wanted:
            return
        first = one.name not in self._sessions
        if first:
            self._sessions[one.name] = session_of(self._spark, one)
            self._pipelines[one.name] = one
            self._where[one.name] = self._checkpoint(one)
            self._sessions[one.name].streams.addListener(_listener(one.name, self._events))
        session = self._sessions[one.name]

        def write(frame: "DataFrame", batch: int) -> None:
            one.sink.write(one.each_batch(frame), WriteContext(one.name, batch, self._kafka, self._settings.home))

        try:
            limit = self._options.max_offsets_per_trigger or one.max_offsets_per_trigger
            # A decoder looks at values only: what reads whole records has none.
            source = records.read_stream(session, self._kafka, one.topic, limit, headers=one.decode is None)
            rows = one.stream(source)
            if not one.stateless:
                check_key(one.sink, rows.columns, one.name)
            writer = rows.writeStream.queryName(one.name).outputMode(one.output_mode)
            writer = writer.option("checkpointLocation", self._where[one.name]).trigger(**self._trigger(one))
            self._queries[one.name] = writer.foreachBatch(write).start()
        except RespoolError:
            raise
        except Exception as error:
            failure = failures.classify(one.name, error, self._where[one.name])
            if first and not failure.is_transient:
                raise failure.error() from error
            self._fail(failure, stopping=False)

    def _trigger(self, one: Pipeline) -> dict[str, Any]:
        if self._options.available_now:
            return {"availableNow": True}
        every = self._options.trigger
        if every is None:
            every = parse_duration(one.trigger) if one.trigger else timedelta(0)
        return {"processingTime": f"{int(every.total_seconds() * 1000)} milliseconds"}

    def _stop(self, gracefully: bool) -> None:
        if not gracefully:
            self._interrupt()
            return
        for query in self._queries.values():
            self._stops.append(_in_background(_try_to_stop, query, self._spark._jvm))

    def _interrupt(self, *names: str) -> None:
        """Stop queries, all by default, without waiting for their batches.

        While Kafka is down, a query has stopped only when Spark's client gives up, after two minutes. Such a query does
        nothing more, and is left to end with Spark.
        """
        stops = {name: _in_background(_try_to_interrupt, self._queries[name]) for name in names or self._queries}
        self._join(list(stops.values()))
        for name, stop in stops.items():
            if stop.is_alive():
                del self._queries[name]

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for threads that stop queries, but not for long while Kafka is down."""
        deadline = time.monotonic() + _STOPPING
        while any(one.is_alive() for one in threads):
            if self._watch.down_for is not None and time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def _halt(self) -> None:
        """Interrupt every query. A batch that cannot be interrupted, as in Python code, is ended with the JVM."""
        from pyspark import SparkContext

        threads = [threading.Thread(target=_interrupt, args=(one,), daemon=True) for one in self._queries.values()]
        self._queries.clear()
        end = time.monotonic() + _HALT
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        gateway: Any = SparkContext._gateway
        if any(thread.is_alive() for thread in threads) and gateway.proc is not None:
            gateway.proc.kill()


def rejected_pipelines(pipelines: Sequence[Pipeline]) -> dict[str, dict[JsonDecoder, list[str]]]:
    """Return the decoders whose rejected records are kept, by topic, each with the names of its pipelines.

    A topic has one companion for all decoders of a run.
    """
    result: dict[str, dict[JsonDecoder, list[str]]] = {}
    for one in pipelines:
        if one.decode is not None:
            result.setdefault(one.topic, {}).setdefault(one.decode, []).append(one.name)
    return result


@contextmanager
def holding(pipelines: Sequence[Pipeline], options: RunOptions, settings: Settings) -> "Iterator[dict[str, Lease]]":
    """Hold the checkpoints of pipelines for the length of a `with` block; return the leases, by checkpoint.

    Taken before Spark starts, a checkpoint in use is refused without that wait, and none is free before the JVM ends.

    Raises:
        CheckpointError: Another process holds one.
    """
    with ExitStack() as stack:
        held: dict[str, Lease] = {}
        new: list[Path] = []  # folders that a run makes, the outermost first
        try:
            for one in pipelines:
                where = options.checkpoint_of(one, settings)
                new += _missing(where)
                lease = hold(where, JVM_PATIENCE)
                if lease is None:
                    raise _in_use(one, where)
                held[where] = stack.enter_context(lease)
            yield held
        except BaseException:
            _remove_unused(new)
            raise


def _missing(checkpoint: str) -> list[Path]:
    """Return the folders on the way to a local checkpoint that do not exist yet, the outermost first."""
    folder = local_path(checkpoint)
    if folder is None:
        return []
    return [above for above in (*reversed(folder.parents), folder) if not above.exists()]


def _remove_unused(folders: Sequence[Path]) -> None:
    """Delete folders that hold nothing but a lock: a run that could not start leaves no checkpoint behind."""
    for folder in reversed(folders):
        own = folder / OWN
        with suppress(OSError):
            if os.listdir(folder) == [OWN] and os.listdir(own) == ["lock"]:
                (own / "lock").unlink()
                own.rmdir()
            folder.rmdir()


def _in_use(one: Pipeline, where: str) -> CheckpointInUseError:
    remedy = f"Stop that run of the pipeline {one.name} first, or name another folder with --checkpoint."
    return CheckpointInUseError(where, holder(where), remedy)


def _interrupt(query: "StreamingQuery") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        query.stop()


def _try_to_stop(query: "StreamingQuery", jvm: Any) -> None:
    """Stop a query after its batch; that the JVM is gone meanwhile is noticed by whoever waits for the query."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        stop_after_batch(query, jvm)


def _try_to_interrupt(query: "StreamingQuery") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        query.stop()


def _in_background(action: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=action, args=arguments, daemon=True)
    thread.start()
    return thread


@contextmanager
def stopping_on_signals(runner: Runner) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a request to stop, for the length of a `with` block."""
    last = -_SAME_SIGNAL

    def ask(*_: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before >= _SAME_SIGNAL:
            runner.request_stop()

    before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _listener(name: str, events: "SimpleQueue[Any]") -> "StreamingQueryListener":
    from pyspark import SparkContext
    from pyspark.sql.streaming import listener

    class Told:
        """Passes what Spark tells on to the thread that waits.

        It is called by the JVM. pyspark's own asks for each part of an event by a call of its own, two hundred for a
        batch; the text of all has the same in one.
        """

        def onQueryStarted(self, event: Any) -> None:
            """Nothing to tell: starting is synchronous."""

        def onQueryProgress(self, event: Any) -> None:
            """Pass a finished batch on."""
            told = listener.StreamingQueryProgress.fromJson(json.loads(event.progress().json()))
            found = progress.from_spark(name, told)
            if found is not None:
                events.put(found)

        def onQueryIdle(self, event: Any) -> None:
            """Nothing to tell."""

        def onQueryTerminated(self, event: Any) -> None:
            """Pass the end on."""
            events.put(_Ended(name, event.runId().toString()))

        class Java:
            """What py4j must know."""

            implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    class Listener(listener.StreamingQueryListener):
        """What pyspark takes for a listener."""

        @property
        def _jlistener(self) -> Any:
            jvm: Any = SparkContext._jvm
            return jvm.PythonStreamingQueryListenerWrapper(Told())

        def onQueryStarted(self, event: Any) -> None:
            """Not called."""

        onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted

    return Listener()
