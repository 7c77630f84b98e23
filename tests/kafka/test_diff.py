"""What two runs wrote is compared, on a real broker and in real Delta tables."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from respool import topics
from respool.diff.compare import compare
from respool.diff.model import Difference, Report, Request, Side, Since, Summary
from respool.errors import DiffError
from respool.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)


class Topics:
    """Two fresh topics, A and B, of one partition each."""

    def __init__(self, kafka: Kafka, name: str) -> None:
        self.kafka = kafka
        self.a, self.b = (Side("kafka", f"{name}-{letter}") for letter in "ab")
        for side in (self.a, self.b):
            topics.create(kafka, side.place, partitions=1)

    def send(self, side: Side, *records: tuple[Any, Any] | tuple[Any, Any, Any]) -> None:
        """Send records in order: key, value (JSON unless bytes), and perhaps headers, or the batch that wrote it."""
        producer = Producer(self.kafka.for_client())
        for number, (key, value, *rest) in enumerate(records):
            headers = rest[0] if rest else {}
            if isinstance(headers, int):
                headers = {"respool-source": "live", "respool-batch": str(headers)}
            encoded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            at = int((START + timedelta(minutes=number)).timestamp() * 1000)
            producer.produce(side.place, encoded, key, headers=list(headers.items()), timestamp=at)
        assert producer.flush(20) == 0


@pytest.fixture
def two(kafka: Kafka, topic: str) -> Topics:
    return Topics(kafka, topic)


def table(folder: Path, name: str, rows: Iterable[Mapping[str, Any]], mode: Any = "overwrite") -> Side:
    write_deltalake(str(folder / name), pa.Table.from_pylist(list(rows)), mode=mode)
    return Side("delta", str(folder / name), key=("id",))


def verdicts(report: Report) -> set[tuple[str, str | None, int]]:
    return {(one.verdict, one.key, one.rows) for one in report.differences}


def test_topics_are_compared_by_key_and_column(spark: "SparkSession", kafka: Kafka, two: Topics) -> None:
    two.send(
        two.a,
        (b"same", b'{"n": 1, "where": {"x": 1, "y": [1, 2]}, "gone": null}'),
        (b"number", {"n": 10000000000000001, "r": 0.1}),
        (b"changed", {"n": 1, "page": "home", "old": True}),
        (b"newest", {"n": 1}),
        (b"newest", {"n": 2}),
        (b"withdrawn", {"n": 1}),
        (b"withdrawn", None),
        (b"back", None),
        (b"back", {"n": 1}),
        (b"text", b"not JSON"),
        (b"tail", b'{"n": 1} and more'),
        (b"long", b'{"n": 1234567890123456789012345678901234567890}'),
        (b"\xff", b"\xfe"),
        (b"only a", {"n": 1}),
    )
    two.send(
        two.b,
        (b"same", b'{"where":{"y":[1,2],"x":1},"n":1}'),
        (b"number", {"n": 10000000000000002, "r": 0.1}),
        (b"changed", {"n": "1", "page": "home", "new": "é"}),
        (b"newest", {"n": 2}),
        (b"back", {"n": 1}),
        (b"text", b"not JSON"),
        (b"tail", b'{"n": 1} and less'),
        (b"long", b'{"n": 1234567890123456789012345678901234567891}'),
        (b"\xff", b"\xfd"),
        (b"only b", {"n": 1}),
    )
    report = compare(spark, kafka, Request(two.a, two.b))
    found = {one.key: one for one in report.differences}
    assert found["changed"] == Difference(
        "differ",
        "changed",
        {"n": "1", "page": '"home"', "old": "true"},
        {"n": '"1"', "page": '"home"', "new": '"é"'},
        {"n": ("1", '"1"'), "old": ("true", None), "new": (None, '"é"')},
    )
    assert found["number"].columns == {"n": ("10000000000000001", "10000000000000002")}
    assert found["tail"].columns == {"text": ('"{\\"n\\": 1} and more"', '"{\\"n\\": 1} and less"')}
    assert found["0xFF"].columns == {"bytes": ('"FE"', '"FD"')}
    assert found["only a"] == Difference("only_a", "only a", {"n": "1"}, None, {})
    assert set(found) == {"changed", "number", "tail", "long", "0xFF", "only a", "only b"}
    assert report.summary == Summary(
        equal=4, differ=5, only_a=1, only_b=1, columns={"n": 2, "text": 2, "bytes": 1, "new": 1, "old": 1}
    )
    ignoring = compare(spark, kafka, Request(two.a, two.b, ignore=("n", "old", "new", "bytes", "text")), most=1)
    assert ignoring.summary == Summary(equal=9, differ=0, only_a=1, only_b=1, columns={})


def test_only_what_came_after_a_batch_counts(spark: "SparkSession", kafka: Kafka, two: Topics) -> None:
    computed_again = {"respool-source": "reprocess", "respool-run-id": "r"}
    two.send(
        two.a,
        (b"before", {"n": 1}, 7),  # START
        (b"closed", {"n": 1}, 7),
        (b"again", {"n": 1}, 7),
        (b"other", {"n": 1}, 7),
        (b"early", {"n": 1}, computed_again),  # START + 4 minutes
        (b"grown", {"n": 1}, 7),
        (b"grown", {"n": 2}, 8),
        (b"ended", {"n": 1}, 7),
        (b"ended", None, 9),
        (b"late", {"n": 1}, computed_again),  # START + 9 minutes
    )
    two.send(two.b, (b"grown", {"n": 2}, 8), (b"again", {"n": 1}, 9), (b"other", {"n": 2}, 9), (b"ended", {"n": 3}, 9))
    since = Since(batch=7, time=START + timedelta(minutes=5))
    report = compare(spark, kafka, Request(two.a, two.b, since))
    # What only B wrote since, under a key that A had before, is compared with what A had.
    assert report.summary == Summary(equal=2, differ=1, only_a=1, only_b=1, columns={"n": 1})
    assert verdicts(report) == {("differ", "other", 1), ("only_a", "late", 1), ("only_b", "ended", 1)}
    whole = compare(spark, kafka, Request(two.a, two.b, Since(batch=7)), most=0)
    assert (whole.summary.only_a, whole.differences) == (2, ())
    by_offset = replace(since, offsets={0: 4}, output=two.a.address)
    assert ("only_a", "early", 1) in verdicts(compare(spark, kafka, Request(two.a, two.b, by_offset)))


def test_records_without_keys_are_counted_or_known_by_columns(
    spark: "SparkSession", kafka: Kafka, two: Topics, tmp_path: Path
) -> None:
    two.send(two.a, *[(None, {"id": one, "n": 1}) for one in "xxyz"])
    two.send(two.b, (None, {"n": 1, "id": "x"}), (None, {"id": "y", "n": 1}), (None, {"id": "z", "n": 1}))
    two.send(two.b, (None, {"id": "z", "n": 2}))
    whole = compare(spark, kafka, Request(two.a, two.b), output=str(tmp_path / "all"))
    assert whole.summary == Summary(equal=3, differ=0, only_a=1, only_b=1, columns={})
    assert {(one.verdict, one.key, (one.a or one.b or {})["id"]) for one in whole.differences} == {
        ("only_a", None, '"x"'),
        ("only_b", None, '"z"'),
    }
    written = sorted(pq.read_table(tmp_path / "all").to_pylist(), key=lambda row: str(row["verdict"]))
    assert written == [
        {"verdict": "only_a", "key": None, "rows": 1, "a": '{"id":"x","n":1}', "b": None, "columns": None},
        {"verdict": "only_b", "key": None, "rows": 1, "a": None, "b": '{"id":"z","n":2}', "columns": None},
    ]
    by_column = compare(spark, kafka, Request(two.a, two.b, key=("id",)))
    assert by_column.summary == Summary(equal=2, differ=1, only_a=0, only_b=0, columns={"n": 1})
    assert by_column.differences[0].key == '{"id":"z"}'
    with pytest.raises(DiffError, match=r"No row .* has the column idd"):
        compare(spark, kafka, Request(two.a, two.b, key=("idd",)))


def test_tables_are_compared_since_a_version_or_a_time(spark: "SparkSession", tmp_path: Path) -> None:
    at = START + timedelta(microseconds=1)
    before = [{"id": one, "n": 1, "at": START} for one in ("kept", "changed", "again", "gone")]
    table(tmp_path, "a", before)
    now = [{**row, "n": 2 if row["id"] == "changed" else 1} for row in before if row["id"] != "gone"]
    a = table(tmp_path, "a", [*now, {"id": "new", "n": 1, "at": START}])
    b = table(
        tmp_path,
        "b",
        [{"at": START, "n": 2, "id": "changed"}, {"at": START, "n": 1, "id": "again"}, {"at": at, "n": 1, "id": "new"}],
    )
    whole = compare(spark, None, Request(a, b))
    assert whole.summary == Summary(equal=2, differ=1, only_a=1, only_b=0, columns={"at": 1})
    assert whole.differences[0].columns == {"at": ('"2025-09-04T07:00:00.000000Z"', '"2025-09-04T07:00:00.000001Z"')}
    since = compare(spark, None, Request(a, b, Since(version=0)))
    assert since.summary == Summary(equal=2, differ=1, only_a=0, only_b=0, columns={"at": 1})
    first, second = (one["timestamp"] for one in reversed(DeltaTable(a.place).history()))
    assert first < second
    moment = datetime.fromtimestamp(second / 1000, timezone.utc)
    assert compare(spark, None, Request(a, b, Since(time=moment))).summary == since.summary
    unkeyed = Request(replace(a, key=()), replace(b, key=()), Since(version=0))
    assert compare(spark, None, unkeyed).summary == Summary(equal=1, differ=0, only_a=1, only_b=2, columns={})
    with pytest.raises(DiffError, match=r"alike in n: 2 more than it has such keys. Name more columns with --key"):
        compare(spark, None, Request(a, b, key=("n",)))


def test_a_topic_is_compared_with_a_table(spark: "SparkSession", kafka: Kafka, two: Topics, tmp_path: Path) -> None:
    window = {"start": START, "end": START + timedelta(minutes=10)}
    text = {"start": "2025-09-04T09:00:00.000+02:00", "end": "2025-09-04T09:10:00.000+02:00"}
    rows = [{"id": one, "window": window, "n": 1, "none": None} for one in ("x", "y")]
    schema = {"none": pa.nulls(2, pa.string())}
    written = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "none"} for row in rows])
    write_deltalake(str(tmp_path / "t"), written.append_column("none", schema["none"]))
    two.send(two.a, (b"x", {"window": text, "id": "x", "n": 1}), (b"y", {"id": "y", "window": text, "n": 2}))
    two.send(two.a, (b"z", {"id": "z"}), (b"z", None))
    b = Side("delta", str(tmp_path / "t"), key=("id", "window"), timezone="Europe/Paris")
    report = compare(spark, kafka, Request(two.a, b))
    assert report.summary == Summary(equal=1, differ=1, only_a=0, only_b=0, columns={"n": 1})
    assert report.differences[0].columns == {"n": ("2", "1")}
    with pytest.raises(DiffError, match="Name them with --key"):
        compare(spark, kafka, Request(two.a, replace(b, key=())))
