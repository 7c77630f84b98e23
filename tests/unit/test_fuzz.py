"""Whatever is in a file: a read ends with a result or with an error of respool's own, soon, and changes nothing.

A failing mutation is printed with its number. Replay it with RESPOOL_FUZZ_ONLY=NUMBER; run other mutations with
RESPOOL_FUZZ_SEED=SEED, more or fewer of them with RESPOOL_FUZZ_COUNT.
"""

import contextlib
import io
import json
import os
import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import typer

from respool import process, settings
from respool.archive import high_water
from respool.checkpoint import ownership
from respool.checkpoint.journal import apply, history
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.commands import checkpoint as checkpoint_cli
from respool.cli.commands import savepoint as savepoint_cli
from respool.cli.render.output import print_note
from respool.delta.log import DeltaLog
from respool.errors import RespoolError
from respool.local import broker_files
from respool.operations.check import check
from respool.pipeline.results import Windows
from respool.reprocessing.runs import Runs
from respool.savepoint.store import SavepointStore
from respool.sinks.address import FileAddress
from respool.sinks.protocol import kafka_identity
from respool.sinks.registry import replay_of
from respool.storage import lease, local_lock
from respool.storage.local import LocalReader, LocalWriter
from support import checkpoints, fuzzing, savepoints

SEED = int(os.environ.get("RESPOOL_FUZZ_SEED", "20250904"))
COUNT = int(os.environ.get("RESPOOL_FUZZ_COUNT", "5000"))
ONLY = [int(number) for number in os.environ.get("RESPOOL_FUZZ_ONLY", "").split(",") if number]
CHUNKS = 10
LONGEST = 60  # seconds that the reads of one mutation may take on a busy machine
KEPT = 4  # batches of each checkpoint
MEMORY = 2**30  # bytes that the reads may take
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
# Small checkpoints that have every kind of file between them.
KINDS = (
    *("kafka", "hdfs-purged", "changelog-purged", "ids", "ids-changelog", "transform", "join", "offsets-v2"),
    *("rate", "stateless", "async", "named"),
)

SETTINGS = """
timezone = "Europe/Paris"
bootstrap_servers = "localhost:9092"
storage = "s3://bucket/a"
broker_port = 9092
log_format = "json"
kafka."security.protocol" = "SASL_SSL"
kafka.sasl = {mechanism = "PLAIN", username = "a", password = "file:password"}
spark."spark.sql.shuffle.partitions" = 4
[s3]
endpoint = "http://localhost:9"
path_style = true
[pipelines.visit-counts]
window = "10m"
[pipelines."support.own_pipeline:PIPELINE"]
"""

Read = Callable[[Random], None]


class TooLongError(BaseException):
    """A read does not end."""


@dataclass
class Subject:
    """A folder whose files are changed, and what reads them.

    Attributes:
        root: The folder.
        files: Its files.
        reads: What reads them.
        weight: How many of its mutations there are beside those of others.
        names: Whether names are changed, too.
        before: What is in the folder.
        groups: The files by what they are: each sort is changed as often as any other.
    """

    root: Path
    files: list[str]
    reads: list[Read]
    weight: int = 1
    names: bool = True
    before: dict[str, bytes] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = _content(self.root)
        for path in self.files:
            self.groups.setdefault(_group(path), []).append(path)


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    home = tmp_path_factory.mktemp("fuzz")
    made = [_checkpoint(home, kind) for kind in KINDS]
    made += [_changed(home), _cut_off(home), *_savepoints(home), _file_sink(home), _delta(home), *_small(home)]
    return [subject for subject in made for _ in range(subject.weight)]


@pytest.fixture(autouse=True)
def no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for processes that have files open: it takes most of the time, and reads no file of a checkpoint."""
    monkeypatch.setattr(local_lock, "processes_in", lambda folder: ())


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Let a size that is read from a file and allocated end in a MemoryError, not in the end of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_mutation_escapes(subjects: list[Subject], chunk: int) -> None:
    failed = []
    numbers = ONLY or range(COUNT)
    for number in numbers:
        if number % CHUNKS == chunk and (failure := _run(subjects[number // CHUNKS % len(subjects)], number)):
            failed.append(failure)
    for subject in {id(each): each for each in subjects}.values():
        assert _content(subject.root) == subject.before
    assert not failed, f"{len(failed)} mutations of seed {SEED} escape:\n" + "\n".join(failed)


def _run(subject: Subject, number: int) -> str | None:
    """Make one mutation, and return what escapes of the reads, if anything does."""
    rng = Random(f"{SEED}:{number}")
    path = rng.choice(subject.groups[rng.choice(sorted(subject.groups))])
    mutate = fuzzing.renamed if subject.names and rng.random() < 0.15 else fuzzing.changed
    reads = rng.getrandbits(64)
    with mutate(subject.root, path, rng) as what:
        names = _names(subject.root)
        for at, read in enumerate(subject.reads):
            escaped = _escapes(read, Random(f"{reads}:{at}"))
            if escaped:
                return f"RESPOOL_FUZZ_ONLY={number} ({subject.root.name}: {what[:200]}): {escaped}"
        if _names(subject.root) != names:
            return f"RESPOOL_FUZZ_ONLY={number} ({subject.root.name}: {what[:200]}): something was written"
    return None


def _escapes(read: Read, rng: Random) -> str | None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                read(rng)
            except RespoolError as error:
                print_note(f"error: {error}")  # as `respool` does
    except (typer.Exit, typer.BadParameter):
        pass
    except (Exception, TooLongError) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        frames = traceback.extract_tb(error.__traceback__)
        own = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "/respool/" in frame.filename]
        return f"{type(error).__name__}: {str(error)[:120]!a} at {' '.join(own[-3:])}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    printed = out.buffer.getvalue()
    control = [byte for byte in printed if byte < 32 and byte != 10]
    return f"a control character is printed: {control[0]:#x}" if control else None


def _group(path: str) -> str:
    """Return what sort of file a path is of: the same for all batches, partitions and ids."""
    if path.endswith(".crc"):
        return "hidden checksum" if path.rpartition("/")[2].startswith(".") else "checksum"
    folder, _, name = re.sub(r"[0-9]+", "0", path).rpartition("/")
    return f"{folder}.{name.rpartition('.')[2]}" if folder.startswith("state") and "." in name else folder or name


def _too_long(*_: object) -> None:
    raise TooLongError


def _names(root: Path) -> set[str]:
    return {os.path.join(here, name) for here, _, names in os.walk(root) for name in names}


def _content(root: Path) -> dict[str, bytes]:
    return {path: Path(path).read_bytes() for path in _names(root)}


def _files(root: Path, *folders: str) -> list[str]:
    every = sorted(os.path.relpath(path, root) for path in _names(root))
    return [path for path in every if path.startswith(folders) and not path.endswith((".sst", "/lock"))]


def _reads(root: Path, home: Path) -> list[Read]:
    """Return what reads a checkpoint: all that `respool checkpoint` can do without changing it."""
    where, newest = str(root), max(int(name) for name in os.listdir(root / "offsets") if name.isdecimal())

    def rewind(rng: Random) -> None:
        batch = rng.randrange(newest + 2)
        goal: dict[str, Any] = rng.choice(
            (
                {"to_batch": batch},
                {"to_batch": max(newest - 1, 0)},
                {"last": max(1, newest + 1 - batch)},
                {"to_time": "2025-09-04T07:30:00Z"},
                {"to_offsets": '{"visits":{"0":3}}'},
            )
        )
        options: dict[str, Any] = {
            "same_range": rng.random() < 0.3,
            "files_too": True,
            "json": rng.random() < 0.5,
            "stopped": True,
        }
        new_id = rng.random() < 0.2
        checkpoint_cli.rewind(where, **goal, **options, new_query_id=new_id, dry_run=True, home=home)

    return [
        lambda rng: checkpoint_cli.show(where, home=home, json=rng.random() < 0.5),
        lambda rng: checkpoint_cli.verify(where, home=home, json=rng.random() < 0.5),
        rewind,
        lambda rng: checkpoint_cli.undo(where, dry_run=True, home=home, json=rng.random() < 0.5),
        lambda rng: checkpoint_cli.history(where, home=home, json=rng.random() < 0.5),
    ]


def _checkpoint(home: Path, kind: str) -> Subject:
    root = checkpoints.settled(checkpoints.unpack(home / "checkpoints", kind))
    _forget(root)
    return Subject(root, _files(root, ""), _reads(root, home / "home"))


def _forget(root: Path) -> None:
    """Delete all but the newest batches from the logs, as Spark does: what is read often is to be small."""
    for folder in ("offsets", "commits"):
        batches = sorted(int(name) for name in os.listdir(root / folder) if name.isdecimal())
        for batch in batches[:-KEPT]:
            checkpoints.gone(root / folder / str(batch))


def _rewound(home: Path, name: str, finish: bool) -> Path:
    root = checkpoints.unpack(home / name, "kafka")
    checkpoint = CheckpointSnapshot(LocalReader(root))
    request = RewindRequest(ToBatch(checkpoint.next_batch - 2), new_query_id=True, stopped=True, words="--last 2")
    plan = plan_rewind(checkpoint, request, RewindContext(now=NOW))
    (apply.apply if finish else apply.begin)(plan.journal, LocalWriter(root))
    return root


def _changed(home: Path) -> Subject:
    """Return a checkpoint that respool has run, forked and rewound."""
    root = _rewound(home, "changed", finish=True)
    code = {"code": {"a:b": "c"}, "settings": {"x": "y"}}
    run = {"pipeline": "counts", "topic": "visits", "sink": "Kafka topic x", "on_replay": "", "fingerprint": code}
    fork = {**dict.fromkeys(("savepoint", "location", "checkpoint", "query_id", "sink"), "x"), "batch": 3}
    fork["created"] = "2025-09-04T07:30:00+00:00"
    identities = {
        "sink_identity": kafka_identity("x").__dict__,
        "results_identity": Windows("10m").identity().__dict__,
    }
    notes = {ownership.RUN: {**run, "output_key": ["a"], "fixed": {"b": "c"}, **identities}, ownership.FORK: fork}
    notes[ownership.PROMOTED] = {"checkpoint": str(root), "journal": "20260101T000000Z-1"}
    for path, facts in notes.items():
        (root / path).write_text(json.dumps(facts))
    files = LocalWriter(root)
    reads: list[Read] = [
        lambda rng: print(ownership.promotion_of(files), ownership.read_run_record(files), ownership.fork_of(files))
    ]
    return Subject(root, _files(root, "_respool/history", *notes), [*_reads(root, home / "home"), *reads], weight=4)


def _cut_off(home: Path) -> Subject:
    root = _rewound(home, "cut-off", finish=False)
    return Subject(root, [history.PENDING], _reads(root, home / "home"), weight=2, names=False)


def _savepoint_reads(places: dict[str, Any], target: str, home: Path) -> list[Read]:
    return [
        lambda rng: savepoint_cli.list_(**places, json=rng.random() < 0.5),
        lambda rng: savepoint_cli.show("one", **places, json=rng.random() < 0.5),
        lambda rng: savepoint_cli.verify("one", **places, json=rng.random() < 0.5),
        lambda rng: savepoint_cli.restore("one", target, dry_run=True, **places),
        lambda rng: savepoint_cli.fork("one", str(home / "new"), dry_run=True, **places),
    ]


def _savepoints(home: Path) -> list[Subject]:
    made = []
    for kind in ("kafka", "transform"):
        checkpoint = checkpoints.settled(checkpoints.unpack(home / f"of-{kind}", kind))
        store = SavepointStore(str(home / f"savepoints-{kind}"))
        savepoints.save(checkpoint, store)
        root = Path(store.location)
        reads = _savepoint_reads({"savepoints": store.location, "home": home / "home"}, str(checkpoint), home)
        whole = Subject(root, _files(root, ""), reads)
        made += [whole, Subject(root, ["one/manifest.json"], reads, weight=2, names=False)]
    return made


def _file_sink(home: Path) -> Subject:
    root = home / "sink"
    for number in range(3):
        name = f"part-0000{number}.parquet"
        checkpoints.written(root / name, "x")
        entry = {"path": f"file://{root}/{name}", "size": 1, "isDir": False, "modificationTime": 1, "action": "add"}
        checkpoints.written(root / f"_spark_metadata/{number}", f"v1\n{json.dumps(entry)}")
    return Subject(
        root, _files(root, "_spark"), [lambda rng: print(replay_of(FileAddress(str(root)), ["a"], rng.randrange(3)))]
    )


def _delta(home: Path) -> Subject:
    """Return the log of a Delta table, with a restore and a commit of the archive in it."""
    root = home / "table"
    stats = {"minValues": {"topic": "visits", "partition": 0}, "maxValues": {"topic": "visits", "partition": 0}}
    stats["maxValues"]["offset"] = 7
    note = high_water.ArchivedOffsets(3, {("visits", 0): 7}).to_json()
    infos = [
        {"operation": "STREAMING UPDATE", "operationParameters": {"epochId": "0"}},
        {"operation": "RESTORE", "operationParameters": {"version": 0}},
        {"operation": "WRITE", "userMetadata": note},
        {"operation": "RESTORE", "respool": "restored"},
    ]
    for version, info in enumerate(infos):
        add = {"path": "x", "dataChange": True, "stats": json.dumps(stats)}
        lines = [{"commitInfo": info}, {"txn": {"appId": "a", "version": version}}, {"add": add}]
        checkpoints.written(root / f"_delta_log/{version:020}.json", "\n".join(json.dumps(action) for action in lines))

    def read(rng: Random) -> None:
        print([str(commit) for commit in DeltaLog(str(root)).lineage(3)])

    def archived(rng: Random) -> None:
        for version in range(4):
            path = root / f"_delta_log/{version:020}.json"
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                high_water.ArchivedOffsets.from_json(high_water._user_metadata(text))
                high_water._added(text)

    return Subject(root, _files(root, ""), [read, archived])


def _small(home: Path) -> Iterator[Subject]:
    """Yield the files that have one reader each."""
    own = home / "own"
    task = {"pipeline": "a", "start": "", "end": "", "slice": 1.0, "table": "", "to": "", "results": "", "timezone": ""}
    run = {"run": "r", "task": task, "version": 1, "slices": 2, "done": 1, "results": 3, "withdrawn": 0}
    checkpoints.written(own / "reprocess/r/run.json", json.dumps({**run, "complete": False}))
    identities = {"to": kafka_identity("x").__dict__, "results": Windows("10m").identity().__dict__}
    newer = {**run, "run": "s", "format": 2, "task": {**task, **identities}, "complete": False}
    checkpoints.written(own / "reprocess/s/run.json", json.dumps(newer))
    checkpoints.written(own / "broker/broker.json", json.dumps({"port": 9092, "wanted": 0}))
    checkpoints.written(own / "broker/process.json", json.dumps({"pid": os.getpid(), "started": "x"}))
    leased = {"token": "x", "process": 1, "host": "h", "renewed": 4_102_444_800.0}
    checkpoints.written(own / "remote/_respool/lease.json", json.dumps(leased))
    reads: dict[str, Read] = {
        "reprocess": lambda rng: print(Runs(own).read("r"), Runs(own).read("s")),
        "broker/broker.json": lambda rng: print(broker_files.last_start(own)),
        "broker/process.json": lambda rng: print(process.find(own / "broker/process.json")),
        "remote": lambda rng: print(lease.holder(f"local://{own}/remote")),
    }
    for path, read in reads.items():
        yield Subject(own, _files(own, path), [partial(_call, read)])
    checkpoints.written(home / "settings/respool.toml", SETTINGS)
    (home / "settings/password").write_text("secret")
    yield Subject(
        home / "settings",
        ["respool.toml", "password"],
        [
            lambda rng: print(settings.load(environ={}, folder=home / "settings")),
            lambda rng: print(check(settings=settings.load(environ={}, folder=home / "settings"))),
        ],
    )


def _call(read: Read, rng: Random) -> None:
    read(rng)
