"""The state that is read agrees with the results: for every stateful pipeline, a join and a deduplication."""

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state import reader
from respool.checkpoint.state.selection import StateSelection, select_state
from respool.checkpoint.verify.run import verify
from respool.cli.app import app
from respool.errors import CheckpointError, SettingsError
from respool.format.model import InclusiveRange
from respool.pipeline.registry import find_pipeline
from respool.savepoint.copying import required_files
from respool.sessions.packing import bucket_keys
from respool.storage.open import open_reader, open_writer
from respool.testing import BatchResult, run_batches
from respool.times import epoch_micros
from support.checkpoints import recorded, unpack
from support.queries import KINDS, Kind, Source, end_maintenance, events, run, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
UTC = timezone.utc
START = datetime(2025, 9, 4, 7, tzinfo=UTC)
TEN = timedelta(minutes=10)


def visits() -> list[list[dict[str, Any]]]:
    """Visits in four parts, some late, for every pipeline: each takes the fields that it knows."""
    choose_ = random.Random(7)
    parts = []
    for first, last in ((0, 30), (20, 60), (50, 90), (85, 93)):  # after the last one, no session ends
        times = [START + timedelta(minutes=choose_.randrange(first, last)) for _ in range(12)]
        parts.append(
            [
                {
                    "visit_id": f"v{choose_.randrange(4)}",
                    "event_time": time.isoformat(),
                    "browser": choose_.choice(("Chrome", "Firefox")),
                    "eventTime": time.isoformat(),
                }
                for time in times
            ]
        )
    return parts


@dataclass(frozen=True)
class Ran:
    """A pipeline that ran: its checkpoint, its batches, and how many parts of the visits were read by each."""

    checkpoint: Path
    batches: dict[int, BatchResult]
    parts: dict[int, int]

    def results(self, batch: int) -> Iterator[dict[str, Any]]:
        """Yield what the batches up to this one said."""
        for number in range(batch + 1):
            yield from self.batches[number].rows

    def watermark(self, batch: int) -> datetime:
        return self.batches[batch].watermark or datetime(1970, 1, 1, tzinfo=UTC)


def read(
    spark: "SparkSession", checkpoint: Path, wanted: StateSelection | None = None, only: Mapping[str, str] | None = None
) -> Rows:
    """Return all rows of a state; nothing of the checkpoint changes by that."""
    before = listing(checkpoint)
    page = reader.rows(spark, select_state(opened(checkpoint), wanted or StateSelection()), only or {}, UTC)
    assert listing(checkpoint) == before
    assert page.total == len(page.rows)
    return page.rows


def opened(checkpoint: Path) -> CheckpointSnapshot:
    return CheckpointSnapshot(open_reader(str(checkpoint)))


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in (folder, *folder.rglob("*")))


def rewind(checkpoint: Path, batch: int) -> None:
    files = open_writer(str(checkpoint))
    plan = plan_rewind(
        CheckpointSnapshot(files),
        RewindRequest(ToBatch(batch), allow_data_loss=True),
        RewindContext(now=datetime.now(UTC), ours=True),
    )
    assert not plan.refusals
    apply.apply(plan.journal, files)


@pytest.fixture(scope="module")
def ran(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Runs a pipeline on the visits, once."""

    @cache
    def once(name: str, rule: str = "") -> Ran:
        checkpoint = tmp_path_factory.mktemp(name) / "checkpoint"
        pipeline = find_pipeline(name, {"rule": rule} if rule else {})
        batches = {batch.batch: batch for batch in run_batches(spark, pipeline, visits(), checkpoint)}
        end_maintenance(spark)
        read_by = {number: opened(checkpoint).planned(number).sources[0].end["logOffset"] + 1 for number in batches}
        return Ran(checkpoint, batches, read_by)

    return once


def updated_windows(ran: Ran, batch: int) -> Rows:
    """The newest result of every window that the watermark has not passed."""
    newest = {row["window"]["start"]: row for row in ran.results(batch)}
    return [
        {"window.start": row["window"]["start"], "window.end": row["window"]["end"], "count": row["count"]}
        for _, row in sorted(newest.items())
        if row["window"]["end"] > ran.watermark(batch)
    ]


def browser_windows(ran: Ran, batch: int) -> Rows:
    newest = {(row["browser"], row["window"]["start"]): row for row in ran.results(batch)}
    return [
        {
            "browser": row["browser"],
            "window.start": row["window"]["start"],
            "window.end": row["window"]["end"],
            "count": row["count"],
            "max": row["last_event_time_in_window"],
        }
        for _, row in sorted(newest.items())
        if row["window"]["end"] > ran.watermark(batch)
    ]


def counted_windows(ran: Ran, batch: int) -> Rows:
    """Windows that are still open have no result: they are counted here, and must be published with these counts."""
    counts: dict[datetime, int] = {}
    for number in range(batch + 1):
        for part in visits()[ran.parts[number - 1] if number else 0 : ran.parts[number]]:
            for time in (datetime.fromisoformat(visit["event_time"]) for visit in part):
                start = time - (time - START) % TEN
                if start + TEN > ran.watermark(number):
                    counts[start] = counts.get(start, 0) + 1
        counts = {start: count for start, count in counts.items() if start + TEN > ran.watermark(number)}
    return [
        {"window.start": start, "window.end": start + TEN, "count": count} for start, count in sorted(counts.items())
    ]


def open_sessions(ran: Ran, batch: int) -> Rows:
    latest: dict[tuple[str, datetime], dict[str, Any]] = {}
    for row in ran.results(batch):
        latest.pop((row["visit_id"], row["session_start"]), None)
        if not row["withdrawn"] and not row["is_finished"]:
            latest[row["visit_id"], row["session_start"]] = row
    return [
        {
            "visit_id": row["visit_id"],
            "start_us": epoch_micros(row["session_start"]),
            "end_us": epoch_micros(row["session_end"]),
            "visited_pages": row["visited_pages"],
        }
        for _, row in sorted(latest.items())
    ]


def timed_sessions(ran: Ran, batch: int) -> Rows:
    latest: dict[str, dict[str, Any]] = {}
    for number in range(batch + 1):
        for row in ran.batches[number].rows:
            if row["is_finished"]:
                del latest[row["visit_id"]]
                continue
            part = visits()[ran.parts[number] - 1]
            times = [
                datetime.fromisoformat(event["event_time"]) for event in part if event["visit_id"] == row["visit_id"]
            ]
            deadline = (ran.batches[number].watermark or max(times)) + TEN
            latest[row["visit_id"]] = {"visited_pages": row["visited_pages"], "deadline_us": epoch_micros(deadline)}
    return [{"visit_id": visit, **row} for visit, row in sorted(latest.items())]


@pytest.mark.parametrize(
    ("name", "rule", "expected"),
    [
        ("visit-counts", "", counted_windows),
        ("visit-windows", "", updated_windows),
        ("browser-stats-stateful", "", browser_windows),
        ("sessions", "gap", open_sessions),
        ("sessions", "timer", timed_sessions),
    ],
)
def test_the_state_of_a_pipeline_is_what_its_results_say(
    spark: "SparkSession",
    ran: Callable[..., Ran],
    tmp_path: Path,
    name: str,
    rule: str,
    expected: Callable[[Ran, int], Rows],
) -> None:
    query = ran(name, rule)
    last = opened(query.checkpoint).commits[-1]
    older = min(batch for batch, parts in query.parts.items() if parts == 3)
    assert expected(query, last) != expected(query, older)
    assert read(spark, query.checkpoint) == expected(query, last) != []
    assert read(spark, query.checkpoint, StateSelection(batch=older)) == expected(query, older) != []
    rewound = shutil.copytree(query.checkpoint, tmp_path / "rewound")  # which names files of where it ran
    rewind(rewound, older + 1)
    assert read(spark, rewound) == expected(query, older)
    if name == "sessions":
        timers = read(spark, rewound, StateSelection(timers=True))
        if rule == "timer":
            assert {timer["visit_id"] for timer in timers} == {row["visit_id"] for row in expected(query, older)}
            assert all(timer["expires"] > START for timer in timers)
        else:  # every bucket is to see the next watermark
            assert {timer["bucket"] for timer in timers} == set(bucket_keys(16))
            with pytest.raises(CheckpointError, match="Read them after two batches"):
                read(spark, rewound, StateSelection(changes=InclusiveRange(0, older)))


def joined(session: "SparkSession", source: Source) -> "DataFrame":
    """Return a join of two streams, and what is new of its keys: two stateful operators."""
    rows = session.readStream.schema("key STRING, id INT, amount INT").option("maxFilesPerTrigger", 1)
    left = rows.json(source["path"]).where("amount < 50")
    right = rows.json(source["path"]).where("amount >= 50").toDF("right_key", "right_id", "right_amount")
    return left.join(right, left["key"] == right["right_key"]).dropDuplicates(["key", "right_id"])


JOIN = Kind("joined", {"spark.sql.streaming.stateStore.maintenanceInterval": "200ms"}, joined, "append")


def sides(flavours: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the two sides, from the input."""
    rows = [event for number, flavour in enumerate(flavours) for event in events(number, flavour)]
    return [event for event in rows if event["amount"] < 50], [event for event in rows if event["amount"] >= 50]


def check_join(spark: "SparkSession", checkpoint: Path, batch: int, results: list[str], flavours: list[str]) -> None:
    """Compare the state of the join and of the deduplication with input and results up to a batch."""
    left, right = sides(flavours)
    dedupe, join = (0, 1)
    rows = read(spark, checkpoint, StateSelection(batch, join, "left"))
    names = ("field0", "key", "id", "amount")
    assert sorted(tuple(row[name] for name in names) for row in rows) == sorted(
        (event["key"], event["key"], event["id"], event["amount"]) for event in left
    )
    rows = read(spark, checkpoint, StateSelection(batch, join, "right"))
    assert sorted((row["right_key"], row["right_amount"]) for row in rows) == sorted(
        (event["key"], event["amount"]) for event in right
    )
    said = sorted((row["key"], row["right_id"]) for row in map(json.loads, results))
    kept = [(row["key"], row["right_id"]) for row in read(spark, checkpoint, StateSelection(batch, dedupe))]
    assert kept == said == sorted({(a["key"], b["id"]) for a in left for b in right if a["key"] == b["key"]})


def test_the_state_of_a_join_and_a_deduplication(spark: "SparkSession", tmp_path: Path) -> None:
    source = write_files(tmp_path / "input", range(4))
    results = run(spark, JOIN, source, tmp_path / "checkpoint")
    checkpoint = tmp_path / "checkpoint"

    def said(last: int) -> list[str]:
        return [row for batch in range(last + 1) for row in results[batch]]

    check_join(spark, checkpoint, 3, said(3), [""] * 4)
    check_join(spark, checkpoint, 1, said(1), [""] * 2)
    rewind(checkpoint, 2)
    check_join(spark, checkpoint, 1, said(1), [""] * 2)
    write_files(tmp_path / "input", range(2, 4), "other")
    results |= run(spark, JOIN, source, checkpoint)
    assert sorted(results) == [0, 1, 2, 3]
    check_join(spark, checkpoint, 3, said(3), ["", "", "other", "other"])
    rows = read(spark, checkpoint, StateSelection(operator=1, store="right-keyToNumValues"), {"field0": "k1"})
    assert [row["value"] for row in rows] == [sum(row["key"] == "k1" for row in sides(["", "", "other", "other"])[1])]
    added = read(spark, checkpoint, StateSelection(operator=1, store="left", changes=InclusiveRange(3, 3)))
    assert {row["id"] for row in added if row["change"] == "update"} >= {
        row["id"] for row in events(3, "other") if row["amount"] < 50
    }


def test_a_total_of_all_rows_has_one_partition(spark: "SparkSession", tmp_path: Path) -> None:
    def total(session: "SparkSession", source: Source) -> "DataFrame":
        rows = session.readStream.schema("amount INT").option("maxFilesPerTrigger", 1).json(source["path"])
        return rows.selectExpr("amount + 1 AS more", "amount").groupBy().agg({"amount": "sum", "more": "sum"})

    kind = Kind("total", JOIN.conf, total)
    source = write_files(tmp_path / "input", range(2))
    checkpoint = tmp_path / "checkpoint"
    results = run(spark, kind, source, checkpoint)
    assert all(check.status != "broken" for check in verify(opened(checkpoint)))
    sums = [
        [sum(event["amount"] + more for event in events(0) + events(1)[:count]) for more in (0, 1)] for count in (0, 8)
    ]
    assert [tuple(row.values()) for row in read(spark, checkpoint)] == [tuple(sums[1])]
    rewind(checkpoint, 1)
    (row,) = read(spark, checkpoint)
    assert row == {"value.sum": sums[0][0], "value.sum_2": sums[0][1]}
    assert run(spark, kind, source, checkpoint) == {1: results[1]}


def totals(kind: str, batch: int) -> Rows:
    """Return the newest result of every key, of a golden checkpoint that counts."""
    newest = {}
    for number, rows in recorded(kind)["batches"].items():
        for row in map(json.loads, rows if int(number) <= batch else []):
            newest[row["key"], row["rest"]] = row
    names = {"key": "key", "rest": "_groupingexpression", "rows": "count", "sum": "sum"}
    return [{names[name]: value for name, value in row.items()} for _, row in sorted(newest.items())]


@pytest.mark.parametrize("kind", ["ids", "named", "offsets-v2", "repartitioned", "changelog-purged"])
def test_every_format_is_read(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    checkpoint = unpack(tmp_path, kind)
    last = opened(checkpoint).commits[-1]
    for batch in (last, last - 3):
        assert read(spark, checkpoint, StateSelection(batch)) == totals(kind, batch) != []


@pytest.mark.parametrize("kind", ["hdfs", "ids-changelog"])
def test_changes_are_what_the_batches_said(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    changes = read(spark, unpack(tmp_path, kind), StateSelection(changes=InclusiveRange(5, 6)))
    said = [(batch, *json.loads(row).values()) for batch in (5, 6) for row in recorded(kind)["batches"][str(batch)]]
    assert [tuple(row.values()) for row in changes] == [(batch, "update", *row) for batch, *row in sorted(said)]


def test_variables_of_a_checkpoint_that_was_moved(spark: "SparkSession", tmp_path: Path) -> None:
    checkpoint = unpack(tmp_path, "transform-ids")
    latest: dict[str, dict[str, Any]] = {}
    for rows in recorded("transform-ids")["batches"].values():
        for row in map(json.loads, rows):
            latest.pop(row["key"], None)
            if not row["closed"]:
                latest[row["key"]] = row
    keys = sorted(latest)
    assert read(spark, checkpoint, StateSelection(variable="rows")) == [
        {"key": key, "rows": latest[key]["rows"]} for key in keys
    ]
    lists = [(row["key"], row["amount"]) for row in read(spark, checkpoint, StateSelection(variable="amounts"))]
    assert lists == [(key, amount) for key in keys for amount in json.loads(latest[key]["amounts"])]
    maps = [
        (row["key"], [row["rest"], row["amount"]]) for row in read(spark, checkpoint, StateSelection(variable="by_id"))
    ]
    assert maps == [(key, pair) for key in keys for pair in json.loads(latest[key]["by_id"])]


def test_a_savepoints_files_are_enough(spark: "SparkSession", ran: Callable[..., Ran], tmp_path: Path) -> None:
    query = ran("sessions", "gap")
    whole = opened(query.checkpoint)
    for path in required_files(whole, 2):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(query.checkpoint / path, tmp_path / path)
    assert read(spark, tmp_path) == open_sessions(query, 2)
    with pytest.raises(CheckpointError, match=r"no longer kept. Batches that can be read: 2\."):
        select_state(opened(tmp_path), StateSelection(1))


def test_the_state_of_a_query_that_runs(spark: "SparkSession", tmp_path: Path) -> None:
    kind = {each.name: each for each in KINDS}["changelog"]
    source = write_files(tmp_path / "input", range(2))
    counts: dict[int, int] = {}
    query = (
        kind.query(kind.session(spark), source)
        .writeStream.outputMode("complete")
        .foreachBatch(lambda frame, batch: counts.update({batch: frame.count()}))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        first = reader.rows(spark, select_state(opened(tmp_path / "checkpoint"), StateSelection()), {}, UTC, limit=2)
        assert (len(first.rows), first.total) == (2, counts[1])
        write_files(tmp_path / "input", range(2, 3))
        query.processAllAvailable()
        for batch in (1, 2):
            page = reader.rows(spark, select_state(opened(tmp_path / "checkpoint"), StateSelection(batch)), {}, UTC)
            assert page.total == len(page.rows) == counts[batch]
        assert query.isActive
    finally:
        query.stop()


@pytest.fixture
def command(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """The command in this process, with the Spark that is there."""

    @contextmanager
    def started(_: object, **__: object) -> "Iterator[SparkSession]":
        yield spark

    monkeypatch.setattr("respool.spark.session.spark_session", started)
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> str:
        done = CliRunner().invoke(app, ["state", *map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return call


def test_the_command_shows_chooses_and_writes(
    spark: "SparkSession", ran: Callable[..., Ran], command: Callable[..., str], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    query = ran("browser-stats-stateful")
    last = opened(query.checkpoint).commits[-1]
    rows = browser_windows(query, last)
    shown = command(query.checkpoint, "--limit", 1, "--timezone", "Europe/Paris").splitlines()
    assert shown[0] == f"State after batch {last}, operator 0 (aggregation)"
    assert shown[2].split() == ["browser", "window.start", "window.end", "count", "max"]
    start = rows[0]["window.start"].astimezone(timezone(timedelta(hours=2)))
    assert f"{start:%Y-%m-%dT%H:%M}+02:00" in shown[3]
    assert (
        shown[5]
        == f"… and {len(rows) - 1} more of {len(rows)} rows; --limit all shows them, --output FILE writes them."
    )

    zone = ("--timezone", "America/New_York")
    given = rows[0]["window.start"].astimezone(timezone(timedelta(hours=-4))).replace(tzinfo=None).isoformat()
    words = ("--key", f"window.start={given}", "--key", f"browser={rows[0]['browser']}")
    as_json = json.loads(command(query.checkpoint, *words, *zone, "--json"))
    assert (as_json["batch"], as_json["kind"], as_json["total"]) == (last, "aggregation", 1)
    assert [datetime.fromisoformat(row["max"]) for row in as_json["rows"]] == [rows[0]["max"]]
    assert "No row has these values." in command(query.checkpoint, "--key", "browser=Opera")

    for name in ("state.parquet", "state.json", "state.csv"):
        assert f"{len(rows)} rows written to {name}" in command(query.checkpoint, "--output", name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.csv", "state.json", "state.parquet"]
    table = pq.read_table(tmp_path / "state.parquet").to_pylist()
    assert table == rows
    lines = [json.loads(line) for line in (tmp_path / "state.json").read_text().splitlines()]
    assert [datetime.fromisoformat(line["window.end"].replace("Z", "+00:00")) for line in lines] == [
        row["window.end"] for row in rows
    ]
    head, *cells = (tmp_path / "state.csv").read_text().splitlines()
    assert head == "browser,window.start,window.end,count,max"
    assert [line.split(",")[0] for line in cells] == [row["browser"] for row in rows]
    assert cells[0].split(",")[1] == f"{rows[0]['window.start']:%Y-%m-%dT%H:%M:%S}.000000Z"
    command(query.checkpoint, "--key", "browser=Opera", "--output", "none.jsonl")
    assert (tmp_path / "none.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("brwser", "a", r"There is no column 'brwser'. Did you mean 'browser'\? The key has: browser, window.start"),
        ("count", "many", "Column count is of type bigint; 'many' cannot be converted"),
        ("window.start", "soon", "'soon' is not a time"),
    ],
)
def test_a_key_that_cannot_be(
    spark: "SparkSession", ran: Callable[..., Ran], key: str, value: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        read(spark, ran("browser-stats-stateful").checkpoint, only={key: value})


def test_a_file_that_is_lost_while_it_is_read_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    checkpoint = unpack(tmp_path, "hdfs")
    reading = select_state(opened(checkpoint), StateSelection(3))
    shutil.rmtree(checkpoint / "state")
    with pytest.raises(CheckpointError, match=r"(?s)Spark cannot read the state after batch 3 .* run this again"):
        reader.rows(spark, reading, {}, UTC)
