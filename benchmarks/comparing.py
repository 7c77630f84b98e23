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
from respool import topics
from respool.kafka import Kafka


@dataclass(frozen=True)
class Bench:
    """Where runs take place.

    Attributes:
        place: The bench's folder.
        kafka: Its broker.
        broker: The broker's process.
        limit: The most seconds of a run.
        say: Told what goes on.
    """

    place: Place
    kafka: Kafka
    broker: int
    limit: float
    say: Callable[[str], None]


def compare(bench: Bench, job: str, engines: Sequence[Engine], events: Data, runs: int, found: list[Run]) -> None:
    """Run engines in turns, so that what changes on the machine meanwhile strikes all of them.

    One that was stopped as its time was up is not run again: that would take the whole time every time.

    Args:
        bench: Where.
        job: What they do.
        engines: The engines.
        events: What they read.
        runs: How many runs of each.
        found: Every run is added here.
    """
    stopped = set()
    for number in range(1, runs + 1):
        for engine in engines:
            if engine.name in stopped:
                continue
            one = run_once(bench, job, engine, events)
            found.append(one)
            if one.status == "stopped":
                stopped.add(engine.name)
            steady = f"{one.steady:,.0f} events/s steady" if one.steady else "no steady rate"
            bench.say(
                f"{job} {engine.name} {number}/{runs}: {steady}, {one.wall_s:.1f} s, {one.cpu_s:.1f} CPU s, "
                f"{one.pss_mb:,.0f} MB, load {one.load:.1f}  {one.status} {one.why}".rstrip()
            )


def run_once(bench: Bench, job: str, engine: Engine, events: Data, batch: int | None = None) -> Run:
    """Run an engine once, check its result, and remove what it made."""
    name = f"{engine.name}-{job}-{uuid.uuid4().hex[:8]}"
    folder = bench.place.folder / "runs" / name
    task = Task(
        job=job,
        topic=events.topic,
        events=events.events,
        servers=bench.kafka.bootstrap_servers,
        output=_output(job, name, folder),
        folder=folder,
        batch=batch or min(BATCH, max(1, events.events // 5)),  # a small run has several batches, too
    )
    if job != "archive":
        topics.create(bench.kafka, task.output, data.PARTITIONS)
    words = engine.words(bench.place, task)
    measured = measure.run(words, folder, bench.limit, bench.broker, environ_of(bench.place, engine))
    finished = measured.in_time and measured.code == 0
    with _no_collector():
        wrong = _wrong(bench.kafka, engine, task, events) if finished else None
    size = output.table_bytes(Path(task.output)) if job == "archive" and finished and wrong is None else None
    found = run_of(job, engine.name, events.events, measured, wrong, size)
    _remove(bench.kafka, name)
    if found.counts:  # what failed is left to be looked at
        data.clear(folder)
    return found


@contextmanager
def _no_collector() -> Iterator[None]:
    """Let Python look for no cycles: among millions of results it would take half of the time, and find none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _output(job: str, name: str, folder: Path) -> str:
    return str(folder / "table") if job == "archive" else f"out-{name}"


def _wrong(kafka: Kafka, engine: Engine, task: Task, events: Data) -> str | None:
    promise = engine.promises[task.job]
    if task.job == "counts":
        told = output.windows(kafka, task.output)
        return wrong_windows(events.truth, told, None if promise.early else promise.delay)
    if task.job == "sessions":
        found = output.sessions(kafka, task.output)
        return wrong_sessions(events.truth, found, early=promise.early, delay=promise.delay)
    return output.wrong_archive(events.truth, Path(task.output))


def _remove(kafka: Kafka, name: str) -> None:
    """Delete the topics of a run, also those that an engine made for itself."""
    for topic in topics.list_topics(kafka):
        if name in topic.name:
            topics.delete(kafka, topic.name)
