"""The contents of an archive are read without a JVM: every gap, every duplicate record, every lost file."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from respool.archive import contents
from respool.archive.contents import read_contents
from respool.archive.kafka_check import KafkaComparison, PartitionInKafka
from respool.archive.reader import DataFile, days_to_compact, small_files
from respool.archive.repair import decoder_of
from respool.archive.table import DecoderIdentity
from respool.archive.verify import verify
from respool.cli.app import app
from respool.decoders.json import JsonDecoder
from respool.errors import PipelineError
from respool.kafka.offsets import OffsetRange, OffsetSet, TopicPartition, gaps, joined, shared, total, without
from respool.pipeline.registry import find_pipeline
from respool.visits.counts import VISIT

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("event_time", pa.timestamp("us", "UTC")),
        ("event_date", pa.date32()),
        ("event_hour", pa.int32()),
        ("rejected", pa.string()),
    ]
)
READING = DecoderIdentity("event_time", "Europe/Paris", "visit_id STRING NOT NULL, event_time TIMESTAMP")
DAY = date(2025, 9, 4)
Row = tuple[str, int, int, int | None]  # topic, partition, offset, hour; no hour for a rejected record


def row(topic: str, partition: int, offset: int, hour: int | None) -> dict[str, Any]:
    time = None if hour is None else datetime(2025, 9, 4, hour, 30, tzinfo=timezone.utc)
    place = {"topic": topic, "partition": partition, "offset": offset, "timestamp_type": 0, "value": b"{}"}
    hours = {"event_time": time, "event_date": time and DAY, "event_hour": hour}
    return {**place, **hours, "rejected": None if time else "not JSON"}


def append(table: Path, rows: Iterable[Row]) -> None:
    if not table.exists():
        made = DeltaTable.create(str(table), SCHEMA, partition_by=["event_date", "event_hour"])
        made.alter.set_table_properties(READING.to_properties(), raise_if_not_exists=False)  # version 1
    write_deltalake(str(table), pa.Table.from_pylist([row(*values) for values in rows], SCHEMA), mode="append")


def visits(partition: int, offsets: Iterable[int], hour: int | None = 7) -> list[Row]:
    return [("visits", partition, offset, hour) for offset in offsets]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "a home" / "archive" / "visits_table"


def respool(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


offsets = st.lists(st.one_of(st.integers(0, 300), st.integers(65_500, 65_600), st.integers(2**40, 2**40 + 9)))


@given(st.lists(offsets))
def test_gaps_and_doubles_are_those_of_a_plain_count(batches: list[list[int]]) -> None:
    offsets = OffsetSet()
    for batch in batches:
        offsets.add(np.array(batch, np.int64))
    counted = Counter(offset for batch in batches for offset in batch)
    assert offsets.added == sum(counted.values())
    assert offsets.distinct == len(counted)
    assert listed(offsets.ranges()) == sorted(counted)
    assert listed(offsets.doubled()) == sorted(offset for offset, count in counted.items() if count > 1)
    there = offsets.ranges()
    assert all(before.end < other.start for before, other in pairwise(there))
    if counted:
        missing = gaps(there)
        assert total(missing) == max(counted) - min(counted) + 1 - len(counted)
        assert not shared(missing, there)


def listed(ranges: Sequence[OffsetRange]) -> list[int]:
    return [offset for span in ranges for offset in range(span.start, span.end)]


def test_full_blocks_are_one_range_and_repeated_offsets_are_detected() -> None:
    offsets = OffsetSet()
    offsets.add(np.arange(10, 300_000, dtype=np.int64))
    assert offsets.ranges() == [OffsetRange(10, 300_000)]
    offsets.add(np.array([70_000, 299_999, 300_000, 70_000]))
    assert offsets.ranges() == [OffsetRange(10, 300_001)]
    assert offsets.doubled() == [OffsetRange(70_000, 70_001), OffsetRange(299_999, 300_000)]
    assert offsets.added - offsets.distinct == 3


some = st.sets(st.integers(0, 40)).map(lambda them: as_ranges(sorted(them)))


def as_ranges(them: list[int]) -> list[OffsetRange]:
    offsets = OffsetSet()
    offsets.add(np.array(them, np.int64))
    return offsets.ranges()


@given(some, some, st.integers(1, 5))
def test_ranges_are_compared_and_joined_as_sets_are(
    ranges: list[OffsetRange], other: list[OffsetRange], most: int
) -> None:
    first, second = set(listed(ranges)), set(listed(other))
    assert listed(shared(ranges, other)) == sorted(first & second)
    assert listed(without(ranges, other)) == sorted(first - second)
    together = joined(ranges, most)
    assert len(together) == min(most, len(ranges))
    assert first <= set(listed(together))
    # The offsets in between are as few as possible.
    distances = sorted((gap.size for gap in gaps(ranges)), reverse=True)
    assert total(together) == len(first) + sum(distances[most - 1 :])


def test_records_are_counted_by_topic_partition_and_hour(table: Path) -> None:
    append(table, visits(0, range(10)))
    append(table, [*visits(0, range(10, 12), 8), *visits(1, range(5, 9), 8), ("clicks", 0, 3, 8)])
    append(table, [*visits(1, [9, 11], None), *visits(0, [3, 3, 15])])
    archived = read_contents(str(table))
    assert (archived.version, archived.reading) == (4, READING)
    assert [
        (str(place.place), place.records, place.rejected, place.first, place.last) for place in archived.places
    ] == [
        ("clicks-0", 1, 0, 3, 3),
        ("visits-0", 15, 0, 0, 15),
        ("visits-1", 6, 2, 5, 11),
    ]
    _, first, second = archived.places
    assert (first.gaps, first.missing, first.doubles, first.surplus) == (
        (OffsetRange(12, 15),),
        3,
        (OffsetRange(3, 4),),
        2,
    )
    assert (second.gaps, second.missing, second.doubles, second.surplus) == ((OffsetRange(10, 11),), 1, (), 0)
    visits_0, visits_1 = first.place, second.place
    assert [(hour.start and hour.start.hour, hour.records, hour.files, hour.small) for hour in archived.hours] == [
        (7, 13, 2, 2),
        (8, 7, 1, 0),
        (None, 2, 1, 0),
    ]
    assert archived.hours[1].places == {TopicPartition("clicks", 0): 1, visits_0: 2, visits_1: 4}
    assert (archived.records, archived.files, archived.small) == (22, 4, 2)
    assert archived.bytes == sum(file.stat().st_size for file in table.rglob("*.parquet"))
    assert archived.span == (
        datetime(2025, 9, 4, 7, tzinfo=timezone.utc),
        datetime(2025, 9, 4, 9, tzinfo=timezone.utc),
    )


@settings(max_examples=30)  # each writes tables
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from([7, 8, None])), min_size=1)))
def test_any_table_is_reported_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[tuple[int, int, int | None]]]
) -> None:
    table = tmp_path_factory.mktemp("any") / "t"
    append(table, [])
    for commit in commits:
        append(table, [("visits", *record) for record in commit])
    rows = [record for commit in commits for record in commit]
    archived = read_contents(str(table))
    assert {place.place.partition for place in archived.places} == {partition for partition, _, _ in rows}
    for place in archived.places:
        mine = Counter(offset for partition, offset, _ in rows if partition == place.place.partition)
        assert listed(place.gaps) == [at for at in range(min(mine), max(mine)) if at not in mine]
        assert listed(place.doubles) == sorted(at for at, count in mine.items() if count > 1)
        assert (place.records, place.surplus) == (sum(mine.values()), sum(mine.values()) - len(mine))
        assert place.rejected == sum(hour is None for partition, _, hour in rows if partition == place.place.partition)
    hours = Counter(hour for _, _, hour in rows)
    assert {(hour.start and hour.start.hour): hour.records for hour in archived.hours} == hours


def test_a_file_of_many_blocks_is_read_piece_by_piece(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_BLOCK", 7)
    append(table, [*visits(0, range(50)), *visits(1, range(25)), *visits(0, [1])])
    archived = read_contents(str(table))
    assert [(place.records, place.missing, place.surplus) for place in archived.places] == [(51, 0, 1), (25, 0, 0)]


def test_records_without_an_offset_are_counted(table: Path) -> None:
    append(table, visits(0, range(3)))
    strange = pa.Table.from_pylist([{**row("visits", 0, 3, 7), "offset": None}], SCHEMA)
    write_deltalake(str(table), strange, mode="append")
    archived = read_contents(str(table))
    assert (archived.nameless, archived.records) == (1, 3)
    done = respool("archive", "verify", "--no-kafka", "--table", str(table))
    assert done.exit_code == 3
    assert "Without topic, partition or offset: 1 record." in done.stdout


def test_small_files_are_those_that_a_compaction_would_take() -> None:
    large = 1 << 30
    assert small_files([large, large + 5, 10]) == 0
    assert small_files([10, 20, large]) == 2
    assert small_files([large - 1, large - 2]) == 0
    day, other = date(2025, 9, 4), date(2025, 9, 5)
    hour = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
    files = [
        DataFile("a", 1, day, hour),
        DataFile("b", 1, day, hour),
        DataFile("c", 1, other, hour),
        DataFile("d", 1, None, None),
    ]
    assert days_to_compact(files) == [day]
    assert days_to_compact([*files, DataFile("e", 1, None, None)]) == [day, None]


def test_show_reports_the_contents(table: Path, tmp_path: Path) -> None:
    append(table, [*visits(0, range(3)), *visits(1, [0], None)])
    append(table, visits(0, [5, 2], 8))
    done = respool("archive", "show", "--home", str(tmp_path / "a home"), "--hours")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert f"Archive {table}" in lines
    assert "Event times the field event_time; times without a zone in Europe/Paris" in lines
    assert "Span 2025-09-04T07:00Z to 2025-09-04T09:00Z, 2 hours" in lines
    assert "Records 6, 1 of them rejected" in lines
    assert "visits 0 0 to 5 5 0 2 1" in lines
    hours = [line.split() for line in lines if line.startswith(("2025", "rejected"))]
    assert [(line[0], line[1], *line[-2:]) for line in hours] == [
        ("2025-09-04T07:00Z", "3", "3", "0"),
        ("2025-09-04T08:00Z", "2", "2", "0"),
        ("rejected", "1", "0", "1"),
    ]
    shown = json.loads(respool("archive", "show", "--home", str(tmp_path / "a home"), "--json", "--hours").stdout)
    assert (shown["records"], shown["missing"], shown["doubled"], shown["files"]) == (6, 2, 1, 3)
    assert shown["partitions"][0]["gaps"] == [[3, 5]]
    assert [hour["records"] for hour in shown["hours"]] == [3, 2, 1]


def test_verify_of_the_table_alone(table: Path, tmp_path: Path) -> None:
    append(table, visits(0, range(3)))
    done = respool("archive", "verify", "--home", str(tmp_path / "a home"), "--no-kafka")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "All is well: 3 records, each once.")
    append(table, visits(0, [2, 5]))
    done = respool("archive", "verify", "--home", str(tmp_path / "a home"))
    assert done.exit_code == 3
    assert "visits-0: 1 duplicate record at offset 2." in done.stdout
    assert "visits-0: 2 offsets missing, offsets 3 to 4." in done.stdout
    assert "Kafka was not asked. No broker runs for the home" in done.stdout
    report = json.loads(respool("archive", "verify", "--home", str(tmp_path / "a home"), "--json").stdout)
    assert (report["ok"], report["kafka"]) == (False, None)
    assert [check["name"] for check in report["checks"] if check["status"] == "broken"] == [
        "each record once",
        "no record missing",
    ]


def test_a_lost_file_and_an_unreadable_one_are_named(table: Path, tmp_path: Path) -> None:
    for start in (0, 10, 20):
        append(table, visits(0, range(start, start + 10)))
    lost, torn, _ = sorted(table.rglob("*.parquet"))
    lost.unlink()
    torn.write_bytes(torn.read_bytes()[:100])
    archived = read_contents(str(table))
    assert {(table / damaged.path, damaged.missing) for damaged in archived.damaged} == {(lost, True), (torn, False)}
    assert (archived.records, archived.files) == (10, 3)
    shown = respool("archive", "show", "--home", str(tmp_path / "a home"))
    assert "2 files cannot be read; see: respool archive verify" in shown.stdout
    done = respool("archive", "verify", "--home", str(tmp_path / "a home"), "--no-kafka")
    assert done.exit_code == 3
    assert f"{lost.relative_to(table)} does not exist" in done.stdout
    assert f"{torn.relative_to(table)} cannot be read" in done.stdout
    named = respool("archive", "verify", "--table", str(table), "--no-kafka")
    assert f"respool archive verify --table '{table}' --fix --forget-lost-files removes it" in named.stdout
    for flags in ([], ["--forget-lost-files"]):
        refused = respool("archive", "verify", "--home", str(tmp_path / "a home"), "--no-kafka", "--fix", *flags)
        assert isinstance(refused.exception, PipelineError)
        assert "move those that cannot be read away" in str(refused.exception)
    assert DeltaTable(str(table)).version() == 4
    torn.unlink()
    done = respool(
        "archive", "verify", "--home", str(tmp_path / "a home"), "--no-kafka", "--fix", "--forget-lost-files"
    )
    assert done.exit_code == 0, done.output
    assert "Done: 2 lost files removed from the table's log." in done.stdout
    assert read_contents(str(table)).damaged == ()


@pytest.mark.parametrize("command", ["show", "verify", "optimize"])
def test_what_is_no_archive_is_refused(command: str, tmp_path: Path) -> None:
    def refusal(table: str) -> str:
        done = respool("archive", command, "--home", str(tmp_path / "a home"), "--table", table)
        assert isinstance(done.exception, Exception)
        assert done.exit_code == 1
        return str(done.exception)

    assert "There is no archive at" in refusal("nowhere")
    write_deltalake(str(tmp_path / "other"), pa.table({"topic": ["a"]}))
    assert "is not an archive: it has no column partition" in refusal(str(tmp_path / "other"))
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    assert "not a Delta table" in refusal(str(tmp_path / "empty"))


def test_optimize_starts_no_spark_when_there_is_nothing_to_do(table: Path, tmp_path: Path) -> None:
    append(table, [*visits(0, range(3)), *visits(0, [3], 8)])
    done = respool("archive", "optimize", "--home", str(tmp_path / "a home"))
    assert done.stdout.startswith("Nothing to compact: 2 files, ")


def findings(table: Path, in_kafka: PartitionInKafka) -> dict[str, list[tuple[str, str]]]:
    comparison = KafkaComparison("broker:9092", {TopicPartition("visits", 0): in_kafka}, (), {})
    checks = verify(read_contents(str(table)), comparison)
    return {
        check.name: [(finding.status, finding.what) for finding in check.findings] for check in checks if check.findings
    }


def test_what_kafka_no_longer_has_is_lost_unless_it_looks_like_a_marker(table: Path) -> None:
    append(table, visits(0, [4, 6, 7, 11, 13]))
    gone = (OffsetRange(0, 4), OffsetRange(5, 6), OffsetRange(8, 11))
    reported = findings(table, PartitionInKafka(11, 14, empty=(OffsetRange(12, 13),), gone=gone))
    assert [status for status, _ in reported["no record missing"]] == ["broken", "note", "note"]
    lost, likely, marker = (what for _, what in reported["no record missing"])
    assert "3 offsets missing, offsets 8 to 10. Kafka no longer has them." in lost
    assert "offset 5; most likely transaction markers" in likely
    assert "no record at offset 12 either" in marker
    assert reported["records before the first"] == [
        ("note", "visits-0: the archive starts at offset 4. Kafka no longer has offsets 0 to 3.")
    ]
    reported = findings(table, PartitionInKafka(8, 14, records=(OffsetRange(8, 11),), gone=(OffsetRange(5, 6),)))
    assert [status for status, _ in reported["no record missing"]] == ["broken", "broken"]


def test_another_topic_under_the_same_name_is_reported(table: Path) -> None:
    append(table, visits(0, range(5)))
    comparison = KafkaComparison("broker:9092", {}, ("clicks",), {TopicPartition("visits", 0): "ends at 3"})
    compared = [check for check in verify(read_contents(str(table)), comparison) if check.name == "compared with Kafka"]
    assert [(finding.status, finding.what) for finding in compared[0].findings] == [
        ("broken", "visits-0 at broker:9092 ends at 3: it is not the topic that was archived."),
        ("note", "The topic clicks no longer exists at broker:9092."),
    ]


def test_records_are_refilled_as_the_table_or_a_pipeline_says(table: Path) -> None:
    append(table, visits(0, range(5)))
    known = read_contents(str(table))
    decoder = JsonDecoder(READING.schema, READING.event_time)
    assert decoder_of(known, None) == (decoder, "Europe/Paris")
    several = replace(known, reading=replace(READING, schema="several"))
    with pytest.raises(PipelineError, match=r"has records of several decoders.*--pipeline visits-archive"):
        decoder_of(several, None)
    with pytest.raises(PipelineError, match=r"does not record its decoder.*--pipeline"):
        decoder_of(replace(known, reading=None), None)
    for name in ("visits-archive", "visit-counts"):
        assert decoder_of(several, find_pipeline(name)) == (VISIT, "Europe/Paris")
    with pytest.raises(PipelineError, match="takes event times from the field event_time, the pipeline from"):
        decoder_of(several, find_pipeline("browser-visits-archive"))
