"""The engines that are compared: how each is started, what it needs, and what it promises.

All of them read the same topic and write results in the same format, so that the same checks apply to all:

    counts     {"window": {"start": …}, "count": …}
    sessions   {"visit_id": …, "session_start": …, "session_end": …, "visited_pages": …, "is_finished": …}
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import environments
from benchmarks.environments import Place
from respool.local import jars
from respool.settings import Settings

PEERS = Path(__file__).parent / "peers"
_ROOT = Path(__file__).parents[1]
BATCH = 200_000
RESPOOL = str(Path(sys.executable).parent / "respool")
_PIPELINES = {"counts": "visit-counts", "sessions": "sessions", "archive": "visits-archive"}


@dataclass(frozen=True)
class Task:
    """A run of a job.

    Attributes:
        job: counts, sessions or archive.
        topic: The topic of the events.
        events: The number of events.
        servers: The broker.
        output: Where results go: a topic or, for an archive, the path of a table.
        folder: The folder of the run.
        batch: The maximum number of records of a batch, for engines that have batches.
    """

    job: str
    topic: str
    events: int
    servers: str
    output: str
    folder: Path
    batch: int


@dataclass(frozen=True)
class Promise:
    """What an engine promises for a job, which its results are checked against.

    Attributes:
        text: How it differs from the others, human-readable.
        delay: How many minutes its watermark is behind, if it publishes final results when the watermark passes; None
            if it does not.
        early: It publishes every window or session, including those that are still open.
    """

    text: str
    delay: int | None = None
    early: bool = False


@dataclass(frozen=True)
class Engine:
    """An engine.

    Attributes:
        name: Its name.
        title: Its name in reports.
        recovers: It resumes after a crash with its state and offsets.
        promises: What it promises for each job that it can do.
        command: The command of a task.
        prepare: Installs what it needs, and returns its versions; raises NotAvailable if that is not possible.
        environ: Environment variables to add.
    """

    name: str
    title: str
    recovers: bool
    promises: Mapping[str, Promise]
    command: Callable[[Place, Task], list[str]]
    prepare: Callable[[Place], str]
    environ: Callable[[Place], dict[str, str]] = lambda place: {}


def _respool(place: Place, task: Task) -> list[str]:
    output = "table" if task.job == "archive" else "output_topic"
    return [
        *(RESPOOL, "run", _PIPELINES[task.job], "--available-now", "--json", "--no-dead-letter"),
        *("--max-offsets-per-trigger", str(task.batch), "--master", "local[2]"),
        *("--set", f"topic={task.topic}", "--set", f"{output}={task.output}"),
        *("--bootstrap-servers", task.servers, "--home", str(task.folder / "home")),
    ]


def _pyspark(place: Place, task: Task) -> list[str]:
    files = ",".join(str(jar) for jar in jars.spark_jars(Settings()))
    return [
        *(sys.executable, str(PEERS / "pyspark" / "program.py"), task.job, "--topic", task.topic, "--jars", files),
        *("--servers", task.servers, "--output", task.output, "--batch", str(task.batch)),
        *("--checkpoint", str(task.folder / "checkpoint")),
    ]


def _python(name: str) -> Callable[[Place, Task], list[str]]:
    def command(place: Place, task: Task) -> list[str]:
        return [
            *(environments.python(place, name), str(PEERS / name / "program.py"), task.job, "--topic", task.topic),
            *("--servers", task.servers, "--output", task.output, "--events", str(task.events)),
        ]

    return command


def _streams(place: Place, task: Task) -> list[str]:
    target = place.folder / "kafka-streams"
    return [
        *("java", "-Xmx2g", "-cp", f"{target}/peer.jar:{target}/lib/*", "bench.Peer", task.job, task.topic),
        *(task.servers, task.output, str(task.events), f"streams-{task.output}", str(task.folder / "state")),
    ]


def _streams_ready(place: Place) -> str:
    environments.maven(place, PEERS / "kafka-streams", place.folder / "kafka-streams" / "peer.jar", "package")
    return "kafka-streams 4.1.1, 2 threads, cache of 64 MB"


def _flink_jar(place: Place) -> Path:
    return place.folder / "flink" / "flink-sql-connector-kafka.jar"


def _flink_ready(place: Place) -> str:
    packages = environments.ready(place, "flink")
    environments.maven(place, PEERS / "flink", _flink_jar(place), "dependency:copy-dependencies")
    return f"{packages}, connector 5.0.0-2.2"


def _own_packages(_: Place) -> str:
    from importlib.metadata import version

    return f"pyspark {version('pyspark')}, delta-spark and connector of respool"


def _peer_environ(_: Place) -> dict[str, str]:
    """Return the variables of a peer's Python program, which imports `benchmarks.peers.command`."""
    return {"PYTHONPATH": str(_ROOT)}


_NO_DEAD_LETTERS = "records that do not decode are dropped, as by the other engines"
_OVER = "publishes a window once, when the watermark (10 minutes behind) has passed its end"
_EARLY_AND_FINAL = (
    "an early result for every batch that changes a session, a final result when the watermark has passed it"
)
_ARCHIVED = "every record with all its columns, partitioned by date and hour of event time"

_CHECKPOINTS = "progress is measured by its checkpoints, every second"
_IN_MEMORY = "in memory: a crash loses all state"
_CHANGES = "publishes a window whenever it changes; late events are accepted without limit"
_NEXT = "an early result for each event; a session is finished only by the next event of its visit"

ENGINES = (
    Engine(
        name="respool",
        title="respool",
        recovers=True,
        promises={
            "counts": Promise(f"{_OVER}; {_NO_DEAD_LETTERS}", delay=10),
            "sessions": Promise(f"{_EARLY_AND_FINAL}; {_NO_DEAD_LETTERS}", delay=15, early=True),
            "archive": Promise(f"{_ARCHIVED}; a replayed batch adds no duplicates"),
        },
        command=_respool,
        prepare=_own_packages,
    ),
    Engine(
        name="pyspark",
        title="plain PySpark",
        recovers=True,
        promises={
            "counts": Promise(_OVER, delay=10),
            "sessions": Promise(
                f"{_EARLY_AND_FINAL}; transformWithStateInPandas, visit by visit", delay=15, early=True
            ),
            "archive": Promise(_ARCHIVED),
        },
        command=_pyspark,
        prepare=_own_packages,
        environ=_peer_environ,
    ),
    Engine(
        name="kafka-streams",
        title="Kafka Streams",
        recovers=True,
        promises={
            "counts": Promise(_CHANGES, early=True),
            "sessions": Promise("a result when the cache evicts a session, never a final result", early=True),
        },
        command=_streams,
        prepare=_streams_ready,
    ),
    Engine(
        name="flink",
        title="Flink SQL (PyFlink)",
        recovers=True,
        promises={
            "counts": Promise(f"{_OVER}; all at the end of its input; {_CHECKPOINTS}", delay=10),
            "sessions": Promise(f"finished sessions only; all at the end of its input; {_CHECKPOINTS}", delay=15),
        },
        command=_python("flink"),
        prepare=_flink_ready,
        environ=lambda place: {**_peer_environ(place), "FLINK_KAFKA_JAR": str(_flink_jar(place))},
    ),
    Engine(
        name="bytewax",
        title="Bytewax",
        recovers=True,
        promises={
            "counts": Promise("publishes a window once, an hour after its end; all at the end of its input", delay=60),
            "sessions": Promise(_NEXT, early=True),
        },
        command=_python("bytewax"),
        prepare=lambda place: environments.ready(place, "bytewax"),
        environ=_peer_environ,
    ),
    Engine(
        name="quix",
        title="Quix Streams",
        recovers=True,
        promises={"counts": Promise(_CHANGES, early=True), "sessions": Promise(_NEXT, early=True)},
        command=_python("quix"),
        prepare=lambda place: environments.ready(place, "quix"),
        environ=_peer_environ,
    ),
    Engine(
        name="pathway",
        title="Pathway",
        recovers=True,
        promises={
            "counts": Promise(_CHANGES, early=True),
            "sessions": Promise("a result whenever a session changes, never a final result", early=True),
        },
        command=_python("pathway"),
        prepare=lambda place: environments.ready(place, "pathway"),
        environ=_peer_environ,
    ),
    Engine(
        name="bare",
        title="bare consumer loop",
        recovers=False,
        promises={
            "counts": Promise(f"{_IN_MEMORY}; publishes changed windows every 100,000 events", early=True),
            "sessions": Promise(f"{_IN_MEMORY}; an early result for each event, never a final result", early=True),
        },
        command=_python("bare"),
        prepare=lambda place: environments.ready(place, "bare", optional=True),
        environ=_peer_environ,
    ),
)


def environ_of(place: Place, engine: Engine) -> dict[str, str]:
    """Return the variables to add to the environment of an engine's process."""
    return {"TZ": "UTC", "PYTHONUNBUFFERED": "1", **engine.environ(place)}
