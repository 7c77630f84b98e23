"""The checks at the end of a run. Each returns violations; an empty list means that all guarantees hold."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from chaos import processes, truth
from chaos.events import Event
from chaos.place import Place
from chaos.producer import TOPIC
from chaos.truth import Published, Truth
from chaos.world import SESSIONS_TOPIC, WINDOWS_TOPIC, World

ARCHIVE = "visits_table"


@dataclass
class Figures:
    """Counts at the end of a run.

    Attributes:
        records: The records in the topic.
        archived: The rows of the archive.
        windows: The windows that were expected.
        sessions: The sessions that were expected.
        result_records: The records in the topics of results, replays included.
        stale: Early results that rewinds and restores left behind, withdrawn by a reprocess.
        rejected: The records that do not decode.
        savepoints: The savepoints that were verified.
        checkpoints: The checkpoints that were verified.
        forks: The forks whose results were compared.
        spark_leftovers: Unfinished files that killed JVMs left in checkpoints, which Spark ignores.
    """

    records: int = 0
    archived: int = 0
    windows: int = 0
    sessions: int = 0
    result_records: int = 0
    stale: int = 0
    rejected: int = 0
    savepoints: int = 0
    checkpoints: int = 0
    forks: int = 0
    spark_leftovers: int = 0
    checked: list[str] = field(default_factory=list)


def check_all(world: World, figures: Figures) -> None:
    """Check the topic, the archive, the results, the checkpoints and the savepoints; the broker must be running."""
    sent = world.producer.sent
    expected = truth.truth_of(sent)
    figures.windows, figures.sessions = len(expected.windows), len(expected.sessions)
    figures.rejected = sum(event.time is None for event in sent)
    records = world.topics.read(TOPIC)
    figures.records = len(records)
    _report(world, "topic", produced_once(sent, records))
    archived = read_archive(world.place.home / "archive" / ARCHIVE)
    figures.archived = len(archived)
    _report(world, "archive", archived_once(records, archived))
    _report(world, "rejected records", _rejected(world, records, sent))
    _report(world, "windows", _windows(world, expected, figures))
    _report(world, "sessions", _sessions(world, expected, figures))
    _report(world, "forks", _forks(world, expected, figures))
    _report(world, "checkpoints", _verify(world, figures))
    figures.checked += ["topic", "archive", "rejected records", "windows", "sessions", "forks", "checkpoints"]


def check_leftovers(place: Place, figures: Figures) -> list[str]:
    """Return the processes and files that are left behind or accessible to others, after everything was stopped."""
    wrong = [
        f"process {process.pid} ({process.role}) is still running: {process.command[:200]}"
        for process in processes.wait_until_gone(place.marker, None, 30)
    ]
    figures.checked.append("leftovers")
    wrong += [f"{path.relative_to(place.home)} was left behind" for path in leftover_files(place.home)]
    wrong += [f"{path.relative_to(place.home)} is accessible to other users" for path in open_files(place.home)]
    figures.spark_leftovers = sum(
        1 for path in (place.home / "checkpoints").rglob(".*.tmp*") if "_respool" not in path.parts
    )
    return truth.shortened(wrong)


def leftover_files(home: Path) -> list[Path]:
    """Return the files of respool that an interrupted command left behind and no later command removed."""
    checkpoints = home / "checkpoints"
    patterns = ("*/_respool/staged", "*/_respool/pending.json", "*/_respool/**/.*.tmp")
    leftovers = [path for pattern in patterns for path in checkpoints.glob(pattern)]
    store = home / "savepoints"
    if store.is_dir():
        leftovers += [path for path in store.rglob(".*.tmp")]
        for savepoint in store.iterdir():
            manifest = savepoint / "manifest.json"
            if not manifest.is_file():
                leftovers.append(savepoint)
                continue
            data = json.loads(manifest.read_text(encoding="utf-8"))["data"]
            leftovers += [path for path in savepoint.iterdir() if path.name not in ("manifest.json", data)]
    broker = home / "broker"
    leftovers += [*broker.glob("*.new"), *broker.glob("data.new-*"), *broker.glob("process.json")]
    return sorted(leftovers)


def open_files(home: Path) -> list[Path]:
    """Return the files and folders of a home that users other than the owner may read or write."""
    return sorted(path for path in home.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077)


def produced_once(sent: Iterable[Event], records: Iterable[Published]) -> list[str]:
    """Return how the topic differs from the events acknowledged to the producer."""
    expected = Counter(event.value for event in sent)
    actual = Counter(record.value or b"" for record in records)
    wrong = [f"acknowledged, but not in the topic: {value.decode()[:80]}" for value in expected - actual]
    wrong += [f"in the topic more than once: {value.decode()[:80]}" for value in actual - expected]
    return truth.shortened(wrong)


def read_archive(table: Path) -> list[tuple[int, int, bytes]]:
    """Return the partition, the offset and the value of every row of the archive, without Spark."""
    import deltalake
    import pyarrow as pa

    rows = pa.table(deltalake.DeltaTable(table).to_pyarrow_dataset().to_table(columns=["partition", "offset", "value"]))
    columns = [rows.column(name).to_pylist() for name in ("partition", "offset", "value")]
    return list(zip(*columns, strict=True))


def archived_once(records: Iterable[Published], archived: Iterable[tuple[int, int, bytes]]) -> list[str]:
    """Return how the archive differs from the topic: by partition and offset, by value, and by event id."""
    expected = {(record.partition, record.offset): record.value for record in records}
    rows = list(archived)
    places = Counter((partition, offset) for partition, offset, _ in rows)
    wrong = [f"archived {count} times: {_place_text(place)}" for place, count in places.items() if count > 1]
    wrong += [f"not archived: {_place_text(place)}" for place in sorted(expected.keys() - places.keys())]
    wrong += [f"not in the topic: {_place_text(place)}" for place in sorted(places.keys() - expected.keys())]
    wrong += [
        f"archived with another value: {_place_text((partition, offset))}"
        for partition, offset, value in rows
        if (partition, offset) in expected and expected[partition, offset] != value
    ]
    ids = Counter(event_id(value) for _, _, value in rows)
    wrong += [f"event {name} archived {count} times" for name, count in ids.items() if count > 1]
    return truth.shortened(wrong)


def _place_text(place: tuple[int, int]) -> str:
    return f"partition {place[0]}, offset {place[1]}"


def event_id(value: bytes) -> str:
    """Return the id of an event, even if it does not decode."""
    return value.partition(b'"event_id": "')[2].partition(b'"')[0].decode()


def _report(world: World, name: str, wrong: list[str]) -> None:
    for difference in wrong:
        world.timeline.violate(f"{name}: {difference}")
    world.timeline.add("checked", name, outcome="as expected" if not wrong else "wrong")


def _rejected(world: World, records: list[Published], sent: list[Event]) -> list[str]:
    """Return the undecodable records missing from the topic of rejected records, and the decodable records in it."""
    bad = {event.value for event in sent if event.time is None}
    expected = {(record.partition, record.offset) for record in records if record.value in bad}
    rejected = {
        (int(headers["respool-partition"]), int(headers["respool-offset"]))
        for _, headers in world.topics.read_with_headers(f"{TOPIC}-rejected")
    }
    wrong = [f"not rejected: {_place_text(place)}" for place in sorted(expected - rejected)]
    wrong += [f"rejected although it decodes: {_place_text(place)}" for place in sorted(rejected - expected)]
    return truth.shortened(wrong)


def _windows(world: World, expected: Truth, figures: Figures) -> list[str]:
    records = world.topics.read(WINDOWS_TOPIC)
    figures.result_records += len(records)
    return truth.wrong_windows(expected, truth.windows_of(truth.upsert(records)), max(expected.windows))


def _sessions(world: World, expected: Truth, figures: Figures) -> list[str]:
    """Compare the sessions. A reprocess withdraws early results that a rewind left behind; then all must be right."""
    records = world.topics.read(SESSIONS_TOPIC)
    published = truth.sessions_of(truth.upsert(records))
    wrong, stale = truth.wrong_sessions(expected, published)
    figures.result_records += len(records)
    for (visit, start), result in stale:
        ends = [rewind.ends.get(result.record.partition, 0) for rewind in world.rewinds]
        if result.record.offset >= max(ends, default=0):
            wrong.append(f"session {visit} from {truth.time_text(start)}: an early result that was not withdrawn")
    figures.stale = len(stale)
    if stale and not wrong:
        starts = [start for (_, start), _ in stale]
        span = truth.time_text(min(starts)), truth.time_text(max(starts) + 1_000_000)
        done = world.respool("reprocess", "sessions", *span, limit=400)
        if not done.ok:
            return [f"the early results that rewinds left behind cannot be withdrawn: {done.reason}"]
        wrong, left = truth.wrong_sessions(expected, truth.sessions_of(truth.upsert(world.topics.read(SESSIONS_TOPIC))))
        wrong += [f"session {visit}: an early result that a reprocess did not withdraw" for (visit, _), _ in left]
    return wrong


def _forks(world: World, expected: Truth, figures: Figures) -> list[str]:
    """Return what is wrong with the finished results of forks."""
    wrong = []
    names = world.topics.names()
    for pipeline, suffix in world.forks.values():
        topic = (SESSIONS_TOPIC if pipeline == "sessions" else WINDOWS_TOPIC) + suffix
        if topic not in names:
            continue
        newest = truth.upsert(world.topics.read(topic))
        if pipeline == "sessions":
            differences, _ = truth.wrong_sessions(expected, truth.sessions_of(newest), complete=False)
        else:
            differences = truth.wrong_windows(expected, truth.windows_of(newest), 0, complete=False)
        wrong += [f"{topic}: {difference}" for difference in differences]
        figures.forks += 1
    return wrong


def _verify(world: World, figures: Figures) -> list[str]:
    """Return the problems that `verify` reports for checkpoints, savepoints and the archive."""
    wrong = []
    for folder in sorted((world.place.home / "checkpoints").iterdir()):
        done = world.respool("checkpoint", "verify", folder.name)
        figures.checkpoints += 1
        if not done.ok:
            wrong.append(f"checkpoint {folder.name}: {_findings(done.output) or done.reason}")
    for name in (name for names in world.savepoints.values() for name in names):
        done = world.respool("savepoint", "verify", name)
        figures.savepoints += 1
        if not done.ok:
            wrong.append(f"savepoint {name}: {_findings(done.output) or done.reason}")
    done = world.respool("archive", "verify")
    if not done.ok:
        wrong.append(f"archive: {_findings(done.output) or done.reason}")
    return wrong


def _findings(output: str) -> str:
    lines = output.splitlines()
    return " ".join(
        line.strip() for at, line in enumerate(lines) if line.startswith("✗") or lines[max(at - 1, 0)].startswith("✗")
    )[:500]
