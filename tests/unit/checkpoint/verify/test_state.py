"""Verify checks state stores and the metadata of operators."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkpoints import cut, edited, flipped, gone, only_file, stale_crc, tables_of, written
from support.verifying import STORE, Damage, assert_named_and_mended, findings, look


def newest_table(checkpoint: Path) -> Path:
    """The SST file that only the newest zip needs."""
    others = {path for number in range(1, 14) for path in tables_of(checkpoint / STORE / f"{number}.zip")}
    return next(path for path in tables_of(checkpoint / STORE / "14.zip") if path not in others)


STATE = [
    Damage("a truncated zip", "rocksdb", lambda c: cut(c / STORE / "14.zip"), f"{STORE}/14.zip is damaged", to=13),
    Damage("a flipped byte in a zip", "rocksdb", lambda c: flipped(c / STORE / "14.zip", 60), "14.zip is dam", to=13),
    Damage(
        "a missing SST", "rocksdb", lambda c: gone(newest_table(c)), f"{STORE}/14.zip is damaged: it needs SSTs/", to=13
    ),
    Damage("an SST of a wrong size", "rocksdb", lambda c: cut(newest_table(c)), "expected", to=13),
    Damage(
        "a damaged SST", "rocksdb", lambda c: stale_crc(newest_table(c)), "which is damaged: its bytes from 0 on", to=13
    ),
    Damage(
        "a stale checksum of a zip", "rocksdb", lambda c: stale_crc(c / STORE / "14.zip"), "hidden checksum file", to=13
    ),
    Damage(
        "a missing changelog",
        "changelog",
        lambda c: gone(c / STORE / "14.changelog"),
        f"{STORE}: The state of operator 0, partition 0 lacks version 14",
        to=13,
    ),
    Damage(
        "an empty changelog",
        "changelog",
        lambda c: written(c / STORE / "14.changelog", ""),
        f"{STORE}/14.changelog is damaged: it is empty",
        to=13,
    ),
    Damage(
        "a truncated changelog",
        "transform",
        lambda c: cut(c / STORE / "14.changelog"),
        f"{STORE}/14.changelog is damaged",
    ),
    Damage("a truncated delta", "hdfs", lambda c: cut(c / STORE / "14.delta"), f"{STORE}/14.delta is damaged", to=13),
    Damage("a truncated delta, zstd", "session", lambda c: cut(c / STORE / "15.delta"), "15.delta is damaged", to=14),
    Damage("a flipped byte in a delta", "hdfs", lambda c: flipped(c / STORE / "14.delta"), "14.delta is damag", to=13),
    Damage("a missing delta", "hdfs", lambda c: gone(c / STORE / "14.delta"), f"{STORE}: The state of operator", to=13),
    Damage(
        "an old delta damaged",
        "hdfs",
        lambda c: cut(c / STORE / "5.delta"),
        f"{STORE}/5.delta is damaged",
        "Spark deletes it eventually",
    ),
    Damage(
        "an old delta missing", "hdfs", lambda c: gone(c / STORE / "5.delta"), "no file of version 5", status="note"
    ),
    Damage(
        "a corrupt snapshot",
        "hdfs",
        lambda c: flipped(c / STORE / "12.snapshot"),
        f"{STORE}/12.snapshot is damaged",
        "Move it away",
        status="note",
    ),
    Damage(
        "a corrupt snapshot of an older Spark",
        "hdfs",
        lambda c: flipped(c / STORE / "12.snapshot"),
        f"{STORE}/12.snapshot is damaged",
        "Move it away",
        version="4.1.4",
    ),
    Damage(
        "a corrupt zip with changelogs, of an older Spark",
        "changelog",
        lambda c: cut(max((c / STORE).glob("*.zip"), key=lambda path: int(path.stem))),
        "only Spark 4.2 and later",
        to=14,
        version="4.0.5",
    ),
    Damage(
        "Spark's own checksum does not fit",
        "ids-changelog",
        lambda c: edited(only_file(c / STORE, "14_*.changelog.crc"), '"value":', '"value":1'),
        "it does not match its checksum file",
        to=13,
    ),
    Damage(
        "a stale checksum of a delta",
        "hdfs",
        lambda c: stale_crc(c / STORE / "14.delta"),
        f"{STORE}/14.delta",
        "Nothing",
        status="note",
    ),
    Damage(
        "state of a later batch",
        "hdfs",
        lambda c: shutil.copy(c / STORE / "12.snapshot", c / STORE / "20.snapshot"),
        f"{STORE}/20.snapshot is of batches after the newest, 13",
        to=14,
    ),
    Damage(
        "a foreign zip",
        "changelog",
        lambda c: written(c / STORE / "backup.zip", "x"),
        f"{STORE}/backup.zip is not one of Spark's files: Spark cannot load the state",
        to=14,
    ),
    Damage(
        "a foreign delta",
        "hdfs",
        lambda c: written(c / STORE / "copy.delta", "x"),
        f"{STORE}/copy.delta is not one of Spark's files: Spark's maintenance stops",
        status="note",
    ),
    Damage(
        "a zip with an id among those without",
        "rocksdb",
        lambda c: shutil.copy(c / STORE / "5.zip", c / STORE / "5_copy.zip"),
        f"{STORE}/5_copy.zip is not one of Spark's files",
        "Move it away",
    ),
    Damage("a missing partition", "hdfs", lambda c: gone(c / "state/0/1"), "state/0/1: The state of operator", to=0),
    Damage("a missing store", "join", lambda c: gone(c / "state/0/1/left-keyToNumValues"), "store left-key", to=0),
    Damage(
        "fewer partitions by hand",
        "hdfs",
        lambda c: edited(c / "offsets/13", 'shuffle.partitions":"2"', 'shuffle.partitions":"1"'),
        "state/0/1 is as new as the others",
        "Restore it",
    ),
]


OPERATORS = [
    Damage(
        "an operator of which nothing is left",
        "transform-ids",
        lambda c: gone(c / "state"),
        "state/0 is missing, though commits/14 names its state",
        to=0,
    ),
    Damage(
        "operator metadata missing",
        "hdfs",
        lambda c: gone(c / "state/0/_metadata"),
        "state/0/_metadata/metadata is missing",
        "Spark writes it again",
        status="note",
    ),
    Damage(
        "operator metadata damaged",
        "join",
        lambda c: written(c / "state/0/_metadata/metadata", "x"),
        "state/0/_metadata/metadata is damaged",
        "Delete it",
        status="note",
    ),
    Damage(
        "metadata of runs missing",
        "transform",
        lambda c: gone(c / "state/0/_metadata"),
        "state/0/_metadata/v2 has no file of a run before batch",
        to=0,
    ),
    Damage(
        "metadata of a run damaged",
        "transform-ids",
        lambda c: written(c / "state/0/_metadata/v2/0", "x"),
        "state/0/_metadata/v2/0 is damaged",
        to=0,
    ),
    Damage(
        "metadata of a later run",
        "join-families",
        lambda c: shutil.copy(c / "state/0/_metadata/v2/0", c / "state/0/_metadata/v2/20"),
        "state/0/_metadata/v2/20 is of a batch after the newest",
        to=15,
    ),
    Damage(
        "a schema missing",
        "hdfs",
        lambda c: gone(c / STORE / "_metadata/schema"),
        f"{STORE}/_metadata/schema is missing",
        "Spark writes it again",
        status="note",
    ),
    Damage(
        "a schema without its bytes",
        "hdfs",
        lambda c: cut(c / STORE / "_metadata/schema"),
        f"{STORE}/_metadata/schema is damaged",
        f"Delete it, and {STORE}/_metadata/.schema.crc",
    ),
    Damage(
        "a schema of runs missing",
        "transform",
        lambda c: gone(c / "state/0/_stateSchema"),
        "names the schema state/0/_stateSchema/default/0_",
        to=0,
    ),
    Damage(
        "a copied checkpoint",
        "transform",
        lambda c: edited(c / "state/0/_metadata/v2/0", f"file:{c}", "file:/elsewhere"),
        "names the schema file:/elsewhere/state/0/_stateSchema/default/0_",
        "copied or moved: replace",
    ),
]


@pytest.mark.parametrize("damage", [*STATE, *OPERATORS], ids=lambda damage: damage.name)
def test_damage_to_the_state_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)


def test_a_missing_snapshot_is_done_without(copy: Callable[..., Path]) -> None:
    checkpoint = copy("hdfs")
    gone(checkpoint / STORE / "12.snapshot")
    assert all(check.status == "ok" for check in look(checkpoint))


def test_a_check_that_is_not_deep_reads_no_state(copy: Callable[..., Path]) -> None:
    checkpoint = copy("rocksdb")
    cut(checkpoint / STORE / "14.zip")
    assert not findings(look(checkpoint, deep=False), "broken")
    gone(checkpoint / STORE / "14.zip")
    (finding,) = findings(look(checkpoint, deep=False), "broken")
    assert f"{STORE}: The state of operator 0, partition 0 lacks version 14" in finding.what
