"""A span computed again from an archive, on a real Spark: edges, whole windows, whole sessions, clock changes."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from respool.archive.high_water import read_archived_offsets
from respool.archive.reader import ArchiveReader
from respool.decoders.json import JsonDecoder
from respool.errors import PipelineError, ReprocessError
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.pipeline.results import Events, Sessions, Windows
from respool.reprocessing.completeness import check_beginning, wait_until_archived
from respool.reprocessing.computation import Computation, check_windows
from respool.reprocessing.job import Preview, ReprocessJob, preview
from respool.reprocessing.live import LiveQuery
from respool.reprocessing.plan import ReprocessRequest, make_plan, results_of
from respool.sessions.rules import sessions_of
from respool.settings import Settings
from respool.sinks.kafka import KafkaSink
from respool.sources.kafka import KafkaSource
from respool.sources.tables import DeltaSource
from respool.testing import run_batches
from respool.times import Span, parse_span
from respool.visits.counts import VISIT, browser_stats_stateful, count_windows, visit_counts
from respool.visits.sessions import sessions
from support.archive import NOW, computation_of, plan_of, write_archive, write_hours, write_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
SEVEN = datetime(2025, 9, 4, 7, tzinfo=UTC)
TICK = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event(time: str, visit: str = "a", browser: str = "Firefox") -> dict[str, Any]:
    """An event that every pipeline of visits can read."""
    return {"visit_id": visit, "event_time": time, "page": "p", "userId": visit, "eventTime": time, "browser": browser}


def at(clock: str) -> str:
    return f"2025-09-04T{clock}Z"


def span(start: str, end: str, zone: str = "UTC") -> Span:
    return parse_span(start, end, ZoneInfo(zone))


def published(computation: Computation) -> list[dict[str, Any]]:
    """All results of all slices, in the order of their times."""
    results: list[dict[str, Any]] = []
    for number in range(len(computation.plan.slices)):
        rows = computation.publishable(computation.results(number), number)
        results += rows.toArrow().to_pylist()
    return results


def counts(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {f"{row['window']['start'].astimezone(UTC):%H:%M}": row["count"] for row in rows}


TIMES = ["06:59:59.999999", "07:00:00", "07:09:59.999999", "07:10:00", "07:19:59.999999", "07:20:00"]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("07:00:00", "07:10:00", {"07:00": 2}),
        ("07:10:00", "07:20:00", {"07:10": 2}),
        ("07:03:00", "07:04:00", {"07:00": 2}),
        ("07:05:00", "07:15:00", {"07:00": 2, "07:10": 2}),
        ("07:00:00", "07:10:00.000001", {"07:00": 2, "07:10": 2}),
        ("06:59:59.999999", "07:10:00", {"06:50": 1, "07:00": 2}),
    ],
)
def test_a_span_is_half_open_and_widened_to_whole_windows(
    spark: "SparkSession", edges: tuple[Pipeline, str], start: str, end: str, expected: dict[str, int]
) -> None:
    pipeline, table = edges
    computation = computation_of(spark, ReprocessRequest(pipeline, span(at(start), at(end))), table)
    assert counts(published(computation)) == expected
    plan = computation.plan
    assert plan.computed.start <= plan.request.asked.start
    assert plan.computed.end >= plan.request.asked.end


@pytest.fixture(scope="module")
def edges(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, str]:
    pipeline = visit_counts(topic="edges")
    return pipeline, write_archive(spark, tmp_path_factory.mktemp("edges"), pipeline, [[event(at(t)) for t in TIMES]])


def test_windows_of_a_browser_have_the_same_edges(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = browser_stats_stateful()
    events = [event(at(time), browser=browser) for time in TIMES for browser in ("Firefox", "Chrome")]
    table = write_archive(spark, tmp_path, pipeline, [events])
    results = published(computation_of(spark, ReprocessRequest(pipeline, span(at("07:05:00"), at("07:10:00"))), table))
    assert [(row["browser"], row["count"]) for row in results] == [("Firefox", 1), ("Chrome", 1)] or [
        (row["browser"], row["count"]) for row in results
    ] == [("Chrome", 1), ("Firefox", 1)]
    assert {row["last_event_time_in_window"] for row in results} == {SEVEN + timedelta(minutes=10) - TICK}


def test_windows_that_overlap_are_whole(spark: "SparkSession", tmp_path: Path) -> None:
    def slide(events: Any) -> Any:
        from pyspark.sql import functions as F

        return events.groupBy(F.window("event_time", "10 minutes", "5 minutes", "2 minutes")).count()

    pipeline = replace(visit_counts(), transform=slide, results=Windows("10 minutes", "5 minutes", "2 minutes"))
    events = [event(at(f"07:{minute:02}:00")) for minute in range(60)]
    table = write_archive(spark, tmp_path, pipeline, [events])
    results = published(computation_of(spark, ReprocessRequest(pipeline, span(at("07:20:00"), at("07:21:00"))), table))
    assert counts(results) == {"07:12": 10, "07:17": 10}
    sliced = ReprocessRequest(pipeline, span(at("07:20:00"), at("07:40:00")), slice=timedelta(minutes=7))
    assert counts(published(computation_of(spark, sliced, table))) == {
        f"07:{minute}": 10 for minute in ("12", "17", "22", "27", "32", "37")
    }


def test_results_of_single_events_are_computed_for_any_span_as_live(spark: "SparkSession", tmp_path: Path) -> None:
    def longer(events: Any) -> Any:
        return events.where("page <> 'spam'").selectExpr("visit_id", "upper(page) AS page", "event_time")

    pipeline = Pipeline(
        "single",
        "visits",
        decode=VISIT,
        transform=longer,
        stateless=True,
        sink=KafkaSink("single", key=("visit_id", "event_time")),
        results=Events("event_time"),
    )
    values = [event(at(f"07:{minute:02}:00"), visit=f"v{minute}") for minute in range(30)]
    live = [row for batch in run_batches(spark, pipeline, [values]) for row in batch.rows]
    table = write_archive(spark, tmp_path, pipeline, [values])
    request = ReprocessRequest(pipeline, span(at("07:10:00"), at("07:20:00")), slice=timedelta(minutes=3))
    rows = published(computation_of(spark, request, table))
    expected = [row for row in live if 10 <= row["event_time"].minute < 20]
    assert len(rows) == 10
    assert sorted(map(str, rows)) == sorted(map(str, expected))
    # They are final at once: a live query without a watermark has not "closed" anything, and nothing waits for it.
    never = LiveQuery("here", 5, None, {0: 30})
    assert plan_of(request, table, never).closed_until(judge_open=False) is None


def test_session_windows_of_spark_are_whole(spark: "SparkSession", tmp_path: Path) -> None:
    def by_visit(events: Any) -> Any:
        from pyspark.sql import functions as F

        counted = events.groupBy("visit_id", F.session_window("event_time", "10 minutes")).count()
        start, end = F.col("session_window.start"), F.col("session_window.end") - F.expr("INTERVAL 10 MINUTES")
        return counted.select("visit_id", start.alias("session_start"), end.alias("session_end"), "count")

    pipeline = Pipeline(
        "by-visit",
        "visits",
        decode=VISIT,
        watermark="10 minutes",
        transform=by_visit,
        sink=KafkaSink("by-visit", key=("visit_id", "session_start")),
        results=Sessions("10 minutes", key=("visit_id",)),
    )
    values = [event(at(f"07:{minute:02}:00"), visit="v") for minute in (0, 8, 16, 40, 45)]
    last = [event(at("09:00:00"), visit="last")]
    live = [row for batch in run_batches(spark, pipeline, [values, last, last]) for row in batch.rows]
    assert sorted(row["count"] for row in live) == [2, 3]
    table = write_archive(spark, tmp_path, pipeline, [values, last])
    request = ReprocessRequest(pipeline, span(at("07:10:00"), at("07:42:00")))
    assert sorted(map(str, published(computation_of(spark, request, table)))) == sorted(map(str, live))


def test_a_static_input_is_joined_with_the_archive(spark: "SparkSession", tmp_path: Path) -> None:
    def named(visits: Any, pages: Any) -> Any:
        return visits.join(pages, "page").select("visit_id", "event_time", "title")

    titles = str(tmp_path / "pages")
    spark.createDataFrame([("p", "Home")], "page STRING, title STRING").write.format("delta").save(titles)
    inputs = {"visits": Input(KafkaSource("visits"), VISIT), "pages": Input(DeltaSource(titles), static=True)}
    pipeline = Pipeline(
        "named",
        inputs=inputs,
        transform=named,
        sink=KafkaSink("named", key=("visit_id", "event_time")),
        results=Events("event_time"),
    )
    values = [event(at(f"07:{minute:02}:00")) for minute in range(4)]
    table = write_archive(spark, tmp_path, pipeline, [values])
    request = ReprocessRequest(pipeline, span(at("07:01:00"), at("07:03:00")))
    rows = published(computation_of(spark, request, table))
    assert sorted((row["event_time"].minute, row["title"]) for row in rows) == [(1, "Home"), (2, "Home")]


def test_results_of_a_join_read_the_events_within_its_interval(spark: "SparkSession", tmp_path: Path) -> None:
    def answered(events: Any) -> Any:
        from pyspark.sql import functions as F

        asked, answers = events.alias("a"), events.alias("b")
        later = F.expr("b.event_time > a.event_time AND b.event_time <= a.event_time + INTERVAL 5 MINUTES")
        pairs = asked.join(answers, F.expr("a.visit_id = b.visit_id") & later)
        return pairs.select(
            "a.visit_id", F.col("a.event_time").alias("event_time"), F.col("b.event_time").alias("next")
        )

    pipeline = Pipeline(
        "answered",
        "visits",
        decode=VISIT,
        watermark="10 minutes",
        transform=answered,
        sink=KafkaSink("answered", key=("visit_id", "event_time", "next")),
        results=Events("event_time", reach="5 minutes"),
    )
    values = [event(at(f"07:{minute:02}:00"), visit="v") for minute in (0, 4, 8, 20, 24)]
    live = [row for batch in run_batches(spark, pipeline, [values]) for row in batch.rows]
    assert len(live) == 3
    table = write_archive(spark, tmp_path, pipeline, [values])
    request = ReprocessRequest(pipeline, span(at("07:04:00"), at("07:08:00")))
    [row] = published(computation_of(spark, request, table))
    assert row in live
    assert (row["event_time"].minute, row["next"].minute) == (4, 8)  # the second event is outside of the span
    open_still = LiveQuery("here", 5, SEVEN + timedelta(minutes=12), {0: 5})
    with pytest.raises(ReprocessError, match="has closed what is before"):
        plan_of(request, table, open_still)


@pytest.mark.parametrize(
    ("night", "before", "after"),
    [
        ("2025-03-30", "01:59:30", "03:00:30"),  # 02:00 is 03:00
        ("2025-10-26", "02:59:30", "03:00:30"),  # 03:00 is 02:00
    ],
)
def test_a_night_when_clocks_change_is_as_live(
    spark: "SparkSession", tmp_path: Path, night: str, before: str, after: str
) -> None:
    clocks = [f"{hour:02}:{minute:02}:00" for hour in range(5) for minute in range(0, 60, 7)]
    times = [f"{night}T{clock}" for clock in clocks] + [f"{night}T{before}", f"{night}T{after}"]
    times += [f"{night}T02:30:00+01:00", f"{night}T02:30:00+02:00"]  # an hour apart, whatever the clock shows
    values = [event(time, visit=f"visit-{number % 3}") for number, time in enumerate(times)]
    last = event(f"{night}T23:00:00", visit="last", browser="last")
    asked = span(f"{night}T00:00:00", f"{night}T06:00:00", "Europe/Paris")
    assert asked.end - asked.start == (timedelta(hours=5) if night == "2025-03-30" else timedelta(hours=7))
    for make in (visit_counts, browser_stats_stateful, sessions):
        pipeline = make(timezone="Europe/Paris")
        live = run_batches(spark, pipeline, [values, [last], [last]])
        table = write_archive(spark, tmp_path / pipeline.name, pipeline, [values, [last], [last]])
        results = published(computation_of(spark, ReprocessRequest(pipeline, asked), table))
        expected = [row for row in upserted(pipeline, [row for batch in live for row in batch.rows])]
        of_the_night = [row for row in expected if "last" not in (row.get("visit_id"), row.get("browser"))]
        if pipeline.name == "visit-counts":
            of_the_night = [row for row in expected if row["window"]["start"] < asked.end]
        assert len(of_the_night) > 5
        assert sorted(map(str, results)) == sorted(map(str, of_the_night))


def upserted(pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The final rows of a consumer that upserts by key."""
    key: tuple[str, ...] = pipeline.sink.key  # type: ignore[attr-defined]
    latest: dict[str, dict[str, Any]] = {}
    for row in rows:
        latest[str([row[name] for name in key])] = row
    return [row for row in latest.values() if not row.get("withdrawn")]


def test_sessions_that_touch_a_span_are_whole_however_it_is_cut(spark: "SparkSession", tmp_path: Path) -> None:
    chance = random.Random(6)
    pipeline = sessions(topic="sessions-whole")
    gap = timedelta(minutes=10)
    events: list[tuple[str, datetime]] = []
    for number in range(60):
        time = SEVEN + timedelta(minutes=chance.randrange(600))
        for _ in range(chance.choice((1, 2, 5, 40))):
            events.append((f"v{number}", time))
            # Often exactly the gap, or just beyond it.
            time += chance.choice((gap, gap, gap + TICK, timedelta(minutes=chance.randrange(10)), TICK))
    chance.shuffle(events)
    values = [event(time.isoformat(), visit=visit) for visit, time in events]
    table = write_archive(spark, tmp_path, pipeline, [values[:300], values[300:]])
    whole = {
        (visit, session.start, session.end, session.pages)
        for visit in {visit for visit, _ in events}
        for session in sessions_of([micros(time) for name, time in events if name == visit], gap // TICK)
    }
    for start, length, slice_ in ((60, 1, 1440), (125, 90, 30), (0, 600, 170), (300, 15, 1440)):
        asked = Span(SEVEN + timedelta(minutes=start), SEVEN + timedelta(minutes=start + length))
        request = ReprocessRequest(pipeline, asked, slice=timedelta(minutes=slice_))
        results = published(computation_of(spark, request, table))
        expected = {
            session for session in whole if session[1] < micros(asked.end) and session[2] >= micros(asked.start)
        }
        assert len(results) == len(expected) > 0
        assert {session_of(row) for row in results} == expected


def micros(time: datetime) -> int:
    return (time - EPOCH) // TICK


def session_of(row: dict[str, Any]) -> tuple[str, int, int, int]:
    return (row["visit_id"], micros(row["session_start"]), micros(row["session_end"]), row["visited_pages"])


def test_a_session_of_weeks_is_read_without_the_hours_beyond_it(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = sessions(topic="weeks", gap="2 hours")
    first = SEVEN - timedelta(hours=150)
    others = [(first + timedelta(hours=hour), f"other-{hour}") for hour in range(1050)]
    long = [(SEVEN + timedelta(hours=hour), "long") for hour in range(600)]
    events = [(time, event(time.isoformat(), visit=visit)) for time, visit in others + long]
    table = write_hours(tmp_path / "archive", pipeline.reads, events)
    middle = SEVEN + timedelta(hours=450)
    request = ReprocessRequest(pipeline, Span(middle, middle + timedelta(minutes=1)))
    computation = computation_of(spark, request, table)
    results = {row["visit_id"]: row for row in published(computation)}
    assert set(results) == {"long", "other-600"}
    assert results["long"]["visited_pages"] == 600
    assert results["long"]["session_start"] == SEVEN
    read, size = computation.reader.was_read(), computation.reader.size
    assert size.files == 1050
    # The 600 hours of the session, and at each end not more than a quarter too much.
    assert 600 <= read.files <= 600 * 5 / 4


def test_only_the_hours_of_a_span_are_read(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = visit_counts(topic="hours")
    values = [event((SEVEN + timedelta(minutes=20 * number)).isoformat()) for number in range(300)]
    table = write_archive(spark, tmp_path, pipeline, [values])
    plan = plan_of(ReprocessRequest(pipeline, span(at("07:00:00"), at("09:00:00"))), table)
    assert (plan.reads.files, plan.size.files) == (2, 100)
    computation = computation_of(spark, plan.request, table)
    assert len(published(computation)) == 6
    assert computation.reader.was_read() == plan.reads
    files = computation.events(plan.computed)
    assert len(files.inputFiles()) == 2  # as Spark itself sees it


def test_records_that_the_archive_rejected_are_decoded_again_by_another_decoder(
    spark: "SparkSession", tmp_path: Path
) -> None:
    archived = visit_counts(topic="decoders")
    good, without_visit = event(at("07:00:00")), event(at("07:01:00"))
    del without_visit["visit_id"]
    table = write_archive(spark, tmp_path, archived, [[good, without_visit, b"no JSON"]])
    assert isinstance(archived.decode, JsonDecoder)
    loose = replace(archived, decode=replace(archived.decode, schema="event_time TIMESTAMP, page STRING"))
    asked = span(at("07:00:00"), at("07:10:00"))
    assert counts(published(computation_of(spark, ReprocessRequest(archived, asked), table))) == {"07:00": 1}
    assert counts(published(computation_of(spark, ReprocessRequest(loose, asked), table))) == {"07:00": 2}


def test_windows_that_are_not_as_declared_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = replace(visit_counts(topic="declared"), transform=partial(count_windows, window="1 hour"))
    table = write_archive(spark, tmp_path, pipeline, [[event(at("07:00:00"))]])
    computation = computation_of(spark, ReprocessRequest(pipeline, span(at("07:00:00"), at("07:10:00"))), table)
    windows = results_of(pipeline)
    assert isinstance(windows, Windows)
    with pytest.raises(PipelineError, match="1:00:00 long or starts elsewhere"):
        check_windows(computation.results(0), windows, pipeline.name)
    other = replace(visit_counts(topic="declared"), results=Windows("10 minutes", column="windows"))
    with pytest.raises(PipelineError, match="no column windows"):
        published(computation_of(spark, ReprocessRequest(other, span(at("07:00:00"), at("07:10:00"))), table))


def test_another_zone_or_field_for_the_time_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = visit_counts(topic="zones")
    table = write_archive(spark, tmp_path, pipeline, [[event("2025-09-04T07:00:00")]])
    asked = span(at("07:00:00"), at("07:10:00"))
    with pytest.raises(PipelineError, match="--timezone UTC"):
        plan_of(ReprocessRequest(visit_counts(topic="zones", timezone="Europe/Paris"), asked), table)
    with pytest.raises(PipelineError, match="field event_time"):
        plan_of(ReprocessRequest(browser_stats_stateful(topic="zones"), asked), table)


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("2025-09-04T08:00:00Z", "2025-09-04T08:10:00Z", "outside the archive"),
        ("2025-09-04T06:00:00Z", "2025-09-04T06:10:00Z", "outside the archive"),
        ("2027-09-04T06:00:00Z", "2027-09-04T06:10:00Z", "in the future"),
        ("2025-09-04T07:00:00Z", "2028-09-04T07:10:00Z", "reaches into the future"),
    ],
)
def test_a_span_that_is_not_there_is_refused(edges: tuple[Pipeline, str], start: str, end: str, message: str) -> None:
    pipeline, table = edges
    with pytest.raises(ReprocessError, match=message):
        plan_of(ReprocessRequest(pipeline, span(start, end)), table)


def test_a_span_that_is_not_closed_is_refused(edges: tuple[Pipeline, str]) -> None:
    pipeline, table = edges
    request = ReprocessRequest(pipeline, span(at("07:00:00"), at("07:10:00")))
    closed = SEVEN + timedelta(minutes=10)
    plan_of(request, table, LiveQuery("here", 5, closed, {0: 6}))
    for watermark in (closed - TICK, None):
        live = LiveQuery("here", 5, watermark, {0: 6})
        with pytest.raises(ReprocessError, match="--allow-open"):
            plan_of(request, table, live)
        plan_of(replace(request, allow_open=True), table, live)


def test_the_archive_keeps_how_it_reads_times(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = visit_counts(topic="kept", timezone="Europe/Paris")
    table = write_archive(spark, tmp_path, pipeline, [[event("2025-09-04T07:00:00")]])
    with pytest.raises(PipelineError, match="--timezone Europe/Paris"):
        write_archive(spark, tmp_path, visit_counts(topic="kept"), [[event("2025-09-04T07:00:00")]])
    log = [json.loads(line) for line in (Path(table) / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    (meta,) = [action["metaData"] for action in log if "metaData" in action]
    assert meta["configuration"]["respool.timezone"] == "Europe/Paris"


def previewed(
    spark: "SparkSession", request: ReprocessRequest, table: str, most: int, live: LiveQuery | None = None
) -> Preview:
    reader = ArchiveReader(table)
    plan = make_plan(request, reader, live, NOW)
    return preview(ReprocessJob(spark, None, Settings(), plan, reader), most, lambda done, results: None)


def test_a_preview_counts_all_results_and_shows_the_first(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = visit_counts(topic="previewed")
    events = [event(at(f"07:{minute:02}:00")) for minute in range(60)]
    table = write_archive(spark, tmp_path, pipeline, [events, [event(at("09:00:00"))]])
    for slice_ in (timedelta(days=1), timedelta(minutes=20)):
        request = ReprocessRequest(pipeline, span(at("07:00:00"), at("08:00:00")), slice=slice_)
        for most, shown in ((20, 6), (4, 4), (0, 0)):
            preview = previewed(spark, request, table, most)
            assert preview.results == 6
            starts = [json.loads(value)["window"]["start"][11:16] for value in preview.values]
            assert starts == [f"07:{minute}0" for minute in range(shown)]
    empty = ReprocessRequest(pipeline, span(at("08:20:00"), at("08:30:00")))
    assert previewed(spark, empty, table, 20) == Preview(0, ())
    # What is open still is neither counted nor shown, in whatever order it comes.
    half = LiveQuery("here", 5, SEVEN + timedelta(minutes=30), {0: 61})
    closed = replace(ReprocessRequest(pipeline, span(at("07:00:00"), at("07:30:00"))), slice=timedelta(minutes=20))
    assert previewed(spark, closed, table, 20, half).results == 3


def test_a_preview_of_sessions_leaves_out_those_of_other_slices(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = sessions(topic="previewed-sessions")
    events = [event(at(f"07:{minute:02}:00"), visit=f"v{minute}") for minute in range(0, 60, 5)]
    table = write_archive(spark, tmp_path, pipeline, [events])
    request = ReprocessRequest(pipeline, span(at("07:10:00"), at("07:30:00")), slice=timedelta(minutes=10))
    expected = published(computation_of(spark, request, table))
    preview = previewed(spark, request, table, 20)
    assert preview.results == len(preview.values) == len(expected) > 3
    assert sorted(json.loads(value)["visit_id"] for value in preview.values) == sorted(
        row["visit_id"] for row in expected
    )


def test_a_preview_refuses_windows_that_are_not_as_declared(spark: "SparkSession", tmp_path: Path) -> None:
    def without_window(events: Any) -> Any:
        from pyspark.sql import functions as F

        null = F.lit(None).cast("struct<start: timestamp, end: timestamp>")
        return events.groupBy("visit_id").count().withColumn("window", null)

    pipeline = visit_counts(topic="refused")
    table = write_archive(spark, tmp_path, pipeline, [[event(at("07:00:00"))]])
    asked = span(at("07:00:00"), at("07:10:00"))
    other = replace(pipeline, transform=partial(count_windows, window="1 hour"))
    for most in (20, 0):
        with pytest.raises(PipelineError, match="1:00:00 long or starts elsewhere"):
            previewed(spark, ReprocessRequest(other, asked), table, most)
    # No window belongs to a slice if it has no start; the plan is then known to give nothing.
    assert previewed(spark, ReprocessRequest(replace(pipeline, transform=without_window), asked), table, 20) == Preview(
        0, ()
    )


@pytest.mark.parametrize("topic", ["late", "late-with-a-name-that-statistics-do-not-keep"])
def test_an_archive_that_begins_late_is_refused(spark: "SparkSession", tmp_path: Path, topic: str) -> None:
    write_part(tmp_path, topic, [(0, 0, SEVEN), (0, 1, SEVEN + timedelta(minutes=5))])
    write_part(tmp_path, topic, [(1, 3, SEVEN), (1, 4, SEVEN + timedelta(minutes=5))])
    reader = ArchiveReader(str(tmp_path))
    assert bool(reader.first_records(topic)[0]) == (topic == "late")
    request = ReprocessRequest(visit_counts(topic=topic), span(at("07:00:00"), at("07:10:00")))
    closed = SEVEN + timedelta(hours=1)
    for live in (LiveQuery("here", 5, closed, {0: 2, 1: 5}), None):
        with pytest.raises(ReprocessError, match=f"starts at offset 3 of partition 1 of {topic}, at 2025-09-04"):
            check_beginning(spark, reader, make_plan(request, reader, live, NOW))
    check_beginning(spark, reader, make_plan(request, reader, LiveQuery("here", 5, closed, {0: 2}), NOW))
    write_part(tmp_path, topic, [(1, 0, SEVEN + timedelta(minutes=6))])
    reader = ArchiveReader(str(tmp_path))
    for live in (LiveQuery("here", 5, closed, {0: 2, 1: 5}), None):
        check_beginning(spark, reader, make_plan(request, reader, live, NOW))


def test_the_newest_commits_agree_with_the_history(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = visit_counts(topic="learnt")
    table = write_archive(spark, tmp_path, pipeline, [[event(at("07:00:00"))], [event(at("07:01:00"))]])
    reader = ArchiveReader(table)
    assert read_archived_offsets(spark, table, reader.version) == read_archived_offsets(spark, table)
    assert all(file.first_record is not None for file in reader._files)
    wait_until_archived(spark, None, table, "learnt", LiveQuery("here", 5, SEVEN, {0: 2}), lambda text: None)
