"""What verify reports of a damaged checkpoint is what Spark does with it."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.storage.local import LocalReader, LocalWriter
from support.checkpoints import cut, flipped, gone, stale_crc, tables_of, written
from support.queries import KINDS, Results, Source, run, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, ALL = 10, 12  # batches before the damage, and batches in the end
# Spark's default on a local disk, slower than the setting of the tests: it alone ignores checksums.
USUAL = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    )
}
KIND = {kind.name: kind for kind in KINDS}
STORE = "state/0/0"


@dataclass(frozen=True)
class Ran:
    """A query that ran to its end, on a checkpoint from which it can continue."""

    checkpoint: Path
    source: Source
    results: Results


@pytest.fixture(scope="module")
def ran(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Queries that ran, and the results they would have had without damage; each runs once."""
    known: dict[str, Ran] = {}

    def made(kind: str) -> Ran:
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            source = write_files(folder / "input", range(FIRST))
            results = run(spark, KIND[kind], source, folder / "checkpoint", FIRST - 1)
            while kind == "hdfs" and newest(folder / "checkpoint", "snapshot").stem == str(FIRST):
                # Maintenance came late, and the snapshot is of the last batch: Spark would not read its delta.
                shutil.rmtree(folder / "checkpoint")
                results = run(spark, KIND[kind], source, folder / "checkpoint", FIRST - 1)
            write_files(folder / "input", range(FIRST, ALL))
            shutil.copytree(folder / "checkpoint", folder / "undisturbed")
            results |= run(spark, KIND[kind], source, folder / "undisturbed", ALL - 1)
            assert sorted(results) == list(range(ALL))
            known[kind] = Ran(folder / "checkpoint", source, results)
        return known[kind]

    return made


def remedies(checkpoint: Path) -> list[str]:
    """The remedies of what verify calls broken."""
    checks = verify(CheckpointSnapshot(LocalReader(checkpoint)))
    return [finding.remedy for check in checks for finding in check.findings if finding.status == "broken"]


def manager(damage: str) -> dict[str, str]:
    return USUAL if "checksum" in damage else {}


def without_metadata(checkpoint: Path) -> None:
    gone(checkpoint / "state/0/_metadata")
    gone(checkpoint / STORE / "_metadata")


def newest(checkpoint: Path, kind: str) -> Path:
    return max((checkpoint / STORE).glob(f"*.{kind}"), key=lambda path: int(path.stem))


HARMLESS: list[tuple[str, str, Callable[[Path], object]]] = [
    ("hdfs", "a missing newest commit", lambda c: gone(c / "commits/9")),
    ("hdfs", "a missing snapshot", lambda c: gone(newest(c, "snapshot"))),
    ("hdfs", "a corrupt snapshot", lambda c: flipped(newest(c, "snapshot"))),
    ("hdfs", "a stale checksum", lambda c: stale_crc(c / STORE / "10.delta")),
    ("hdfs", "a foreign delta", lambda c: written(c / STORE / "copy.delta", "x")),
    ("hdfs", "no operator metadata, no schema", without_metadata),
    ("changelog", "a truncated zip", lambda c: cut(newest(c, "zip"))),
]
FATAL: list[tuple[str, str, Callable[[Path], object]]] = [
    ("hdfs", "an empty offsets file", lambda c: written(c / "offsets/9", "")),
    ("hdfs", "the checksum of a lost commit", lambda c: (c / "commits/9").unlink()),
    ("hdfs", "a lost log entry", lambda c: gone(c / "sources/0/9.compact")),
    ("hdfs", "a truncated delta", lambda c: cut(c / STORE / "10.delta")),
    ("hdfs", "a damaged schema", lambda c: cut(c / STORE / "_metadata/schema")),
    ("changelog", "an empty changelog", lambda c: written(c / STORE / "10.changelog", "")),
    ("changelog", "a foreign zip", lambda c: written(c / STORE / "backup.zip", "x")),
    ("rocksdb", "a missing SST", lambda c: gone(tables_of(c / STORE / "10.zip")[0])),
    ("rocksdb", "a stale checksum of an SST", lambda c: stale_crc(tables_of(c / STORE / "10.zip")[0])),
]


@pytest.mark.parametrize(("kind", "damage", "cause"), HARMLESS, ids=lambda case: case if isinstance(case, str) else "")
def test_what_is_not_called_broken_restarts(
    spark: "SparkSession",
    ran: Callable[[str], Ran],
    tmp_path: Path,
    kind: str,
    damage: str,
    cause: Callable[[Path], object],
) -> None:
    before = ran(kind)
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(before.checkpoint, checkpoint)
    cause(checkpoint)
    assert not remedies(checkpoint)
    results = run(spark, KIND[kind], before.source, checkpoint, ALL - 1, manager(damage))
    assert results == {batch: rows for batch, rows in before.results.items() if batch in results}
    assert set(results) >= {FIRST, ALL - 1}


@pytest.mark.parametrize(("kind", "damage", "cause"), FATAL, ids=lambda case: case if isinstance(case, str) else "")
def test_a_broken_checkpoint_fails_and_restarts_once_its_remedy_was_applied(
    spark: "SparkSession",
    ran: Callable[[str], Ran],
    tmp_path: Path,
    kind: str,
    damage: str,
    cause: Callable[[Path], object],
) -> None:
    before = ran(kind)
    checkpoint, started = tmp_path / "checkpoint", tmp_path / "started"
    shutil.copytree(before.checkpoint, checkpoint)
    cause(checkpoint)
    shutil.copytree(checkpoint, started)
    with pytest.raises(Exception, match=r"."):
        run(spark, KIND[kind], before.source, started, ALL - 1, manager(damage))
    (remedy,) = remedies(checkpoint)
    apply_remedy(checkpoint, remedy)
    assert not remedies(checkpoint)
    results = run(spark, KIND[kind], before.source, checkpoint, ALL - 1, manager(damage))
    assert results == {batch: rows for batch, rows in before.results.items() if batch in results}
    assert set(results) >= {FIRST, ALL - 1}


def test_state_of_later_batches_goes_wrong_without_a_word_and_is_called_broken(
    spark: "SparkSession", ran: Callable[[str], Ran], tmp_path: Path
) -> None:
    before = ran("hdfs")
    checkpoint, started = tmp_path / "checkpoint", tmp_path / "started"
    shutil.copytree(before.checkpoint, checkpoint)
    for partition in (0, 1):
        folder = checkpoint / f"state/0/{partition}"
        oldest = min(folder.glob("*.snapshot"), key=lambda path: int(path.stem))
        shutil.copy(oldest, folder / f"{ALL}.snapshot")
    (remedy,) = remedies(checkpoint)
    shutil.copytree(checkpoint, started)
    apply_remedy(checkpoint, remedy)
    results = {}
    for folder in (checkpoint, started):
        run(spark, KIND["hdfs"], before.source, folder, ALL - 1)
        one_more = write_files(Path(before.source["path"]), range(ALL, ALL + 1))
        results[folder] = run(spark, KIND["hdfs"], one_more, folder, ALL)[ALL]
        (Path(before.source["path"]) / f"{ALL:03}.json").unlink()
    assert results[started] != results[checkpoint]


def apply_remedy(checkpoint: Path, remedy: str) -> None:
    """Apply a remedy: run the rewind that it names, or delete the files that it names."""
    command = re.search(rf"rewind {re.escape(str(checkpoint))} --to-batch (\d+)( --new-query-id)?", remedy)
    if command is None:
        for path in re.findall(r"(?:commits|state)/\S*\.crc", remedy):
            (checkpoint / path).unlink(missing_ok=True)
            if "Delete it" in remedy:
                (checkpoint / path).with_name(Path(path).name[1:-4]).unlink()
        return
    files = LocalWriter(checkpoint)
    request = RewindRequest(ToBatch(int(command[1])), new_query_id=bool(command[2]))
    plan = plan_rewind(CheckpointSnapshot(files), request, RewindContext(now=datetime.now(timezone.utc), ours=True))
    assert not plan.refusals
    apply.apply(plan.journal, files)
