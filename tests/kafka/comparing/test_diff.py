"""What two runs wrote is compared, on a real broker and in real Delta tables."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake
from typer.testing import CliRunner, Result

from respool.cli.app import app
from respool.comparing.compare import compare
from respool.comparing.model import ComparedOutput, Cutoff, DiffRequest, DiffSummary, RowDifference
from respool.comparing.report import DiffReport
from respool.errors import DiffError
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.running.claim import claim
from respool.settings import Settings
from respool.spark import session
from respool.visits.counts import visit_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)


Command = Callable[..., Result]


class Topics:
    """Two fresh topics, A and B, of one partition each."""

    def __init__(self, kafka: KafkaCluster, name: str) -> None:
        self.kafka = kafka
        self.a, self.b = (ComparedOutput("kafka", f"{name}-{letter}") for letter in "ab")
        for side in (self.a, self.b):
            topics.create(kafka, side.place, partitions=1)

    def send(self, side: ComparedOutput, *records: tuple[Any, Any] | tuple[Any, Any, Any]) -> None:
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
def two(kafka: KafkaCluster, topic: str) -> Topics:
    return Topics(kafka, topic)


def table(folder: Path, name: str, rows: Iterable[Mapping[str, Any]], mode: Any = "overwrite") -> ComparedOutput:
    write_deltalake(str(folder / name), pa.Table.from_pylist(list(rows)), mode=mode)
    return ComparedOutput("delta", str(folder / name), key=("id",))


def verdicts(report: DiffReport) -> set[tuple[str, str | None, int]]:
    return {(difference.verdict, difference.key, difference.rows) for difference in report.differences}


def test_topics_are_compared_by_key_and_column(spark: "SparkSession", kafka: KafkaCluster, two: Topics) -> None:
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
    report = compare(spark, kafka, DiffRequest(two.a, two.b))
    differences = {difference.key: difference for difference in report.differences}
    assert differences["changed"] == RowDifference(
        "differ",
        "changed",
        {"n": "1", "page": '"home"', "old": "true"},
        {"n": '"1"', "page": '"home"', "new": '"é"'},
        {"n": ("1", '"1"'), "old": ("true", None), "new": (None, '"é"')},
    )
    assert differences["number"].columns == {"n": ("10000000000000001", "10000000000000002")}
    assert differences["tail"].columns == {"text": ('"{\\"n\\": 1} and more"', '"{\\"n\\": 1} and less"')}
    assert differences["0xFF"].columns == {"bytes": ('"FE"', '"FD"')}
    assert differences["only a"] == RowDifference("only_a", "only a", {"n": "1"}, None, {})
    assert set(differences) == {"changed", "number", "tail", "long", "0xFF", "only a", "only b"}
    assert report.summary == DiffSummary(
        equal=4, differ=5, only_a=1, only_b=1, columns={"n": 2, "text": 2, "bytes": 1, "new": 1, "old": 1}
    )


def test_only_what_came_after_a_batch_counts(spark: "SparkSession", kafka: KafkaCluster, two: Topics) -> None:
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
    since = Cutoff(batch=7, time=START + timedelta(minutes=5))
    report = compare(spark, kafka, DiffRequest(two.a, two.b, since))
    # What only B wrote since, under a key that A had before, is compared with what A had.
    assert report.summary == DiffSummary(equal=2, differ=1, only_a=1, only_b=1, columns={"n": 1})
    assert verdicts(report) == {("differ", "other", 1), ("only_a", "late", 1), ("only_b", "ended", 1)}
    by_offset = DiffRequest(two.b, two.a, replace(since, offsets={0: 4}, output=two.a.address))
    assert compare(spark, kafka, by_offset, most=0) == DiffReport(
        by_offset, replace(report.summary, only_a=1, only_b=2), ()
    )


def test_records_without_keys_are_counted_or_identified_by_columns(
    spark: "SparkSession", kafka: KafkaCluster, two: Topics, tmp_path: Path
) -> None:
    two.send(two.a, *[(None, {"id": id_, "n": 1, "at": number}) for number, id_ in enumerate("xxyz")])
    two.send(two.b, (None, {"n": 1, "id": "x"}), (None, {"id": "y", "n": 1}), (None, {"id": "z", "n": 1}))
    two.send(two.b, (None, {"id": "z", "n": 2}))
    whole = compare(spark, kafka, DiffRequest(two.a, two.b, ignore=("at",)), output=str(tmp_path / "all"))
    assert whole.summary == DiffSummary(equal=3, differ=0, only_a=1, only_b=1, columns={})
    assert {
        (difference.verdict, difference.key, (difference.a or difference.b or {})["id"])
        for difference in whole.differences
    } == {
        ("only_a", None, '"x"'),
        ("only_b", None, '"z"'),
    }
    written = sorted(pq.read_table(tmp_path / "all").to_pylist(), key=lambda row: str(row["verdict"]))
    assert written == [
        {"verdict": "only_a", "key": None, "rows": 1, "a": '{"id":"x","n":1}', "b": None, "columns": None},
        {"verdict": "only_b", "key": None, "rows": 1, "a": None, "b": '{"id":"z","n":2}', "columns": None},
    ]
    by_column = compare(spark, kafka, DiffRequest(two.a, two.b, key=("id",), ignore=("at", "id")))
    assert by_column.summary == DiffSummary(equal=2, differ=1, only_a=0, only_b=0, columns={"n": 1})
    assert by_column.differences[0].key == '{"id":"z"}'
    with pytest.raises(DiffError, match=r"Neither .* has a row with the column idd"):
        compare(spark, kafka, DiffRequest(two.a, two.b, key=("idd",)))


def test_tables_are_compared_since_a_version(spark: "SparkSession", tmp_path: Path) -> None:
    at = START + timedelta(microseconds=1)
    before = [{"id": id_, "n": 1, "at": START} for id_ in ("kept", "changed", "again", "gone")]
    table(tmp_path, "a", before)
    now = [{**row, "n": 2 if row["id"] == "changed" else 1} for row in before if row["id"] != "gone"]
    a = table(tmp_path, "a", [*now, {"id": "new", "n": 1, "at": START}])
    b = table(
        tmp_path,
        "b",
        [{"at": START, "n": 2, "id": "changed"}, {"at": START, "n": 1, "id": "again"}, {"at": at, "n": 1, "id": "new"}],
    )
    since = compare(spark, None, DiffRequest(a, b, Cutoff(version=0)))
    assert since.summary == DiffSummary(equal=2, differ=1, only_a=0, only_b=0, columns={"at": 1})
    assert since.differences[0].columns == {"at": ('"2025-09-04T07:00:00.000000Z"', '"2025-09-04T07:00:00.000001Z"')}
    unkeyed = DiffRequest(replace(a, key=()), replace(b, key=()), Cutoff(version=0))
    assert compare(spark, None, unkeyed).summary == DiffSummary(equal=1, differ=0, only_a=1, only_b=2, columns={})
    with pytest.raises(
        DiffError,
        match=r"n does not identify a row .*: 2 rows share a key with another row. Name more columns",
    ):
        compare(spark, None, DiffRequest(a, b, key=("n",)))


def test_a_topic_is_compared_with_a_table(
    spark: "SparkSession", kafka: KafkaCluster, two: Topics, tmp_path: Path
) -> None:
    window = {"start": START, "end": START + timedelta(minutes=10)}
    text = {"start": "2025-09-04T09:00:00.000+02:00", "end": "2025-09-04T09:10:00.000+02:00"}
    rows = [{"id": id_, "window": window, "n": 1} for id_ in ("x", "y")]
    written = pa.Table.from_pylist(rows).append_column("none", pa.nulls(2, pa.string()))
    write_deltalake(str(tmp_path / "t"), written)
    two.send(two.a, (b"x", {"window": text, "id": "x", "n": 1}), (b"y", {"id": "y", "window": text, "n": 2}))
    two.send(two.a, (b"z", {"id": "z"}), (b"z", None))
    b = ComparedOutput("delta", str(tmp_path / "t"), key=("id", "window"), timezone="Europe/Paris")
    report = compare(spark, kafka, DiffRequest(two.a, b))
    assert report.summary == DiffSummary(equal=1, differ=1, only_a=0, only_b=0, columns={"n": 1})
    assert report.differences[0].columns == {"n": ("2", "1")}
    with pytest.raises(DiffError, match="Name them with --key"):
        compare(spark, kafka, DiffRequest(two.a, replace(b, key=())))


@pytest.fixture
def run(spark: "SparkSession", kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `respool diff` in a home of its own, with the Spark of all tests."""

    @contextmanager
    def running(_: Settings, **__: object) -> "Iterator[SparkSession]":
        yield spark

    monkeypatch.setattr(session, "spark_session", running)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Result:
        result = CliRunner().invoke(app, ["diff", *words, "--bootstrap-servers", kafka.bootstrap_servers])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def ran(home: Path, name: str, output: str, batch: int, offset: int) -> Path:
    """Write what a run of visit-counts leaves: a checkpoint with these offsets, and the record of its output."""
    where = home / "checkpoints" / name
    held = claim(str(where), visit_counts(topic="visits", output_topic=output), Settings(home=home))
    assert held is not None
    held.close()
    conf = {"batchWatermarkMs": int(START.timestamp() * 1000), "batchTimestampMs": 0, "conf": {}}
    offsets = "\n".join(["v1", json.dumps(conf), json.dumps({"visits": {"0": offset, "1": 5}})])
    for folder, text in (("offsets", offsets), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        (where / folder).mkdir()
        (where / folder / str(batch)).write_text(text)
    return where


def test_checkpoints_stand_for_what_their_pipelines_write(run: Command, two: Topics, tmp_path: Path) -> None:
    home = tmp_path / ".respool"
    ran(home, "visit-counts", two.a.place, 9, 1250)
    fork = ran(home, "fork", two.b.place, 8, 16)
    window = {"window": {"start": "2025-09-04T07:00:00.000Z", "end": "2025-09-04T07:10:00.000Z"}}
    key = json.dumps(window)
    two.send(two.a, (b"old", {"count": 1}, 7), (key, {**window, "count": 5}, 8), (b"x", {"count": 1}, 9))
    two.send(two.b, (key, {**window, "count": 7}, 8))
    result = run("visit-counts", str(fork), "--since-batch", "7", "--output", "all")
    assert result.exit_code == 3, result.output
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert shown[:4] == [
        f"A topic {two.a.place}, of the pipeline visit-counts: batch 9, watermark 2025-09-04T07:00Z",
        f"B topic {two.b.place}, of the pipeline visit-counts: batch 8, watermark 2025-09-04T07:00Z",
        "since batch 7",
        "note B has read 1,234 records less: differences may come from that.",
    ]
    line = f"differs window={json.dumps(window['window'])} count 5 → 7"
    assert [line for line in shown if line.startswith(("differs", "only"))] == [line, "only in A x count=1"]
    assert "0 rows equal, 1 differs, 1 only in A, 0 only in B." in shown
    assert {row["verdict"] for row in pq.read_table(tmp_path / "all").to_pylist()} == {"differ", "only_a"}
    with pytest.raises(DiffError, match=r"all already exists. Name a new folder with --output"):
        run("visit-counts", str(fork), "--output", "all")

    two.send(two.b, (key, {**window, "count": 5}, 9), (b"x", {"count": 1}, 9))
    equal = run("visit-counts", f"kafka:{two.b.place}", "--since-batch", "7", "--json")
    assert equal.exit_code == 0
    report = json.loads(equal.stdout)
    assert (report["equal"], report["differences"], report["notes"]) == (2, [], [])
    assert report["since"] == {"batch": 7}
    assert report["a"]["offsets"] == {"visits-0": 1250, "visits-1": 5}


def test_a_missing_output_is_reported_with_every_place_that_was_searched(
    run: Command, two: Topics, kafka: KafkaCluster
) -> None:
    with pytest.raises(DiffError) as refused:
        run(two.a.place, "nowhere")
    for place in ("no pipeline of that name has run", "Delta table", "results", f"topic at {kafka.bootstrap_servers}"):
        assert place in str(refused.value)
    with pytest.raises(DiffError, match=f"A and B are both the topic {two.a.place}. Name two outputs"):
        run(two.a.place, f"kafka:{two.a.place}")
    wrong = run(two.a.place, two.b.place, "--since-version", "1")
    assert (wrong.exit_code, "A, which is not a table" in wrong.stderr) == (2, True)
