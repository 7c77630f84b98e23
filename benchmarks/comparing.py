"""Counts, sessions and archive: engines take turns on the same topic, and their results are checked."""

import gc
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data, measure, output
from benchmarks.data import Data
from benchmarks.engines import BATCH, Engine, Task, environ_of
from benchmarks.environments import Place
from benchmarks.results import Run, run_of
from benchmarks.truth import wrong_sessions, wrong_windows
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster


@dataclass(frozen=True)
class Bench:
    """The setup that runs share.

    Attributes:
        place: The folder of the benchmark.
        kafka: Its broker.
        broker: The broker's process.
        limit: The maximum number of seconds of a run.
        say: Prints progress.
    """

    place: Place
    kafka: KafkaCluster
    broker: int
    limit: float
    say: Callable[[str], None]


def compare(bench: Bench, job: str, engines: Sequence[Engine], events: Data, runs: int, results: list[Run]) -> None:
    """Run engines in turns, so that other load on the machine affects all of them.

    An engine that reached the time limit is not run again: it would take the whole time in every run.

    Args:
        bench: The setup.
        job: The job.
        engines: The engines.
        events: The events that they read.
        runs: How many runs of each engine.
        results: Every run is appended to this list.
    """
    stopped = set()
    for number in range(1, runs + 1):
        for engine in engines:
            if engine.name in stopped:
                continue
            run = run_once(bench, job, engine, events)
            results.append(run)
            if run.status == "stopped":
                stopped.add(engine.name)
            steady = f"{run.steady:,.0f} events/s steady" if run.steady else "no steady rate"
            bench.say(
                f"{job} {engine.name} {number}/{runs}: {steady}, {run.wall_s:.1f} s, {run.cpu_s:.1f} CPU s, "
                f"{run.pss_mb:,.0f} MB, load {run.load:.1f}  {run.status} {run.why}".rstrip()
            )


def run_once(bench: Bench, job: str, engine: Engine, events: Data, batch: int | None = None) -> Run:
    """Run an engine once, check its result, and delete its topics and files."""
    name = f"{engine.name}-{job}-{uuid.uuid4().hex[:8]}"
    folder = bench.place.folder / "runs" / name
    task = Task(
        job=job,
        topic=events.topic,
        events=events.events,
        servers=bench.kafka.bootstrap_servers,
        output=_output(job, name, folder),
        folder=folder,
        batch=batch or min(BATCH, max(1, events.events // 5)),  # so that a small run has several batches, too
    )
    if job != "archive":
        topics.create(bench.kafka, task.output, data.PARTITIONS)
    command = engine.command(bench.place, task)
    measured = measure.run(command, folder, bench.limit, bench.broker, environ_of(bench.place, engine))
    finished = measured.in_time and measured.code == 0
    with _no_collector():
        wrong = _wrong(bench.kafka, engine, task, events) if finished else None
    size = output.table_bytes(Path(task.output)) if job == "archive" and finished and wrong is None else None
    run = run_of(job, engine.name, events.events, measured, wrong, size)
    _remove(bench.kafka, name)
    if run.counts:  # the files of a failed run are kept for inspection
        data.clear(folder)
    return run


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable the garbage collector: with millions of results it would take half of the time and free nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _output(job: str, name: str, folder: Path) -> str:
    return str(folder / "table") if job == "archive" else f"out-{name}"


def _wrong(kafka: KafkaCluster, engine: Engine, task: Task, events: Data) -> str | None:
    promise = engine.promises[task.job]
    if task.job == "counts":
        published = output.windows(kafka, task.output)
        return wrong_windows(events.truth, published, None if promise.early else promise.delay)
    if task.job == "sessions":
        results = output.sessions(kafka, task.output)
        return wrong_sessions(events.truth, results, early=promise.early, delay=promise.delay)
    return output.wrong_archive(events.truth, Path(task.output))


def _remove(kafka: KafkaCluster, name: str) -> None:
    """Delete the topics of a run, including the internal topics of its engine."""
    for topic in topics.list_topics(kafka):
        if name in topic.name:
            topics.delete(kafka, topic.name)
