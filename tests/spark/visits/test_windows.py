"""Windows on adversarial input: the stream's final results equal those of a model of watermark and windows."""

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.pipeline.registry import find_pipeline
from respool.testing import run_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
BASE = datetime(2025, 9, 4, 7, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
few = hypothesis_settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
# Equal times, edges of windows and a microsecond next to them, times inside windows, far past and far future.
moments = st.one_of(
    st.integers(0, 12).map(lambda tens: BASE + timedelta(minutes=5 * tens)),
    st.integers(0, 12).map(lambda tens: BASE + timedelta(minutes=5 * tens, microseconds=-1)),
    st.integers(-1800, 5400).map(lambda seconds: BASE + timedelta(seconds=seconds)),
    st.sampled_from([datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), BASE]),
)
batches = st.lists(st.lists(moments, min_size=1, max_size=12), min_size=3, max_size=6)
FUTURE = datetime(9000, 1, 1, tzinfo=UTC)


def floor(moment: datetime, width: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return moment - (moment - epoch) % width


def model(steps: list[list[datetime]], width: timedelta, delay: timedelta) -> dict[datetime, int]:
    """Count the events whose window was open when their batch ran."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    watermark = epoch
    counts: dict[datetime, int] = {}
    for step in steps:
        for moment in step:
            start = floor(moment, width)
            if start + width > watermark:
                counts[start] = counts.get(start, 0) + 1
        newest = max(step) - delay
        newest -= (newest - epoch) % timedelta(milliseconds=1)  # Spark keeps the watermark in milliseconds
        watermark = max(watermark, newest)
    return counts


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def upsert(batches: list[Any]) -> dict[datetime, int]:
    return {row["window"]["start"]: row["count"] for batch in batches for row in batch.rows}


@few
@given(steps=batches)
def test_update_mode_ends_as_the_model_says(spark: "SparkSession", steps: list[list[datetime]]) -> None:
    pipeline = find_pipeline("visit-windows")
    batches = run_batches(
        spark, pipeline, [[{"visit_id": 1, "event_time": iso(time)} for time in step] for step in steps]
    )
    assert upsert(batches) == model(steps, timedelta(minutes=10), timedelta(minutes=20))


@few
@given(steps=batches)
def test_browsers_in_update_mode_end_as_the_model_says(spark: "SparkSession", steps: list[list[datetime]]) -> None:
    """Each browser gets the same visits, so each must have the same counts."""
    batches = run_batches(
        spark,
        find_pipeline("browser-stats-stateful", {"window": "10m"}),
        [[{"browser": name, "eventTime": iso(time)} for time in step for name in ("a", "b")] for step in steps],
    )
    wanted = model(steps, timedelta(minutes=10), timedelta(minutes=20))
    for name in ("a", "b"):
        rows = [row for batch in batches for row in batch.rows if row["browser"] == name]
        assert {row["window"]["start"]: row["count"] for row in rows} == wanted


@few
@given(steps=batches)
def test_append_mode_says_each_window_once_when_it_is_over(spark: "SparkSession", steps: list[list[datetime]]) -> None:
    steps = [*steps, [FUTURE]]
    pipeline = find_pipeline("visit-counts")
    batches = run_batches(
        spark, pipeline, [[{"visit_id": 1, "event_time": iso(time)} for time in step] for step in steps]
    )
    said = [row["window"]["start"] for batch in batches for row in batch.rows]
    assert len(said) == len(set(said))
    wanted = model(steps, timedelta(minutes=10), timedelta(minutes=10))
    del wanted[floor(FUTURE, timedelta(minutes=10))]  # open still
    assert upsert(batches) == wanted


def test_both_daylight_saving_nights_are_counted_hour_by_hour(spark: "SparkSession") -> None:
    """In spring an hour of the clock is missing, in autumn one is repeated; windows are of time, not of the clock."""
    pipeline = find_pipeline("visit-windows", {"timezone": "Europe/Paris", "window": "1 hour"})
    # 02:30 on the clock does not exist in spring and is read as 03:30; in autumn the first of two is taken.
    naive = ["2025-03-30T01:30:00", "2025-03-30T02:30:00", "2025-03-30T03:30:00", "2025-10-26T02:30:00"]
    exact = ["2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"]
    batches = run_batches(spark, pipeline, [[{"visit_id": 1, "event_time": time} for time in naive + exact]])
    assert upsert(batches) == {
        datetime(2025, 3, 30, 1, tzinfo=PARIS): 1,
        datetime(2025, 3, 30, 3, tzinfo=PARIS): 2,
        datetime(2025, 10, 26, 0, tzinfo=UTC): 2,
        datetime(2025, 10, 26, 1, tzinfo=UTC): 1,
    }


def test_records_that_do_not_decode_change_no_result(spark: "SparkSession") -> None:
    good: list[Any] = [{"visit_id": 1, "event_time": iso(BASE + timedelta(minutes=minute))} for minute in range(30)]
    bad: list[Any] = [b"not json", None, b"\xff", b"[]", b'{"visit_id": 1}', b'{"visit_id": 1, "event_time": "soon"}']
    mixed = [record for pair in zip(good, bad * 5, strict=True) for record in pair]
    pipeline = find_pipeline("visit-windows")
    clean, dirty = (run_batches(spark, pipeline, [records, good]) for records in (good, mixed))
    assert [batch.rows for batch in clean] == [batch.rows for batch in dirty]
    assert sum(batch.rejected for batch in dirty) == 30


def test_a_stateless_pipeline_forgets_and_a_stateful_one_adds_up(spark: "SparkSession") -> None:
    def visit(browser: str, time: str) -> dict[str, str]:
        return {"browser": browser, "eventTime": f"2024-10-06T{time}:00Z"}

    steps = [
        [visit("Firefox", "10:00"), visit("Chrome", "10:01")],
        [visit("Firefox", "10:00"), visit("Firefox", "10:03")],
    ]
    counts = {}
    for name in ("browser-stats-stateless", "browser-stats-stateful"):
        batches = run_batches(spark, find_pipeline(name), steps)
        counts[name] = [{row["browser"]: row["count"] for row in batch.rows} for batch in batches if batch.rows]
    assert counts["browser-stats-stateless"] == [{"Firefox": 1, "Chrome": 1}, {"Firefox": 2}]
    assert counts["browser-stats-stateful"] == [{"Firefox": 1, "Chrome": 1}, {"Firefox": 3}]
