"""Pipelines that run: `respool.run`, `respool.start`, `respool.find_pipeline`."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from respool.errors import CheckpointError, PipelineError, UsageError
from respool.operations.context import OnNote, note_of, session, settings_of, table_of
from respool.settings import Settings, load
from respool.times import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.kafka.cluster import KafkaCluster
    from respool.pipeline.definition import Pipeline
    from respool.running.options import RunOptions
    from respool.running.progress import BatchProgress
    from respool.running.runner import Runner
    from respool.running.status import RunStatus
    from respool.savepoint.store import StoredSavepoint

    Fork = Callable[[SparkSession, Pipeline], None]

OnBatch = Callable[["BatchProgress"], None]  # called with every finished batch


def find_pipeline(name: str, **parameters: object) -> "Pipeline":
    """Return a built-in pipeline, or `module:object` from a module that can be imported.

    >>> respool.find_pipeline("visit-counts", window="15 minutes").name
    'visit-counts'

    Args:
        name: One of `respool pipelines`, or `module:object`: a Pipeline, or a function that makes a pipeline.
        parameters: Parameters that differ from their defaults, as text or as values. Those of respool.toml are for
            the commands.

    Raises:
        PipelineError: There is no such pipeline, or it has no such parameter.
    """
    from respool.pipeline import registry

    return registry.find_pipeline(name, parameters)


def load_settings(**overrides: object) -> Settings:
    """Return the settings of respool.toml and of the RESPOOL_* variables.

    >>> respool.load_settings(master="local[2]").master
    'local[2]'

    Args:
        overrides: Values that win over those of the file and of the variables, by the names of Settings' fields.

    Raises:
        SettingsError: A setting is unknown or cannot be read.
    """
    from dataclasses import fields

    from respool.errors import SettingsError
    from respool.text import did_you_mean

    names = [field.name for field in fields(Settings)]
    for name in overrides:
        if name not in names:
            raise SettingsError(f"Unknown setting '{name}'.{did_you_mean(name, names)} Expected {', '.join(names)}.")
    return settings_of(load(overrides))


def start(
    *pipelines: "Pipeline",
    checkpoint: str | None = None,
    available_now: bool = False,
    trigger: timedelta | str | None = None,
    max_offsets_per_trigger: int | None = None,
    console: bool = False,
    sink_suffix: str | None = None,
    from_savepoint: str | None = None,
    allow_data_loss: bool = False,
    dead_letter: bool = True,
    give_up_after: timedelta | str | None = None,
    fail_fast: bool = False,
    stop_within: timedelta | str | None = None,
    on_batch: OnBatch | None = None,
    on_note: OnNote | None = None,
    settings: Settings | None = None,
    spark: "SparkSession | None" = None,
) -> "Runner":
    """Start pipelines, and return a runner to wait for or to stop.

    >>> with respool.start(pipeline, respool.archive_pipeline(pipeline), available_now=True) as runner:
    ...     runner.wait()

    Use the runner as a context manager: when the block ends, every query has stopped, the checkpoints are released,
    and a Spark that was started for the call has ended. `runner.stop()` does the same after the running batches.

    Args:
        pipelines: The pipelines, each with a different name.
        checkpoint: The folder or URL of the checkpoint, for a single pipeline; by default it is under the home.
        available_now: Process the available records, then end.
        trigger: The time from batch to batch, in place of the pipelines'.
        max_offsets_per_trigger: The most records of a batch, in place of the pipelines'.
        console: Print the results, in place of writing them to the pipelines' sinks.
        sink_suffix: Write to a separate topic or table, whose name ends with this.
        from_savepoint: Fork this savepoint to `checkpoint` first, unless that was done before.
        allow_data_loss: With `from_savepoint`: continue though the source has lost records.
        dead_letter: Write records that do not decode to the topic `<topic>-rejected`.
        give_up_after: How long to wait for causes that may pass, such as a Kafka that does not answer; by default
            without limit, or 5 minutes with `available_now`.
        fail_fast: Stop all pipelines when a pipeline has failed; otherwise the others continue.
        stop_within: How long a running batch may last after a request to stop; then it is interrupted, and repeated by
            the next start. By default without limit.
        on_batch: Called with every finished batch, in the thread that waits.
        on_note: Called with what else happens; by default it is logged.
        settings: The settings; by default those of respool.toml and of the environment.
        spark: The session to use; by default one is started.

    Raises:
        RespoolError: A pipeline, its topic or its checkpoint cannot be used. Nothing runs then.
    """
    from respool.running.options import RunOptions

    settings = settings_of(settings)
    options = RunOptions(
        available_now=available_now,
        trigger=_duration(trigger),
        max_offsets_per_trigger=max_offsets_per_trigger,
        checkpoint=checkpoint,
        console=console,
        dead_letter=dead_letter,
        timezone=settings.timezone,
        sink_suffix=sink_suffix,
        give_up_after=_duration(give_up_after),
        fail_fast=fail_fast,
        stop_within=_duration(stop_within),
    )
    call = _Call(pipelines, options, from_savepoint, allow_data_loss, on_batch, note_of(on_note), settings, spark)
    with ExitStack() as stack:
        runner, launch = call.prepare()
        stack.enter_context(runner)
        launch()
        stack.pop_all()
    return runner


def run(
    *pipelines: "Pipeline",
    checkpoint: str | None = None,
    available_now: bool = False,
    trigger: timedelta | str | None = None,
    max_offsets_per_trigger: int | None = None,
    console: bool = False,
    sink_suffix: str | None = None,
    from_savepoint: str | None = None,
    allow_data_loss: bool = False,
    dead_letter: bool = True,
    give_up_after: timedelta | str | None = None,
    fail_fast: bool = False,
    stop_within: timedelta | str | None = None,
    on_batch: OnBatch | None = None,
    on_note: OnNote | None = None,
    settings: Settings | None = None,
    spark: "SparkSession | None" = None,
    health: str | None = None,
) -> None:
    """Run pipelines until they end or are stopped.

    >>> respool.run(pipeline, available_now=True, on_batch=print)

    In the main thread, SIGINT (Ctrl-C) and SIGTERM stop the pipelines after their running batches; a second signal
    interrupts the batches. Called again, each pipeline resumes after its last finished batch. While Kafka does not
    answer, the run waits. A pipeline that has failed for another reason ends alone.

    Args:
        pipelines: The pipelines, and every other argument, are those of `start`.
        checkpoint: See `start`.
        available_now: See `start`.
        trigger: See `start`.
        max_offsets_per_trigger: See `start`.
        console: See `start`.
        sink_suffix: See `start`.
        from_savepoint: See `start`.
        allow_data_loss: See `start`.
        dead_letter: See `start`.
        give_up_after: See `start`.
        fail_fast: See `start`.
        stop_within: See `start`.
        on_batch: See `start`.
        on_note: See `start`.
        settings: See `start`.
        spark: See `start`.
        health: The address, as `HOST:PORT`, of an HTTP server that answers `/livez` and `/readyz` while this runs.

    Raises:
        QueryError: A pipeline has failed.
        RespoolError: A pipeline, its topic or its checkpoint cannot be used. Nothing runs then.
    """
    from respool.running.health import serving
    from respool.running.options import RunOptions
    from respool.running.restarts import stopping_on_signals
    from respool.running.status import RunStatus

    settings = settings_of(settings)
    options = RunOptions(
        available_now=available_now,
        trigger=_duration(trigger),
        max_offsets_per_trigger=max_offsets_per_trigger,
        checkpoint=checkpoint,
        console=console,
        dead_letter=dead_letter,
        timezone=settings.timezone,
        sink_suffix=sink_suffix,
        give_up_after=_duration(give_up_after),
        fail_fast=fail_fast,
        stop_within=_duration(stop_within),
    )
    call = _Call(pipelines, options, from_savepoint, allow_data_loss, on_batch, note_of(on_note), settings, spark)
    is_main = threading.current_thread() is threading.main_thread()
    status = RunStatus()
    with serving(health, status) as address:
        if address is not None:
            call.note(f"Health of this run: http://{address}/livez and http://{address}/readyz")
        runner, launch = call.prepare(status)
        with runner, stopping_on_signals(runner.request_stop) if is_main else nullcontext():
            launch()
            runner.wait()


@dataclass(frozen=True)
class _Call:
    """The arguments of `run` and `start`."""

    pipelines: "Sequence[Pipeline]"
    options: "RunOptions"
    savepoint: str | None
    allow_data_loss: bool
    on_batch: OnBatch | None
    note: OnNote
    settings: Settings
    spark: "SparkSession | None"

    def prepare(self, status: "RunStatus | None" = None) -> "tuple[Runner, Callable[[], None]]":
        """Return a runner, and what starts its queries. Whatever can be refused without Spark is refused here."""
        from respool.kafka import outage
        from respool.operations.check import check_settings
        from respool.operations.context import kafka_for
        from respool.pipeline.job import JobPipeline
        from respool.running.claim import check, holding
        from respool.running.dataflow import resolve_job
        from respool.running.runner import Runner
        from respool.running.status import Phase, RunStatus
        from respool.spark.session import session_for

        status = status or RunStatus()
        options, settings, note = self.options, self.settings, self.note
        _check(self.pipelines, options, self.savepoint, self.allow_data_loss)
        for pipeline in self.pipelines:
            options.checkpoint_of(pipeline, settings)  # raises for a misspelled URL
        check_settings(settings)
        kafka = kafka_for(self.pipelines, settings)
        outage.wait_until_answers(kafka, options.patience, note)
        applied = [options.apply(pipeline) for pipeline in self.pipelines]
        fork = self._fork(applied[0], kafka) if self.savepoint else None
        own = [pipeline for pipeline in applied if not isinstance(pipeline, JobPipeline)]
        for pipeline in own:
            for source in pipeline.kafka_sources:
                source.require(kafka)
            if fork is None:
                check(options.checkpoint_of(pipeline, settings), pipeline)
        with ExitStack() as stack:
            held = stack.enter_context(holding(own if fork is None else (), options, settings))
            names = ", ".join(pipeline.name for pipeline in self.pipelines)
            places = [options.checkpoint_of(pipeline, settings) for pipeline in applied]
            places += [place for pipeline in own if (place := table_of(pipeline.sink, settings))]
            status.enter(Phase.SPARK)
            active = stack.enter_context(session(settings, self.spark, note, f"for {names}", places))
            on_batch = self.on_batch or (lambda progress: None)
            runner = Runner(active, kafka, settings, options, on_batch, note, held, stack.pop_all(), status)

        def launch() -> None:
            status.enter(Phase.QUERIES)
            if fork is not None:
                fork(active, replace(options, sink_suffix=None, console=False).apply(self.pipelines[0]))
            started = [
                resolve_job(session_for(active, pipeline.timezone, pipeline.spark), pipeline)
                if isinstance(pipeline, JobPipeline)
                else pipeline
                for pipeline in self.pipelines
            ]
            runner.start(started)
            for pipeline in map(options.apply, started):
                note(f"{pipeline.name}: {pipeline.reads} → {pipeline.sink.describe()}")

        return runner, launch

    def _fork(self, pipeline: "Pipeline", kafka: "KafkaCluster") -> "Fork | None":
        assert self.savepoint is not None
        assert self.options.checkpoint is not None
        return fork_before_start(
            self.savepoint, self.options.checkpoint, pipeline, kafka, self.settings, self.note, self.allow_data_loss
        )


def fork_before_start(
    name: str,
    path: str,
    pipeline: "Pipeline",
    kafka: "KafkaCluster",
    settings: Settings,
    note: OnNote,
    allow_data_loss: bool = False,
) -> "Fork | None":
    """Return a callback that creates the fork after Spark has started, or None if the fork exists and is resumed.

    Args:
        name: The savepoint.
        path: The fork's folder or URL.
        pipeline: The pipeline, with the output that it will have.
        kafka: The cluster.
        settings: Where savepoints are.
        note: Called with what happens.
        allow_data_loss: Continue though the source has lost records.

    Raises:
        CheckpointError: The savepoint does not exist or is of another pipeline, or the fork's folder or output is in
            use.
    """
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import fork_of
    from respool.locations import absolute, canonical_location
    from respool.operations.checkpoint import Checkpoint
    from respool.operations.savepoints import find, require_free
    from respool.storage.open import new_writer

    savepoint, location = find(name, settings), absolute(path)
    files = new_writer(location)
    fork = fork_of(files)
    if fork is not None and history.pending(files) is None:
        if canonical_location(fork.location) != savepoint.location:
            raise CheckpointError(
                f"{path} is a fork of the savepoint {fork.savepoint} at {fork.location}, not of {savepoint.location}. "
                "Name a new folder with --checkpoint."
            )
        note(f"{path} is already a fork of the savepoint {name}, and continues.")
        return None
    _require_same(savepoint, pipeline)

    def start_fork(spark: "SparkSession", original: "Pipeline") -> None:
        require_startable(spark, original, savepoint, note, settings)
        plan = savepoint.plan_fork(location, allow_data_loss=allow_data_loss)
        note(str(plan))
        Checkpoint(location, settings=settings).apply(plan, on_note=note)
        note(f"Batch {plan.batch:,} is the next to run.")

    require_free(location, path, savepoint)
    _require_new_output(pipeline, kafka, settings)
    return start_fork


def require_startable(
    spark: "SparkSession",
    pipeline: "Pipeline",
    savepoint: "StoredSavepoint",
    note: OnNote,
    settings: Settings | None = None,
) -> None:
    """Report what has changed since the savepoint; raise PipelineError when Spark could not start from it."""
    from respool.pipeline.fingerprint import Fingerprint, fingerprint_of
    from respool.running.preflight import lines, preflight

    run = savepoint.manifest.run
    old = Fingerprint.from_json(run.fingerprint) if run is not None and run.fingerprint else None
    checkpoint, new = savepoint.checkpoint(), fingerprint_of(pipeline)
    result = preflight(spark, pipeline, checkpoint, savepoint.manifest.batch, old, new, settings)
    for line in lines(result):
        note(line)
    if not result.can_start:
        raise PipelineError(
            f"The pipeline {pipeline.name} cannot start from the savepoint {savepoint.manifest.name}, for the reasons "
            "above. Nothing was changed. Undo those changes, or start it from the beginning with a new --checkpoint."
        )


def _check(pipelines: "Sequence[Pipeline]", options: "RunOptions", savepoint: str | None, data_loss: bool) -> None:
    """Raise UsageError for arguments that contradict each other."""
    from respool.pipeline.job import JobPipeline

    names = [pipeline.name for pipeline in pipelines]
    if not names:
        raise UsageError("name at least one pipeline, or a query of your own with --job")
    if len(set(names)) < len(names):
        raise UsageError(f"a pipeline is named twice: {', '.join(names)}")
    if options.checkpoint and len(names) > 1:
        raise UsageError("--checkpoint is for a single pipeline; each of several has its own under the home")
    if options.console and options.sink_suffix:
        raise UsageError("--console writes to no sink: leave --sink-suffix out")
    if savepoint and options.checkpoint is None:
        raise UsageError("--from-savepoint needs a folder for the fork: name it with --checkpoint")
    if savepoint and not (options.sink_suffix or options.console):
        raise UsageError(
            "--from-savepoint starts a second query: give it an output of its own with --sink-suffix, or --console"
        )
    if savepoint and any(isinstance(pipeline, JobPipeline) for pipeline in pipelines):
        raise UsageError(
            "--from-savepoint is for a pipeline: fork the savepoint with `respool savepoint fork`, and run the job on "
            "the fork with --checkpoint"
        )
    if data_loss and not savepoint:
        raise UsageError("--allow-data-loss is about a savepoint's records: it goes with --from-savepoint")


def _duration(value: timedelta | str | None) -> timedelta | None:
    return parse_duration(value) if isinstance(value, str) else value


def _require_new_output(pipeline: "Pipeline", kafka: "KafkaCluster", settings: Settings) -> None:
    """Raise CheckpointError when another run has written to a fork's output: their results would mix."""
    from respool.kafka import topics
    from respool.sinks.protocol import ReadableSink
    from respool.storage.open import new_writer

    sink = pipeline.sink
    kind, _, place = sink.output(settings).address.partition(":") if isinstance(sink, ReadableSink) else ("",) * 3
    occupied = kind == "delta" and bool(new_writer(place).names("_delta_log"))
    if kind == "kafka" and topics.topic_exists(kafka, place):
        occupied = topics.start_offsets(kafka, place) != topics.end_offsets(kafka, place)
    if occupied:
        raise CheckpointError(
            f"The {sink.describe()} has results of another run: a fork's would be mixed with them. "
            "Choose another --sink-suffix."
        )


def _require_same(savepoint: "StoredSavepoint", pipeline: "Pipeline") -> None:
    run = savepoint.manifest.run
    if run is not None and (run.pipeline, run.topic) != (pipeline.name, pipeline.reads):
        raise CheckpointError(
            f"The savepoint {savepoint.manifest.name} is of the pipeline {run.pipeline}, which reads {run.topic}; "
            f"expected {pipeline.name}, which reads {pipeline.reads}. Name another savepoint, or run that pipeline."
        )
