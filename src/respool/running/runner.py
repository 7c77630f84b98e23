"""Start, watch and stop the streaming queries of pipelines."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from respool.errors import CheckpointError, QueryError, RespoolError, StoreError
from respool.kafka import outage, topics
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.definition import Pipeline
from respool.pipeline.fingerprint import summarize_changes
from respool.pipeline.session import pipeline_session
from respool.running import options as run_options
from respool.running import progress, restarts
from respool.running.claim import changed_since, checkpoint_in_use, claim
from respool.running.dataflow import Companions, kafka_source, sink_writer, start_query
from respool.running.options import RunOptions
from respool.running.progress import (
    BatchProgress,
    Event,
    LeaseLost,
    QueryEnded,
    QueryIdle,
    StopRequested,
    event_listener,
)
from respool.running.restarts import Restarts, retry_until_answered
from respool.running.status import Phase, RunStatus
from respool.settings import Settings
from respool.spark import cluster, failures
from respool.spark.failures import Failure
from respool.spark.internals import ignore_ended_jvm
from respool.storage.lease import Lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_CHECK_INTERVAL = 2.0  # seconds between checks of what sends no event
_CHECK_INTERVAL_WAITING = 0.2  # the same while a query waits for its restart


class Runner:
    """Queries of several pipelines in one Spark application.

    Use it as a context manager: on leaving, every query has stopped and every checkpoint is released.

    >>> runner = respool.start(pipeline, available_now=True)
    >>> runner.stop()
    """

    def __init__(
        self,
        spark: "SparkSession",
        kafka: KafkaCluster,
        settings: Settings,
        options: RunOptions,
        on_progress: Callable[[BatchProgress], None],
        on_note: Callable[[str], None],
        held: Mapping[str, Lease] | None = None,
        resources: ExitStack | None = None,
        status: RunStatus | None = None,
    ) -> None:
        """Keep what the queries need; nothing starts yet.

        Args:
            spark: The application's session.
            kafka: The cluster to read from and write to.
            settings: Where the checkpoints are.
            options: What this run changes in its pipelines.
            on_progress: Called with every finished batch, in the thread that waits.
            on_note: Called with all other notes for the user.
            held: The checkpoints that `holding` holds for this run; it releases them, too.
            resources: Closed after the queries have stopped, such as the Spark application.
            status: Where the run records its state, for the health server.
        """
        self._resources = resources or ExitStack()
        self._held = held or {}
        self._spark = spark
        self._kafka = kafka
        self._settings = settings
        self._options = options
        self._on_progress = on_progress
        self._on_note = on_note
        # By the name of the pipeline: its running query, and what a restart needs.
        self._queries: dict[str, StreamingQuery] = {}
        self._sessions: dict[str, SparkSession] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._checkpoints: dict[str, str] = {}
        self._newest: dict[str, int] = {}  # the newest batch that was reported
        self._late: Counter[str] = Counter()  # late rows
        self._failed: list[Failure] = []  # for good
        self._companions: Companions | None = None
        self._topic_partitions: dict[str, int] = {}
        self._tasks_at_once: int | None = None
        self._stops_requested = 0
        self._deadline: float | None = None  # of the running batches, after a request to stop
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._stops: list[threading.Thread] = []
        self._claims = ExitStack()
        self._watch = outage.Watch(kafka, on_note, options.patience)
        self._restarts = Restarts(kafka, self._watch, options.patience, on_note)
        self._status = status or RunStatus()
        self._status.watch_kafka(lambda: self._watch.down_for)

    def __enter__(self) -> "Runner":
        """Return the runner."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Stop immediately what still runs."""
        self._status.enter(Phase.STOPPING)
        try:
            with self._claims:
                self._interrupt(list(self._queries))
                restarts.join(self._stops, self._watch)
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
        changed = [self._options.apply(pipeline) for pipeline in pipelines]
        for pipeline in changed:
            self._ask_kafka(partial(self._require_topic, pipeline.topic))
        for pipeline in changed:
            if not self._hold(pipeline):
                raise checkpoint_in_use(pipeline, self._checkpoint_of(pipeline))
        self._await_executors()
        for pipeline in changed:
            self._ask_kafka(partial(pipeline.sink.prepare, self._kafka, pipeline.topic))
            self._start(pipeline)
        if self._options.dead_letter and not self._stops_requested:
            self._companions = Companions(changed, self._checkpoint_of, self._hold, self._claims)
            self._start_companions(self._companions, report=True)

    def wait(self) -> None:
        """Return when all queries have ended; raise QueryError then if some have failed for good.

        A query that fails for a transient cause is restarted on its checkpoint, which stays locked meanwhile. A query
        that fails for good is reported, and the others continue, unless the run is to fail fast.
        """
        ending = False  # no query is started any more
        stops = 0
        self._status.enter(Phase.RUNNING)
        while self._queries or self._restarts.waiting():
            event = self._next_event()
            self._status.loop_continued()
            match event:
                case BatchProgress():
                    self._report(event)
                case QueryIdle(name):
                    self._status.query_idle(name)
                case LeaseLost(reason):
                    self._halt()
                    raise CheckpointError(reason)
                case StopRequested():
                    stops += 1
                    ending = True
                    self._status.enter(Phase.STOPPING)
                    self._stop(gracefully=stops == 1 and self._watch.down_for is None)
                case QueryEnded():
                    self._ended(event, ending)
                case None if stops == 1 and self._watch.down_for is not None:
                    stops += 1
                    self._stop(gracefully=False)  # the running batch cannot end while Kafka is down
                case None if not ending and self._companions is not None:
                    self._start_companions(self._companions)
            if not ending and self._is_over():
                ending = True
                self._stop(gracefully=True)
            if self._queries and self._deadline is not None and time.monotonic() >= self._deadline:
                self._halt_batches()
            if ending:
                self._restarts.cancel()
            else:
                self._restart_due()
                self._give_up_overdue()
        if self._failed:
            raise QueryError("\n".join(failure.message for failure in self._failed))

    def request_stop(self) -> None:
        """Ask for a stop after the running batch; asked again, immediately. Safe in a signal handler."""
        self._stops_requested += 1
        if self._options.stop_within is not None and self._deadline is None:
            self._deadline = time.monotonic() + self._options.stop_within.total_seconds()
        self._events.put(StopRequested())

    def _next_event(self) -> Event | None:
        timeout = _CHECK_INTERVAL_WAITING if self._restarts.waiting() else _CHECK_INTERVAL
        if self._deadline is not None:
            timeout = max(min(timeout, self._deadline - time.monotonic()), 0.0)
        try:
            return self._events.get(timeout=timeout)
        except Empty:
            # An event is lost when its connection is; the query itself has its state. Spark counts a query that is to
            # stop after its batch as ended while that batch still runs.
            is_stopping = any(thread.is_alive() for thread in self._stops)
            for name, query in self._queries.items():
                if not is_stopping and not query.isActive:
                    return QueryEnded(name, str(query.runId))
            return None

    def _is_over(self) -> bool:
        """Return whether a failure ends the run: the remaining queries need not run."""
        if not self._failed:
            return False
        # A companion alone has no records to keep; a query that ends on its own may finish.
        names = (*self._queries, *self._restarts.waiting())
        only_companions = all(self._pipelines[name].is_companion for name in names)
        return self._options.fail_fast or (only_companions and not self._options.available_now)

    def _ended(self, event: QueryEnded, ending: bool) -> None:
        query = self._queries.get(event.name)
        if query is None or str(query.runId) != event.run:
            return
        del self._queries[event.name]
        self._report_finished(event.name, query)  # events of the last batches may come later than the end is noticed
        error = query.exception()
        if error is None:
            self._restarts.query_finished(event.name)
            self._status.query_ended(event.name)
            return
        self._fail(failures.classify(event.name, error, self._checkpoints[event.name]), ending)

    def _fail(self, failure: Failure, ending: bool = False) -> None:
        """Plan the restart of a query that has failed, or count it as failed for good."""
        if self._restarts.add(failure, ending):
            self._fail_for_good(failure)
        else:
            self._status.query_waits(failure.pipeline, failure.cause.value)

    def _fail_for_good(self, failure: Failure) -> None:
        self._failed.append(failure)
        self._status.query_failed(failure.pipeline, failure.cause.value)
        if self._queries or self._restarts.waiting():  # otherwise it is raised now
            self._on_note(failure.message)

    def _restart_due(self) -> None:
        for name, failure in self._restarts.due(self._checkpoints):
            if failure is not None:
                self._fail_for_good(failure)
            else:
                self._start(self._pipelines[name])

    def _give_up_overdue(self) -> None:
        for name in self._restarts.overdue(list(self._queries)):
            if name in self._queries:
                self._interrupt([name])
                self._queries.pop(name, None)
            self._fail_for_good(self._restarts.give_up(name))

    def _report(self, batch: BatchProgress) -> None:
        """Report a batch, once."""
        if batch.batch <= self._newest.get(batch.pipeline, -1):
            return
        self._newest[batch.pipeline] = batch.batch
        self._restarts.batch_finished(batch.pipeline)
        self._status.batch_finished(batch)
        if batch.late_rows is not None:
            self._late[batch.pipeline] += batch.late_rows
            batch = replace(batch, late_rows_total=self._late[batch.pipeline])
        self._on_progress(batch)

    def _checkpoint_of(self, pipeline: Pipeline) -> str:
        return self._options.checkpoint_of(pipeline, self._settings)

    def _ask_kafka(self, ask: Callable[[], object]) -> None:
        """Ask something of Kafka at the start of a run; wait while it does not answer."""
        limit = self._options.patience
        retry_until_answered(ask, self._kafka, self._watch, limit, lambda: self._stops_requested > 0)

    def _require_topic(self, topic: str) -> None:
        self._topic_partitions[topic] = len(topics.require_topic(self._kafka, topic))

    def _await_executors(self) -> None:
        """Wait for the executors of a cluster, and report where the output of their tasks is."""
        registered: list[cluster.Executor] = []
        if cluster.is_cluster(self._spark):
            registered = cluster.wait_for_executors(
                self._spark, self._options.patience, lambda: self._stops_requested > 0, self._on_note
            )
            self._on_note(cluster.describe_logs(registered))
        self._tasks_at_once = run_options.tasks_at_once(self._spark, registered)

    def _hold(self, pipeline: Pipeline) -> bool:
        checkpoint = self._checkpoint_of(pipeline)
        changes = changed_since(checkpoint, pipeline)
        early = self._held.get(checkpoint)
        lease = claim(checkpoint, pipeline, self._settings, early)
        if lease is None:
            return False
        if early is None:
            self._claims.callback(lease.close)
        lease.on_lost(lambda reason: self._events.put(LeaseLost(reason)))
        if lease.warning:
            self._on_note(lease.warning)
        if changes:
            self._on_note(f"{pipeline.name} has changed since it ran last: {summarize_changes(changes)}")
        return True

    def _start_companions(self, companions: Companions, report: bool = False) -> None:
        """Start the companions of all decoders whose rejected records no other process keeps."""
        for topic in companions.topics():
            try:
                companion = companions.claim(topic)
            except StoreError:
                if report:
                    raise
                continue  # the store is tried again at the next check
            if companion is not None:
                self._ask_kafka(partial(companion.sink.prepare, self._kafka, topic))
                self._start(companion)
            if report:
                for process in companions.holders(topic):
                    self._on_note(f"Rejected records of {topic} are kept by {process}.")

    def _start(self, pipeline: Pipeline) -> None:
        """Start the query of a pipeline; after a failure again, in the same session."""
        if self._stops_requested:
            return
        name = pipeline.name
        first = name not in self._sessions
        if first:
            self._sessions[name] = pipeline_session(self._spark, pipeline)
            self._pipelines[name] = pipeline
            self._checkpoints[name] = self._checkpoint_of(pipeline)
            self._choose_partitions(pipeline)
            self._sessions[name].streams.addListener(event_listener(name, self._events.put))

        try:
            self._queries[name] = start_query(
                self._sessions[name],
                pipeline,
                kafka_source(self._kafka, pipeline, self._options.max_offsets_per_trigger),
                sink_writer(self._kafka, pipeline, self._settings),
                self._checkpoints[name],
                self._options.trigger_of(pipeline),
                require_key=True,
            )
            self._status.query_started(name)
        except RespoolError:
            raise
        except Exception as error:
            failure = failures.classify(name, error, self._checkpoints[name])
            if first and not failure.is_transient:
                raise failure.error() from error
            self._fail(failure)

    def _choose_partitions(self, pipeline: Pipeline) -> None:
        """Choose the number of state partitions of a new query, unless it is given."""
        if run_options.has_partitions(self._spark, pipeline, self._checkpoints[pipeline.name]):
            return
        of_topic = self._topic_partitions[pipeline.topic]
        chosen = run_options.suggested_partitions(self._tasks_at_once, of_topic)
        self._sessions[pipeline.name].conf.set(run_options.PARTITIONS, str(chosen))
        if not (pipeline.stateless or pipeline.is_companion):
            self._on_note(run_options.partitions_note(pipeline, chosen, self._tasks_at_once, of_topic))

    def _stop(self, gracefully: bool) -> None:
        if gracefully:
            self._stops += restarts.stop_gracefully(self._queries.values(), self._spark)
        else:
            self._interrupt(list(self._queries))

    def _halt_batches(self) -> None:
        """Interrupt the batches that have not ended within the time for a stop; the next start repeats them."""
        assert self._options.stop_within is not None
        limit = outage.duration(self._options.stop_within.total_seconds())
        self._on_note(f"{', '.join(sorted(self._queries))}: the batch has not ended within {limit} and is interrupted.")
        self._halt()

    def _halt(self) -> None:
        """Interrupt all queries, if need be by the end of the JVM, and report the batches that had finished."""
        queries = dict(self._queries)
        self._queries.clear()
        restarts.halt(queries.values())
        with suppress(Empty):
            while True:
                event = self._events.get_nowait()
                if isinstance(event, BatchProgress):
                    self._report(event)
        for name, query in queries.items():
            self._report_finished(name, query)

    def _report_finished(self, name: str, query: "StreamingQuery") -> None:
        """Report the batches that have finished and whose events have not arrived yet; none once the JVM has ended."""
        with ignore_ended_jvm():
            for raw in query.recentProgress:
                if (batch := progress.from_spark(name, raw)) is not None:
                    self._report(batch)

    def _interrupt(self, names: Sequence[str]) -> None:
        """Stop queries without waiting for their batches; those that hang in an outage end with Spark."""
        for name in restarts.interrupt({name: self._queries[name] for name in names}, self._watch):
            del self._queries[name]
