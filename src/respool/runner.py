"""Start, watch and stop the streaming queries of pipelines."""

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from respool import failures, pipeline, progress, records, topics
from respool.checkpoint.claim import changed_since, claim
from respool.checkpoint.lease import holder
from respool.errors import CheckpointError, PipelineError, QueryError
from respool.fingerprint import in_short
from respool.kafka import Kafka
from respool.local.session import session_of
from respool.pipeline import Pipeline
from respool.progress import Progress
from respool.settings import Settings
from respool.sinks import ConsoleSink, ForkableSink, Write
from respool.span import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_AGAIN = 2.0  # seconds between looks at what sends no event


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
    """

    available_now: bool = False
    trigger: timedelta | None = None
    max_offsets_per_trigger: int | None = None
    checkpoint: str | None = None
    console: bool = False
    dead_letter: bool = True
    timezone: str | None = None
    sink_suffix: str | None = None

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
    """A query ended: by itself, by request, or by a failure."""

    name: str


@dataclass(frozen=True)
class _StopWanted:
    """The user wants the run to end; twice means now."""


class Runner:
    """Queries of several pipelines in one Spark application.

    Use it as a context manager: on leaving, every query has stopped and every checkpoint is let go of.
    """

    def __init__(
        self,
        spark: "SparkSession",
        kafka: Kafka,
        settings: Settings,
        options: RunOptions,
        on_progress: Callable[[Progress], None],
        on_note: Callable[[str], None],
    ) -> None:
        """Take what the queries need; nothing starts yet.

        Args:
            spark: The application's session.
            kafka: The cluster to read from and write to.
            settings: Where the checkpoints are.
            options: What this run changes in its pipelines.
            on_progress: Called with every finished batch, in the thread that waits.
            on_note: Called with what else a user should know.
        """
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
        self._companions: dict[str, Pipeline] = {}  # not running here yet: another process has them
        self._events: SimpleQueue[Progress | _Ended | _StopWanted] = SimpleQueue()
        self._stops: list[threading.Thread] = []
        self._claims = ExitStack()

    def __enter__(self) -> "Runner":
        """Return the runner."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what still runs, at once."""
        for query in self._queries.values():
            query.stop()
        for thread in self._stops:
            thread.join()
        self._claims.close()

    def start(self, pipelines: Sequence[Pipeline]) -> None:
        """Start the pipelines, and the companions that keep their rejected records.

        Everything that can be refused is refused before the first query starts.
        """
        wanted = [self._options.apply(one) for one in pipelines]
        for one in wanted:
            topics.require(self._kafka, one.topic)
        for one in wanted:
            if not self._hold(one):
                where = self._checkpoint(one)
                raise CheckpointError(
                    f"The pipeline {one.name} runs already on {where}, in {holder(where)}. "
                    "Stop that one first, or name another folder with --checkpoint."
                )
        for one in wanted:
            one.sink.prepare(self._kafka, one.topic)
            self._start(one)
        if self._options.dead_letter:
            self._companions = companions(wanted)
            self._start_companions(first=True)

    def wait(self) -> None:
        """Return when all queries have ended; raise QueryError once one has failed and the others have stopped."""
        failure: QueryError | None = None
        stops = 0
        while self._queries:
            event = self._next()
            if isinstance(event, Progress):
                self._tell(event)
            elif isinstance(event, _StopWanted):
                stops += 1
                self._stop(gracefully=stops == 1)
            elif isinstance(event, _Ended) and event.name in self._queries:
                query = self._queries.pop(event.name)
                self._tell_rest(event.name, query)
                error = query.exception()
                if error is not None and failure is None:
                    failure = failures.explain(event.name, error, self._where[event.name])
                    self._stop(gracefully=True)
            elif event is None and stops == 0 and failure is None:
                self._start_companions(first=False)
        if failure is not None:
            raise failure

    def _tell(self, one: Progress) -> None:
        """Tell of a batch, once."""
        if one.batch <= self._newest.get(one.pipeline, -1):
            return
        self._newest[one.pipeline] = one.batch
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
        """Ask for a stop after the running batch; asked again, at once. Safe in a signal handler."""
        self._events.put(_StopWanted())

    def _next(self) -> Progress | _Ended | _StopWanted | None:
        try:
            return self._events.get(timeout=_LOOK_AGAIN)
        except Empty:
            # An event could be lost with the connection that brings it; the query itself knows.
            for name, query in self._queries.items():
                if not query.isActive:
                    return _Ended(name)
            return None

    def _checkpoint(self, one: Pipeline) -> str:
        return self._options.checkpoint_of(one, self._settings)

    def _hold(self, one: Pipeline) -> bool:
        changes = changed_since(self._checkpoint(one), one)
        held = claim(self._checkpoint(one), one, self._settings.home)
        if held is not None:
            self._claims.callback(held.close)
            if held.warning:
                self._on_note(held.warning)
            if changes:
                self._on_note(f"{one.name} has changed since it ran last: {in_short(changes)}")
        return held is not None

    def _start_companions(self, first: bool) -> None:
        for name, one in list(self._companions.items()):
            if self._hold(one):
                del self._companions[name]
                one.sink.prepare(self._kafka, one.topic)
                self._start(one)
            elif first:
                self._on_note(f"Rejected records of {one.topic} are kept by {holder(self._checkpoint(one))}.")

    def _start(self, one: Pipeline) -> None:
        session = session_of(self._spark, one)
        self._where[one.name] = self._checkpoint(one)
        limit = self._options.max_offsets_per_trigger or one.max_offsets_per_trigger
        # A decoder looks at values only: what reads whole records has none.
        source = records.read_stream(session, self._kafka, one.topic, limit, headers=one.decode is None)
        writer = one.stream(source).writeStream.queryName(one.name).outputMode(one.output_mode)
        writer = writer.option("checkpointLocation", self._where[one.name]).trigger(**self._trigger(one))

        def write(frame: "DataFrame", batch: int) -> None:
            one.sink.write(one.each_batch(frame), Write(one.name, batch, self._kafka, self._settings.home))

        session.streams.addListener(_listener(one.name, self._events))
        try:
            self._queries[one.name] = writer.foreachBatch(write).start()
        except Exception as error:
            raise failures.explain(one.name, error, self._where[one.name]) from error

    def _trigger(self, one: Pipeline) -> dict[str, Any]:
        if self._options.available_now:
            return {"availableNow": True}
        every = self._options.trigger
        if every is None:
            every = parse_duration(one.trigger) if one.trigger else timedelta(0)
        return {"processingTime": f"{int(every.total_seconds() * 1000)} milliseconds"}

    def _stop(self, gracefully: bool) -> None:
        for query in self._queries.values():
            if gracefully:
                thread = threading.Thread(target=stop_after_batch, args=(query, self._spark._jvm), daemon=True)
                thread.start()
                self._stops.append(thread)
            else:
                query.stop()


def companions(pipelines: Sequence[Pipeline]) -> dict[str, Pipeline]:
    """Return the companions that keep the rejected records of these pipelines, by name.

    There is one for a topic, shared by all pipelines that decode its records the same way. A topic read in several ways
    has one for each.
    """
    found = [pipeline.rejected(one.topic, one.decode) for one in pipelines if one.decode is not None]
    return {one.name: one for one in found}


def stop_after_batch(query: "StreamingQuery", jvm: Any) -> None:
    """Stop a query once its running batch is committed, and start no other.

    `query.stop()` alone interrupts the running batch. Spark's own loop ends before the next batch when the query's
    state says so, which only its internals can set; `stop()` then ends the wait for the next trigger.
    """
    internal: Any = query
    ended = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$")
    internal._jsq.streamingQuery().state().set(getattr(ended, "MODULE$"))
    while query.status["isTriggerActive"]:
        time.sleep(0.02)
    query.stop()


@contextmanager
def stopping_on_signals(runner: Runner) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a request to stop, for the length of a `with` block."""

    def ask(*_: object) -> None:
        runner.request_stop()

    # pyspark installs a SIGINT handler of its own, which cancels the running batch: ours takes its place.
    before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _listener(name: str, events: "SimpleQueue[Progress | _Ended | _StopWanted]") -> "StreamingQueryListener":
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
            events.put(_Ended(name))

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
