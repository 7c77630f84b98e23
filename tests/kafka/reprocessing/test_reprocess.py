"""A span reprocessed next to the live query: published, audited, corrected, stopped, resumed, refused."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.errors import CheckpointError, ReprocessError
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.reprocessing import completeness
from respool.reprocessing.runs import Runs
from respool.sessions.rules import sessions_of
from respool.settings import Settings
from respool.sinks.delta import DeltaSink
from support.stage import Stage, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 180.0
MakeStage = Callable[..., Stage]


@pytest.fixture
def make(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path, topic: str) -> MakeStage:
    return lambda name, **values: stage(spark, kafka, settings, tmp_path / "a home", name, topic, **values)


@pytest.fixture(scope="module")
def late(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """Counts with late clicks, for tests that publish nothing."""
    topics.create(kafka, "late-clicks", partitions=2)
    here = stage(spark, kafka, settings, tmp_path_factory.mktemp("late"), "visit-counts", "late-clicks")
    late_clicks(here)
    return here


def click(clock: str, visit: str = "a", browser: str = "Firefox") -> dict[str, str]:
    at = f"2025-09-04T{clock}Z"
    return {"visit_id": visit, "event_time": at, "page": "p", "userId": visit, "eventTime": at, "browser": browser}


def late_clicks(here: Stage) -> None:
    """Three clicks in a window, then two that come too late for it, and one alone in a window that is closed."""
    here.batches(
        [click("07:00:00"), click("07:01:00"), click("07:09:59.999")],
        [click("08:30:00")],
        [],
        [click("07:03:00"), click("07:04:00"), click("07:50:00", "b"), click("09:59:00")],
    )


SPAN = ("2025-09-04T07:00:00", "2025-09-04T07:10:00")


def test_a_window_is_put_right_under_the_same_key(make: MakeStage) -> None:
    here = make("visit-counts")
    late_clicks(here)
    (before,) = here.published()[:1]
    report = here.audit("2025-09-04T07:00:00", "2025-09-04T08:40:00")
    assert dict(report.counts) == {"wrong": 1, "missing": 1, "same": 1}
    wrong, missing = report.differences
    records = tuple(f"{here.pipeline.reads}-0:{offset}" for offset in (12, 13))
    assert (wrong.verdict, wrong.late, wrong.records) == ("wrong", 2, records)
    assert (json.loads(wrong.published or "")["count"], json.loads(wrong.archived or "")["count"]) == (3, 5)
    assert (missing.verdict, missing.start, missing.late) == (
        "missing",
        datetime(2025, 9, 4, 7, 50, tzinfo=timezone.utc),
        1,
    )
    assert report.late == 3
    for _ in range(2):
        done = here.reprocess(*SPAN, run="again")
        assert (done.run, done.results, done.withdrawn, done.complete) == ("again", 1, 0, True)
        after = here.published()[-1]
        assert after.key == before.key
        assert after.value == (before.value or b"").replace(b'"count":3', b'"count":5')
        assert dict(after.headers) == {
            "respool-source": b"reprocess",
            "respool-pipeline": b"visit-counts",
            "respool-run-id": b"again",
        }
    assert dict(here.audit(*SPAN).counts) == {"same": 1}
    # The live query continues as if nothing had happened.
    here.send(click("11:00:00"))
    here.live()
    assert dict(here.audit("2025-09-04T07:00:00", "2025-09-04T10:00:00").counts) == {"same": 3, "missing": 1}


def test_an_audit_fixes_what_differs_and_nothing_else(make: MakeStage) -> None:
    here = make("browser-stats-stateful")
    here.batches(
        [click("07:00:00"), click("07:00:30", browser="Chrome"), click("07:05:00")],
        [click("09:00:00")],
        [],
        [click("07:01:00"), click("07:02:00", browser="Opera"), click("09:59:00")],
    )
    nobody = json.dumps(
        {"browser": "Nobody", "window": {"start": "2025-09-04T07:00:00.000Z", "end": "2025-09-04T07:05:00.000Z"}}
    )
    topic = f"{here.pipeline.reads}-results"
    producer.produce(here.kafka, topic, [Message(nobody.encode(), nobody[:-1].encode() + b',"count":9}')])
    producer.produce(here.kafka, topic, [Message(b"what is this", b"not a result at all")])
    hour = ("2025-09-04T07:00:00", "2025-09-04T08:00:00")
    report = here.audit(*hour)
    assert dict(report.counts) == {"same": 2, "wrong": 1, "missing": 1, "extra": 1}
    differences = {difference.verdict: difference for difference in report.differences}
    assert [(name, differences[name].late) for name in ("wrong", "missing", "extra")] == [
        ("wrong", 1),
        ("missing", 1),
        ("extra", None),
    ]
    before = len(here.published())
    assert here.audit(*hour, fix="put-right").fixed == 3
    assert len(here.published()) - before == 3
    assert {dict(record.headers)["respool-run-id"] for record in newest(here, 3)} == {b"put-right"}
    assert sorted(record.value is None for record in newest(here, 3)) == [False, False, True]
    assert dict(here.audit(*hour).counts) == {"same": 4}
    assert nobody not in here.upserted()


def newest(here: Stage, count: int) -> list[consumer.Record]:
    return list(consumer.read(here.kafka, f"{here.pipeline.reads}-results", newest=count))


def test_sessions_that_a_late_event_joins_are_withdrawn(make: MakeStage) -> None:
    here = make("sessions")
    times = {"a": ["07:00:00", "07:15:00"], "b": ["07:00:00"], "c": ["06:50:00", "07:30:00"]}
    # Joins two sessions of a; moves the start of b's; makes a new one of c; d was never seen.
    late = {"a": ["07:08:00"], "b": ["06:55:00"], "c": ["07:10:00"], "d": ["07:01:00"]}
    here.batches(
        [click(clock, visit) for visit, clocks in times.items() for clock in clocks],
        [click("09:00:00", "later")],
        [],
        [click(clock, visit) for visit, clocks in late.items() for clock in clocks],
        [click("09:40:00", "later")],
    )
    asked = ("2025-09-04T07:00:00", "2025-09-04T07:05:00")
    report = here.audit(*asked)
    assert sorted(
        (difference.verdict, json.loads(difference.key)["visit_id"]) for difference in report.differences
    ) == [
        ("extra", "a"),
        ("extra", "b"),
        ("missing", "b"),
        ("missing", "d"),
        ("wrong", "a"),
    ]
    done = here.reprocess(*asked)
    assert (done.results, done.withdrawn) == (3, 2)
    assert here.audit(*asked).different == 0
    assert here.audit("2025-09-04T06:00:00", "2025-09-04T08:00:00", fix="rest").fixed == 1  # c's new one
    everything = {visit: times.get(visit, []) + late.get(visit, []) for visit in (*times, "d")}
    expected = {
        (visit, session.start // 1000, session.end // 1000, session.pages)
        for visit, clocks in everything.items()
        for session in sessions_of([micros(clock) for clock in clocks], 600_000_000)
    }
    upserted = {
        (row["visit_id"], millis(row["session_start"]), millis(row["session_end"]), row["visited_pages"])
        for row in here.upserted().values()
        if row["visit_id"] != "later"
    }
    assert upserted == expected


def test_results_of_the_same_millisecond_have_different_keys(make: MakeStage) -> None:
    here = make("sessions")
    clocks = ("07:00:00.123456", "07:20:00.123456", "07:20:00.123789")
    # Two sessions of the same visit would have the same key in milliseconds; so would two of different visits.
    here.batches(
        [click(clocks[0], "a"), click(clocks[1], "a"), click(clocks[2], "b")], [click("09:00:00", "later")], []
    )
    asked = ("2025-09-04T07:00:00", "2025-09-04T08:00:00")
    keys = {(record.key or b"").decode() for record in here.published() if b"later" not in (record.key or b"")}
    assert sorted(json.loads(key)["session_start"] for key in keys) == [f"2025-09-04T{clock}Z" for clock in clocks]
    assert dict(here.audit(*asked).counts) == {"same": 3}
    # What an older version published, in milliseconds, is replaced.
    old = [
        Message((record.key or b"").replace(b"456Z", b"Z"), (record.value or b"").replace(b"456Z", b"Z"))
        for record in here.published()
        if b"456Z" in (record.key or b"")
    ]
    producer.produce(here.kafka, here.values["output_topic"], old)
    assert dict(here.audit(*asked).counts) == {"same": 3, "extra": 2}
    assert here.audit(*asked, fix="upgrade").fixed == 2
    assert dict(here.audit(*asked).counts) == {"same": 3}


def micros(clock: str) -> int:
    at = datetime.fromisoformat(f"2025-09-04T{clock}+00:00")
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def millis(text: str) -> int:
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def test_a_session_that_is_still_open_is_left_to_the_live_query(make: MakeStage) -> None:
    here = make("sessions", watermark="1 minute")
    here.batches(
        [*[click(f"07:{minute:02}:00", "long") for minute in range(0, 60, 5)], click("07:00:00", "short")],
        [click("08:00:00", "long")],
        [click("08:01:00", "long")],
    )
    asked = ("2025-09-04T07:00:00", "2025-09-04T07:20:00")
    assert dict(here.audit(*asked).counts) == {"same": 1}
    assert here.reprocess(*asked).results == 1
    assert here.reprocess(*asked, run="open", allow_open=True).results == 2
    assert [row["is_finished"] for row in here.upserted().values()] == [True, True]


def test_a_long_span_resumes_where_it_was_stopped(make: MakeStage) -> None:
    here = make("visit-counts")
    here.batches([click(f"{hour:02}:00:00") for hour in range(6)], [click("23:00:00")], [click("23:30:00")])

    class Stopped(Exception):
        pass

    def stop(done: int, count: int) -> None:
        if done == 2:
            raise Stopped

    whole = ("2025-09-04T00:00:00", "2025-09-04T06:00:00")
    before = len(here.published())
    with pytest.raises(Stopped):
        here.reprocess(*whole, on_slice=stop, slice=timedelta(hours=1))
    runs = Runs(here.settings.home)
    assert len(here.published()) == before + 2
    # More is archived meanwhile: the run still reads what it began with.
    here.send(click("05:30:00"))
    here.live()
    slices: list[int] = []
    done = here.reprocess(*whole, on_slice=lambda done, count: slices.append(done), slice=timedelta(hours=1))
    assert slices == [3, 4, 5, 6]
    assert (done.results, done.slices, done.complete) == (6, 6, True)
    assert runs.read(done.run) == done
    assert len(here.published()) == before + 6
    again = here.reprocess(*whole)
    assert (again.results, again.run == done.run) == (7, False)
    with pytest.raises(ReprocessError, match="Choose another --run-id"):
        here.reprocess(*SPAN, run=done.run)


def test_results_in_a_delta_table_are_replaced_in_one_commit(
    make: MakeStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = make("sessions")
    session_pipeline = here.pipeline
    sink = DeltaSink("sessions", key=("visit_id", "session_start"), withdrawn="withdrawn")
    pipeline = replace(session_pipeline, sink=sink)
    monkeypatch.setattr(Stage, "pipeline", property(lambda self: pipeline))
    here.batches(
        [click("07:00:00"), click("07:15:00"), click("06:00:00", "before")],
        [click("09:00:00", "later")],
        [],
        [click("07:08:00"), click("07:01:00", "d")],
        [click("09:40:00", "later")],
    )
    table = Path(sink.locate(here.settings))

    def rows() -> list[tuple[str, int, bool]]:
        rows = here.spark.read.format("delta").load(str(table)).collect()
        return sorted((row.visit_id, row.visited_pages, row.is_finished) for row in rows if row.visit_id != "later")

    def version() -> int:
        return max(int(commit.stem) for commit in (table / "_delta_log").glob("*.json"))

    assert rows() == [("a", 1, True), ("a", 1, True), ("before", 1, True)]
    asked = ("2025-09-04T06:30:00", "2025-09-04T07:10:00")
    counts = here.audit(*asked).counts
    assert dict(counts) == {"wrong": 1, "extra": 1, "missing": 1}
    before = version()
    done = here.reprocess(*asked, slice=timedelta(minutes=15))
    assert (done.slices, done.results, done.withdrawn) == (3, 2, 1)
    assert version() == before + 1
    assert rows() == [("a", 3, True), ("before", 1, True), ("d", 1, True)]
    assert here.audit(*asked).different == 0
    assert [path.name for path in table.parent.iterdir()] == ["sessions"]


@pytest.mark.parametrize("name", ["results", "results.parquet"])
def test_results_go_to_a_folder(late: Stage, tmp_path: Path, name: str) -> None:
    here = late
    before = len(here.published())
    folder = tmp_path / name
    done = here.reprocess(*SPAN, output=str(folder))
    assert done.results == 1
    kind = "parquet" if name.endswith("parquet") else "delta"
    (row,) = here.spark.read.format(kind).load(str(folder)).collect()
    assert row["count"] == 5
    assert len(here.published()) == before
    with pytest.raises(ReprocessError, match="already exists"):
        here.reprocess(*SPAN, run="other", output=str(folder))


def test_a_gap_in_the_archive_is_reported(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completeness, "_PATIENCE", 1.0)
    here = make("visit-counts")
    late_clicks(here)
    here.send(click("07:05:00"))
    here.live(archived=False)
    before = here.published()
    with pytest.raises(ReprocessError, match=r"lacks 1 record of .* among them offsets 16 to 16 of partition 0"):
        here.reprocess(*SPAN)
    assert here.published() == before
    assert here.reprocess(*SPAN, allow_partial=True).results == 1
    here.archive()
    assert here.reprocess(*SPAN).results == 1
    assert here.upserted()[(before[0].key or b"").decode()]["count"] == 6


def test_an_archive_that_begins_too_late_is_reported(make: MakeStage) -> None:
    from confluent_kafka import TopicPartition

    from respool.kafka.cluster import admin_client

    here = make("visit-counts")
    here.send(click("07:00:00"), click("07:01:00"))
    client = admin_client(here.kafka)
    for answer in client.delete_records([TopicPartition(here.pipeline.reads, 0, 1)]).values():
        answer.result()
    here.batches([click("08:30:00")], [click("08:31:00")])
    with pytest.raises(ReprocessError, match="starts at offset 1 of partition 0"):
        here.reprocess(*SPAN)
    assert here.reprocess(*SPAN, allow_partial=True).results == 1


def test_settings_that_differ_from_the_live_querys_are_refused(late: Stage) -> None:
    here = late
    for name, value, message in (
        ("timezone", "Europe/Paris", "--timezone UTC"),
        ("window", "5 minutes", "windows of 10 minutes"),
        ("output_topic", "elsewhere", "writes to the Kafka topic"),
    ):
        other = replace(here, values={**here.values, name: value})
        with pytest.raises(CheckpointError, match=message):
            other.plan(*SPAN)


def test_a_key_without_the_window_is_refused(late: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = late.pipeline
    wrong = replace(pipeline, sink=replace(pipeline.sink, key=("count",)))  # type: ignore[type-var]
    monkeypatch.setattr(Stage, "pipeline", property(lambda self: wrong))
    before = late.published()
    with pytest.raises(ReprocessError, match="Add window to the sink's key"):
        late.reprocess(*SPAN)
    assert late.published() == before


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def hours_of_clicks(here: Stage) -> None:
    """Some hours of windows, each with a click that came too late."""
    hours = range(6)
    here.batches(
        [click(f"{hour:02}:00:00") for hour in hours],
        [click("23:00:00")],
        [],
        [*[click(f"{hour:02}:01:00") for hour in hours], click("23:30:00")],
    )


WHOLE = ("2025-09-04T00:00:00", "2025-09-04T06:00:00")


def test_whoever_kills_a_run_can_repeat_the_command(make: MakeStage) -> None:
    here = make("visit-counts")
    hours_of_clicks(here)
    words = ("reprocess", "visit-counts", *WHOLE, "--slice", "1h", "--json")
    with here.command(*words) as process:
        folder = here.settings.home / "reprocess"
        until(lambda: any('"done": 2' in manifest.read_text() for manifest in folder.glob("*/run.json")))
        process.send_signal(signal.SIGKILL)
    with here.command(*words) as process:
        said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Resuming the run" in errors
    assert json.loads(said)["results"] == 6
    assert dict(here.audit(*WHOLE).counts) == {"same": 6}
    assert sorted(row["count"] for row in here.upserted().values()) == [1, *[2] * 6]  # that of 23:00, and all others


def test_whoever_kills_a_fix_can_repeat_the_command(make: MakeStage) -> None:
    here = make("visit-counts")
    hours_of_clicks(here)
    before = len(here.published())
    words = ("audit", "visit-counts", *WHOLE, "--slice", "1h", "--fix", "--json")
    with here.command(*words) as process:
        until(lambda: len(here.published()) > before + 1)
        process.send_signal(signal.SIGKILL)
    with here.command(*words) as process:
        said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    report = json.loads(said)
    assert 0 < report["same"] < 6
    assert report["fixed"] == report["wrong"] == 6 - report["same"]
    assert sorted(row["count"] for row in here.upserted().values()) == [1, *[2] * 6]  # that of 23:00, and all others


def test_a_users_pipeline_is_reprocessed(make: MakeStage) -> None:
    here = replace(make("visit-counts"), name="support.own_pipeline:orders", values={})
    topic = here.pipeline.reads
    topics.create(here.kafka, topic, partitions=1)
    orders = ((2.5, "07:00"), (1.0, "10:00"), (0.0, "10:00"), (4.0, "07:30"))
    here.batches(*[[{"shop": "Lyon", "amount": amount, "ordered_at": f"2025-09-04T{at}:00Z"}] for amount, at in orders])
    report = here.audit(*SPAN)
    assert dict(report.counts) == {"wrong": 1}
    here.reprocess(*SPAN)
    assert sorted(row["total"] for row in here.upserted().values()) == [1.0, 6.5]
