"""The engines that are compared: how each is started, what it needs, and what it promises.

All of them read the same topic and write results of the same form, so that one check does for all:

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
BATCH = 200_000
RESPOOL = str(Path(sys.executable).parent / "respool")
_PIPELINES = {"counts": "visit-counts", "sessions": "sessions", "archive": "visits-archive"}


@dataclass(frozen=True)
class Task:
    """One run of one job.

    Attributes:
        job: counts, sessions or archive.
        topic: Where the events are.
        events: How many there are.
        servers: The broker.
        output: Where results go: a topic or, for an archive, the path of a table.
        folder: A folder of the run's own.
        batch: The most records of a batch, for engines that have batches.
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
    """What an engine promises of a job, so that it is compared on that.

    Attributes:
        words: How it differs from the others, for a reader.
        delay: How many minutes its watermark stays behind when it tells what is over; None when it does not tell that.
        early: It tells every window or session, also one that goes on.
    """

    words: str
    delay: int | None = None
    early: bool = False


@dataclass(frozen=True)
class Engine:
    """An engine.

    Attributes:
        name: Its name.
        title: Its name for readers, with what it is.
        recovers: It goes on after a crash with its state and positions.
        promises: The jobs that it can do.
        words: The command of a task.
        prepare: Makes what it needs, and returns what it runs on; raises NotHere when that cannot be had.
        environ: What to add to its environment.
    """

    name: str
    title: str
    recovers: bool
    promises: Mapping[str, Promise]
    words: Callable[[Place, Task], list[str]]
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
    files = ",".join(str(one) for one in jars.spark_jars(Settings()))
    return [
        *(sys.executable, str(PEERS / "pyspark" / "program.py"), task.job, "--topic", task.topic, "--jars", files),
        *("--servers", task.servers, "--output", task.output, "--batch", str(task.batch)),
        *("--checkpoint", str(task.folder / "checkpoint")),
    ]


def _python(name: str) -> Callable[[Place, Task], list[str]]:
    def words(place: Place, task: Task) -> list[str]:
        return [
            *(environments.python(place, name), str(PEERS / name / "program.py"), task.job, "--topic", task.topic),
            *("--servers", task.servers, "--output", task.output, "--events", str(task.events)),
        ]

    return words


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


def _here(_: Place) -> str:
    from importlib.metadata import version

    return f"pyspark {version('pyspark')}, delta-spark and connector of respool"


_NO_DEAD_LETTERS = "records that do not decode are not kept, as the others keep none"
_OVER = "tells a window once, when the watermark, 10 minutes behind, has passed its end"
_EARLY_AND_FINAL = "an early result at every batch that changes a session, a final one when the watermark has passed it"
_ARCHIVED = "every record with all its columns, partitioned by date and hour of event time"

_CHECKPOINTS = "how far it is, is known by its checkpoints, one a second"
_IN_MEMORY = "in memory: a crash loses everything"
_CHANGES = "tells a window whenever it changes; late events are waited for without end"
_NEXT = "an early result for each event; a session is told as finished only at the next event of its visit"

ENGINES = (
    Engine(
        name="respool",
        title="respool",
        recovers=True,
        promises={
            "counts": Promise(f"{_OVER}; {_NO_DEAD_LETTERS}", delay=10),
            "sessions": Promise(f"{_EARLY_AND_FINAL}; {_NO_DEAD_LETTERS}", delay=15, early=True),
            "archive": Promise(f"{_ARCHIVED}; a batch that comes again adds nothing twice"),
        },
        words=_respool,
        prepare=_here,
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
        words=_pyspark,
        prepare=_here,
    ),
    Engine(
        name="kafka-streams",
        title="Kafka Streams",
        recovers=True,
        promises={
            "counts": Promise(_CHANGES, early=True),
            "sessions": Promise("a result when the cache lets go of a session, never a final one", early=True),
        },
        words=_streams,
        prepare=_streams_ready,
    ),
    Engine(
        name="flink",
        title="Flink SQL (PyFlink)",
        recovers=True,
        promises={
            "counts": Promise(f"{_OVER}; at the end of its input, all; {_CHECKPOINTS}", delay=10),
            "sessions": Promise(f"finished sessions only; at the end of its input, all; {_CHECKPOINTS}", delay=15),
        },
        words=_python("flink"),
        prepare=_flink_ready,
        environ=lambda place: {"FLINK_KAFKA_JAR": str(_flink_jar(place))},
    ),
    Engine(
        name="bytewax",
        title="Bytewax",
        recovers=True,
        promises={
            "counts": Promise("tells a window once, an hour after its end; at the end of its input, all", delay=60),
            "sessions": Promise(_NEXT, early=True),
        },
        words=_python("bytewax"),
        prepare=lambda place: environments.ready(place, "bytewax"),
    ),
    Engine(
        name="quix",
        title="Quix Streams",
        recovers=True,
        promises={"counts": Promise(_CHANGES, early=True), "sessions": Promise(_NEXT, early=True)},
        words=_python("quix"),
        prepare=lambda place: environments.ready(place, "quix"),
    ),
    Engine(
        name="pathway",
        title="Pathway",
        recovers=True,
        promises={
            "counts": Promise(_CHANGES, early=True),
            "sessions": Promise("a result whenever a session changes, never a final one", early=True),
        },
        words=_python("pathway"),
        prepare=lambda place: environments.ready(place, "pathway"),
    ),
    Engine(
        name="bare",
        title="bare consumer loop",
        recovers=False,
        promises={
            "counts": Promise(f"{_IN_MEMORY}; tells the windows that have changed, each 100,000 events", early=True),
            "sessions": Promise(f"{_IN_MEMORY}; an early result for each event, never a final one", early=True),
        },
        words=_python("bare"),
        prepare=lambda place: environments.ready(place, "bare", optional=True),
    ),
)


def environ_of(place: Place, engine: Engine) -> dict[str, str]:
    """Return what an engine's process finds in its environment beside what is there."""
    return {"TZ": "UTC", "PYTHONUNBUFFERED": "1", **engine.environ(place)}
