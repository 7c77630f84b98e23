"""Rewound queries on a real Spark: from there on, every batch is that of a query that was never interrupted."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.planning.undo import plan_undo
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.kafka import topics
from respool.storage.open import open_writer
from support.queries import KINDS, Kind, Results, Source, fill_topic, run, state, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 12
NO_SNAPSHOTS = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "100"}
BY_NAME = {kind.name: kind for kind in KINDS}
IN_A_ROW = ["hdfs", "changelog", "ids-changelog", "join", "transform"]
# What a batch reads by the clock is not the same twice; the files of join-changelog are of the kinds of two others.
SINGLY = [
    kind.name
    for kind in KINDS
    if not kind.live and not kind.repartition and kind.name not in (*IN_A_ROW, "join-changelog")
]


@dataclass(frozen=True)
class Whole:
    """A query that ran without interruption, its checkpoint where it was written: some hold their own path."""

    spark: "SparkSession"
    kind: Kind
    folder: Path
    source: Source
    results: Results

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def last(self) -> int:
        return max(self.results)

    def again(self) -> None:
        """Restore checkpoint and input to where the query ended."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.folder / "kept", self.checkpoint)
        if self.kind.source == "files":
            shutil.rmtree(self.folder / "input")
            write_files(self.folder / "input", range(FILES))

    def run(self, conf: Mapping[str, str] | None = None) -> Results:
        return run(self.spark, self.kind, self.source, self.checkpoint, FILES - 1, conf)

    def state(self, batch: int) -> list[str]:
        return state(self.spark, self.kind, self.checkpoint, batch) if self.kind.reads else []

    def since(self, batch: int) -> Results:
        """Return the results from a batch on."""
        return {number: rows for number, rows in self.results.items() if number >= batch}


@pytest.fixture(scope="module")
def whole(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], Whole]:
    """Runs a query of a kind once for all tests; each test finds it as it ended."""
    wholes: dict[str, Whole] = {}

    def start(kind: Kind) -> Whole:
        folder = tmp_path_factory.mktemp(kind.name)
        source: Source = {}
        if kind.source == "kafka":
            kafka = request.getfixturevalue("kafka")
            topics.create(kafka, folder.name, partitions=2)
            source = fill_topic(kafka, folder.name, FILES)
        elif kind.source == "files":
            source = write_files(folder / "input", range(FILES))
        results = run(spark, kind, source, folder / "checkpoint", FILES - 1)
        shutil.copytree(folder / "checkpoint", folder / "kept")
        return Whole(spark, kind, folder, source, results)

    def get(name: str) -> Whole:
        if name not in wholes:
            wholes[name] = start(BY_NAME[name])
        wholes[name].again()
        return wholes[name]

    return get


def rewind(checkpoint: Path, batch: int, same_range: bool = False) -> None:
    files = open_writer(str(checkpoint))
    world = RewindContext(now=datetime.now(timezone.utc), ours=True)
    plan = plan_rewind(CheckpointSnapshot(files), RewindRequest(ToBatch(batch), same_range=same_range), world)
    assert not plan.refusals
    apply.apply(plan.journal, files)


def undo(checkpoint: Path) -> None:
    files = open_writer(str(checkpoint))
    apply.apply(plan_undo(CheckpointSnapshot(files), datetime.now(timezone.utc)), files)


def points(query: Whole) -> list[tuple[int, bool]]:
    """Return batches to rewind to, and whether to run them on the records that they had."""
    name, last = query.kind.name, query.last
    if name.endswith("-purged"):
        return [(last, True), (last - 2, False)]
    if "spark.sql.streaming.offsetLog.formatVersion" in query.kind.conf:
        # Of its first run, Spark 4.2.0 itself cannot run a batch again as it was.
        return [(9, False), (last, True)]
    if name in ("rocksdb", "join-families"):
        return [(last, True), (9, False), (6, True), (0, False)]
    return [(last, True), (8, False)]


@pytest.mark.parametrize("name", SINGLY)
def test_every_batch_after_a_rewind_is_what_it_was(whole: Callable[[str], Whole], name: str) -> None:
    query = whole(name)
    assert query.last >= FILES - 1
    assert sum(map(len, query.results.values()))
    state = query.state(query.last)
    assert state or not query.kind.reads
    for batch, same_range in points(query):
        rewind(query.checkpoint, batch, same_range)
        again = query.run()
        if query.kind.endless:
            again.pop(query.last + 1, None)
        assert again == query.since(batch)
        assert query.state(query.last) == state


@pytest.mark.parametrize("name", IN_A_ROW)
def test_nothing_of_earlier_runs_is_found_after_rewinds_in_a_row(
    whole: Callable[[str], Whole], tmp_path: Path, name: str
) -> None:
    query = whole(name)
    write_files(query.folder / "input", range(7, FILES), flavour="other")
    expected = run(query.spark, query.kind, query.source, tmp_path)
    # Left behind, one of these snapshots would be loaded by the second run; the first writes none in its place.
    assert any(7 < version <= 10 for version in snapshots(query.checkpoint))
    for batch, same_range, conf in ((7, False, NO_SNAPSHOTS), (10, True, {}), (9, False, {})):
        rewind(query.checkpoint, batch, same_range)
        assert query.run(conf) == {number: rows for number, rows in expected.items() if number >= batch}
    last = max(expected)
    assert query.state(last) == state(query.spark, query.kind, tmp_path, last) != []


def snapshots(checkpoint: Path) -> set[int]:
    """Return the versions of the state of which there are snapshots."""
    files = [file for file in (checkpoint / "state").rglob("*") if file.suffix in (".snapshot", ".zip")]
    return {int(file.stem.partition("_")[0]) for file in files}


@pytest.mark.parametrize("name", ["hdfs", "ids-changelog", "operators", "transform-ids", "stateless"])
def test_a_query_continues_after_an_undone_rewind_as_if_nothing_had_happened(
    whole: Callable[[str], Whole], name: str
) -> None:
    query = whole(name)
    write_files(query.folder / "input", range(FILES, FILES + 1))
    expected = query.run()
    assert min(expected) == query.last + 1
    state = query.state(max(expected))

    query.again()
    rewind(query.checkpoint, 5)
    undo(query.checkpoint)
    write_files(query.folder / "input", range(FILES, FILES + 1))
    assert query.run() == expected
    assert query.state(max(expected)) == state


def test_a_rewind_across_a_repartition(whole: Callable[[str], Whole]) -> None:
    query = whole("changelog")
    write_files(query.folder / "input", range(FILES, FILES + 2))
    expected = query.run()

    query.again()
    query.spark._streamingCheckpointManager.repartition(str(query.checkpoint), 3)  # a batch of its own
    write_files(query.folder / "input", range(FILES, FILES + 2))
    assert query.run() == {batch + 1: rows for batch, rows in expected.items()}
    rewind(query.checkpoint, FILES + 2)
    assert query.run() == {FILES + 2: expected[FILES + 1]}
    rewind(query.checkpoint, FILES)
    assert query.run() == expected
    rewind(query.checkpoint, FILES + 1)
    assert query.run() == {FILES + 1: expected[FILES + 1]}
