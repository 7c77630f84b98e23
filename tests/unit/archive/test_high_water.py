"""The beginning of an archive and its archived offsets by its log, without Spark."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.archive import high_water
from respool.archive.high_water import ArchivedOffsets, read_archived_offsets
from respool.archive.reader import ArchiveReader
from respool.reprocessing import completeness
from respool.reprocessing.completeness import check_beginning
from respool.reprocessing.live import LiveQuery
from respool.reprocessing.plan import ReprocessPlan, ReprocessRequest
from respool.times import Span
from respool.visits.counts import visit_counts
from support.archive import plan_of, write_part

SEVEN = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
Part = tuple[int, int, datetime]  # the partition, the first offset and the first time of two records in a file


class SparkIsAskedError(Exception):
    """Raised instead of reading the records themselves."""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*args: object) -> None:
        raise SparkIsAskedError

    monkeypatch.setattr(completeness, "read", ask)


def planned(table: str, ends: dict[int, int] | None, topic: str, start: datetime = SEVEN) -> ReprocessPlan:
    live = None if ends is None else LiveQuery("here", 5, SEVEN + 9 * HOUR, ends)
    return plan_of(ReprocessRequest(visit_counts(topic=topic), Span(start, start + timedelta(minutes=10))), table, live)


def check(folder: Path, parts: Sequence[Part], ends: dict[int, int] | None, topic: str = "visits") -> None:
    for partition, offset, time in parts:
        write_part(folder, topic, [(partition, offset, time), (partition, offset + 1, time + timedelta(minutes=5))])
    check_beginning(None, ArchiveReader(str(folder)), planned(str(folder), ends, topic))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ([(0, 0, SEVEN)], {0: 2}),
        ([(0, 0, SEVEN), (1, 0, SEVEN)], {0: 2, 1: 2}),
        ([(0, 0, SEVEN), (1, 7, SEVEN)], {0: 2, 1: 0}),  # nothing of the second was read live
        ([(0, 0, SEVEN)], None),
        ([(0, 7, SEVEN - HOUR), (0, 9, SEVEN)], {0: 11}),  # begins late, but before the span
        ([(0, 7, SEVEN - HOUR), (0, 9, SEVEN)], None),
    ],
)
def test_statistics_alone_prove_that_nothing_is_missing(
    tmp_path: Path, parts: list[Part], ends: dict[int, int] | None
) -> None:
    check(tmp_path, parts, ends)


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ([(0, 1, SEVEN)], {0: 3}),
        ([(0, 1, SEVEN)], None),
        ([(0, 0, SEVEN), (1, 1, SEVEN)], {0: 2, 1: 3}),
        ([(0, 0, SEVEN), (1, 1, SEVEN)], None),
        ([(0, 1, SEVEN + timedelta(microseconds=500))], {0: 3}),  # statistics are cut to the millisecond
    ],
)
def test_the_records_are_asked_when_a_beginning_is_lacking(
    tmp_path: Path, parts: list[Part], ends: dict[int, int] | None
) -> None:
    with pytest.raises(SparkIsAskedError):
        check(tmp_path, parts, ends)


def test_the_records_are_asked_when_statistics_are_cut(tmp_path: Path) -> None:
    check(tmp_path / "short", [(0, 0, SEVEN)], {0: 2}, topic="t" * 31)
    with pytest.raises(SparkIsAskedError):
        check(tmp_path / "long", [(0, 0, SEVEN)], {0: 2}, topic="t" * 32)


def test_the_records_are_asked_when_a_file_mixes_partitions(tmp_path: Path) -> None:
    write_part(tmp_path, "visits", [(0, 0, SEVEN), (1, 0, SEVEN)])
    reader = ArchiveReader(str(tmp_path))
    assert reader.first_records("visits") == ([], False)
    with pytest.raises(SparkIsAskedError):
        check_beginning(None, reader, planned(str(tmp_path), {0: 1, 1: 1}, "visits"))  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", ["stats", "nullCount", "minValues"])
def test_the_records_are_asked_when_a_file_has_no_statistics(tmp_path: Path, lost: str) -> None:
    write_part(tmp_path, "visits", [(0, 0, SEVEN)])
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            stats = json.loads(action["add"].pop("stats"))
            stats.pop(lost, None)
            action["add"]["stats"] = None if lost == "stats" else json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(SparkIsAskedError):
        check(tmp_path, [], {0: 1})


def test_an_archive_of_another_topic_proves_nothing(tmp_path: Path) -> None:
    write_part(tmp_path, "others", [(0, 0, SEVEN)])
    with pytest.raises(SparkIsAskedError):
        check(tmp_path, [(0, 1, SEVEN)], {0: 3})


def commit(metadata: ArchivedOffsets | None) -> str:
    info: dict[str, Any] = {"operation": "WRITE"} | ({"userMetadata": metadata.to_json()} if metadata else {})
    return f"{json.dumps({'protocol': {}})}\n{json.dumps({'commitInfo': info})}\n"


OLD, HISTORY = ArchivedOffsets(3, {("visits", 0): 7}), ArchivedOffsets(1)


@pytest.mark.parametrize(
    ("commits", "newest", "expected"),
    [
        ({4: commit(OLD)}, 4, OLD),
        ({4: commit(OLD), 5: commit(None), 6: commit(None)}, 6, OLD),
        ({4: commit(OLD), **{version: commit(None) for version in range(5, 13)}}, 12, HISTORY),  # too far back
        ({5: commit(OLD)}, 5, HISTORY),  # another writer committed in between
        ({4: commit(OLD), 6: commit(None)}, 6, HISTORY),  # a commit is gone
        ({4: commit(OLD)}, None, HISTORY),
    ],
)
def test_the_newest_commits_say_what_is_archived(
    monkeypatch: pytest.MonkeyPatch, commits: dict[int, str], newest: int | None, expected: ArchivedOffsets
) -> None:
    monkeypatch.setattr(high_water, "read_delta_commit", lambda spark, table, version: commits.get(version))
    monkeypatch.setattr(high_water, "_from_history", lambda spark, table: HISTORY)
    assert read_archived_offsets(None, "table", newest) == expected  # type: ignore[arg-type]


def test_commits_of_this_machine_are_read_without_the_jvm(tmp_path: Path) -> None:
    write_part(tmp_path, "visits", [(0, 0, SEVEN)])
    write_part(tmp_path, "visits", [(0, 1, SEVEN)])
    offsets = high_water.catch_up(None, str(tmp_path), ArchivedOffsets(-1))  # type: ignore[arg-type]
    assert offsets == ArchivedOffsets(1, {("visits", 0): 1})
