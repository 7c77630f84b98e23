"""Verify checks `metadata`, `offsets` and `commits`."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkpoints import cut, edited, gone, written
from support.verifying import Damage, assert_named_and_mended, findings, look

SOURCES = [
    Damage("a log entry lost", "hdfs", lambda c: gone(c / "sources/0/12"), "sources/0/12 is missing", to=12),
    Damage("the newest log entry lost", "hdfs", lambda c: gone(c / "sources/0/13"), "offsets/13 names 13", to=13),
    Damage(
        "the compact log lost",
        "hdfs",
        lambda c: gone(c / "sources/0/9.compact"),
        "sources/0/9 is missing, and so is 9.compact",
        to=9,
    ),
    Damage(
        "the compact log damaged",
        "stateless",
        lambda c: cut(c / "sources/0/9.compact"),
        "sources/0/9.compact is damaged",
        to=9,
    ),
    Damage("an empty log entry", "ids", lambda c: written(c / "sources/0/13", ""), "sources/0/13 is damaged", to=13),
    Damage(
        "Kafka's beginning lost",
        "kafka",
        lambda c: gone(c / "sources/0/0"),
        "sources/0/0, which holds the source's initial position, is missing",
        "startingOffsets",
        status="note",
    ),
]


def _two_sources(checkpoint: Path) -> None:
    path = checkpoint / "offsets/13"
    written(path, f"{path.read_text()}\n{path.read_text().splitlines()[2]}")


def _repartition_begun(checkpoint: Path) -> None:
    edited(checkpoint / "offsets/13", '"spark.sql.shuffle.partitions":"2"', '"spark.sql.shuffle.partitions":"3"')
    gone(checkpoint / "commits/13")


def _only_commits_left(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").iterdir():
        path.unlink()


def _offset_back(checkpoint: Path) -> None:
    path = checkpoint / "offsets/13"
    written(
        path, re.sub(r'("\d+":)(\d+)', lambda match: f"{match[1]}{int(match[2]) - 1000}", path.read_text(), count=1)
    )


def _no_newest_commits(checkpoint: Path) -> None:
    gone(checkpoint / "commits/12")
    gone(checkpoint / "commits/13")


LOGS = [
    Damage("an empty offsets file", "hdfs", lambda c: written(c / "offsets/13", ""), "offsets/13 is damaged", to=13),
    Damage("garbage in offsets", "ids", lambda c: written(c / "offsets/13", b"\xff\0"), "offsets/13 is damaged", to=13),
    Damage(
        "offsets of an unknown version",
        "changelog",
        lambda c: edited(c / "offsets/13", "v1\n", "v9\n"),
        "offsets/13 has format version v9",
        "start the query with that Spark",
    ),
    Damage("predecessor missing", "hdfs", lambda c: gone(c / "offsets/12"), "offsets/12 is missing", to=12),
    Damage("predecessor empty", "rocksdb", lambda c: written(c / "offsets/12", ""), "offsets/12 is damaged", to=12),
    Damage(
        "an old offsets file empty",
        "hdfs",
        lambda c: written(c / "offsets/5", ""),
        "offsets/5 is damaged: it is empty. A start does not need it; batches 6 to 7 cannot be rewound to",
    ),
    Damage(
        "offsets missing in the middle", "hdfs", lambda c: gone(c / "offsets/5"), "offsets/5 is missing", status="note"
    ),
    Damage(
        "a commit missing in the middle",
        "join",
        lambda c: gone(c / "commits/7"),
        "commits/7 is missing",
        to=7,
        status="note",
    ),
    Damage(
        "the newest commit missing",
        "hdfs",
        lambda c: gone(c / "commits/13"),
        "Batch 13 is planned but not finished",
        status="note",
    ),
    Damage(
        "the two newest commits missing",
        "ids-changelog",
        _no_newest_commits,
        "commits/12 and commits/13 are missing at the end",
        to=12,
    ),
    Damage("an empty commit", "rocksdb", lambda c: written(c / "commits/13", ""), "commits/13 is damaged", to=13),
    Damage(
        "a commit beyond offsets",
        "changelog",
        lambda c: shutil.copy(c / "commits/13", c / "commits/14"),
        "commits/14 is beyond the newest batch in offsets, 13",
        to=14,
    ),
    Damage("no offsets, but commits", "hdfs", _only_commits_left, "offsets is empty", "from a copy"),
    Damage("one source more", "hdfs", _two_sources, "offsets/13 has 2 sources, offsets/12 has 1", to=13),
    Damage("Kafka's offsets go back", "kafka", _offset_back, "offsets/13 is behind the previous batch", to=13),
    Damage(
        "the watermark goes back",
        "session",
        lambda c: written(
            c / "offsets/14", re.sub(r'"batchWatermarkMs":\d+', '"batchWatermarkMs":5', (c / "offsets/14").read_text())
        ),
        "offsets/14 is behind the previous batch: the watermark",
        to=14,
    ),
    Damage("a repartition not ended", "changelog", _repartition_begun, "offsets/13 starts a repartition", to=13),
    Damage(
        "a fault of Spark 4.2",
        "offsets-v2",
        lambda c: gone(c / "commits/13"),
        "offsets/13 does not say how many partitions",
        to=13,
    ),
    Damage(
        "the checksum of a commit that is gone",
        "hdfs",
        lambda c: (c / "commits/13").unlink(),
        "commits/.13.crc is the checksum of a missing file: Spark fails when it writes that file",
        "Delete commits/.13.crc",
    ),
    Damage(
        "metadata lost", "hdfs", lambda c: gone(c / "metadata"), "The file metadata", "Restore it from a copy", to=14
    ),
    Damage("metadata empty", "ids", lambda c: written(c / "metadata", ""), "metadata is damaged", "new id", to=14),
    Damage("metadata not JSON", "rate", lambda c: written(c / "metadata", "x"), "metadata is damaged", "new id", to=14),
    Damage(
        "an id that is none", "rate", lambda c: written(c / "metadata", '{"id":"7"}'), "not a UUID", "new id", to=14
    ),
]


@pytest.mark.parametrize("damage", LOGS, ids=lambda damage: damage.name)
def test_damage_to_a_log_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)


def test_a_missing_newest_commit_is_no_damage_to_a_query_without_state(copy: Callable[..., Path]) -> None:
    checkpoint = copy("stateless")
    gone(checkpoint / "commits/13")
    (note,) = findings(look(checkpoint), "note")
    assert note.remedy == "Nothing."
    assert not findings(look(checkpoint), "broken")


@pytest.mark.parametrize("damage", SOURCES, ids=lambda damage: damage.name)
def test_damage_to_a_sources_log_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)
