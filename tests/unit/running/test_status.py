"""When a run is live and ready, by a clock of the test's own."""

import pytest

from respool.running.progress import BatchProgress, from_spark
from respool.running.status import LOOP_LIMIT, Limits, Phase, RunStatus

BATCH = BatchProgress("counts", 4, 1200, 800.0, None, None, None, None, 0, 1.5, lag=300)
NO_LIMITS = Limits()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> RunStatus:
    return RunStatus(clock)


def running(status: RunStatus) -> RunStatus:
    status.query_started("counts")
    status.enter(Phase.RUNNING)
    return status


@pytest.mark.parametrize("phase", [Phase.KAFKA, Phase.SPARK, Phase.QUERIES, Phase.STOPPING])
def test_before_and_after_the_queries_run_it_is_live_and_not_ready(
    status: RunStatus, clock: Clock, phase: Phase
) -> None:
    status.enter(phase)
    clock.now += 10 * LOOP_LIMIT
    assert status.not_live(NO_LIMITS) == []
    assert status.not_ready(NO_LIMITS) == [f"the run is {phase.value}"]


def test_it_is_ready_from_the_start_of_its_queries_on(status: RunStatus) -> None:
    running(status)
    assert status.not_ready(NO_LIMITS) == []
    assert status.to_json()["pipelines"]["counts"] == {
        "state": "running",
        "cause": None,
        "batch": None,
        "seconds_since_batch": None,
        "seconds_since_report": None,
        "lag": None,
    }


def test_a_loop_that_does_not_turn_is_not_live(status: RunStatus, clock: Clock) -> None:
    running(status)
    clock.now += LOOP_LIMIT
    status.loop_continued()
    clock.now += LOOP_LIMIT
    assert status.not_live(NO_LIMITS) == []
    clock.now += 1
    assert status.not_live(NO_LIMITS) == ["the run's main loop has handled no event for 61 s"]


def test_the_age_of_a_batch_and_of_the_last_report(status: RunStatus, clock: Clock) -> None:
    running(status).batch_finished(BATCH)
    clock.now += 7
    status.query_idle("counts")
    clock.now += 2
    reported = status.to_json()["pipelines"]["counts"]
    assert (reported["batch"], reported["seconds_since_batch"], reported["seconds_since_report"]) == (4, 9.0, 2.0)
    assert reported["lag"] == 0


def test_limits_of_a_probe(status: RunStatus, clock: Clock) -> None:
    running(status).batch_finished(BATCH)
    assert status.not_ready(Limits(lag=300)) == []
    assert status.not_ready(Limits(lag=299)) == ["counts is 300 records behind; expected at most 299"]
    clock.now += 30
    status.loop_continued()
    silent = ["Spark has reported nothing of counts for 30 s; expected at most 29 s"]
    assert status.not_ready(Limits(silence=30)) == status.not_live(Limits(silence=30)) == []
    assert status.not_ready(Limits(silence=29)) == status.not_live(Limits(silence=29)) == silent
    status.watch_kafka(lambda: 20.0)  # a restart would not help
    assert status.not_live(Limits(silence=29)) == []


def test_a_failed_or_interrupted_query_is_not_ready(status: RunStatus) -> None:
    running(status).query_waits("counts", "a connection failed")
    assert status.not_ready(NO_LIMITS) == ["counts is interrupted: a connection failed"]
    status.query_started("counts")
    assert status.not_ready(NO_LIMITS) == []
    status.query_failed("counts", "the disk is full")
    assert status.not_ready(NO_LIMITS) == ["counts has failed: the disk is full"]
    assert status.not_live(NO_LIMITS) == []


def test_a_query_that_has_ended_is_no_problem(status: RunStatus, clock: Clock) -> None:
    running(status).query_ended("counts")
    clock.now += 50
    assert status.not_ready(Limits(silence=1)) == []


def test_while_kafka_is_down_it_is_live_and_not_ready(status: RunStatus) -> None:
    running(status).watch_kafka(lambda: 12.3)
    assert status.not_ready(NO_LIMITS) == ["Kafka has not answered for 12 s"]
    assert status.not_live(NO_LIMITS) == []
    assert status.to_json()["seconds_without_kafka"] == 12.3


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}, 4),
        ({"t": {"0": 5}}, {"t": {"0": 5, "1": 3}}, 3),  # a new partition
        ({"t": {"0": 5}}, None, None),
        (7, 9, None),  # a rate source
    ],
)
def test_the_lag_of_a_batch_is_what_kafka_had_and_it_did_not_read(end: object, latest: object, lag: int | None) -> None:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    source = {"description": "s", "startOffset": None, "endOffset": end, "latestOffset": latest}
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    raw = {
        **{"id": "8c57e1ec-94b5-4c99-b100-f694162df0b9", "runId": "2d77e1ec-94b5-4c99-b100-f694162df0b9"},
        **{
            "name": None,
            "timestamp": "2025-01-01T00:00:00.000Z",
            "batchId": 1,
            "batchDuration": 9,
            "stateOperators": [],
        },
        **{"durationMs": {"addBatch": 5, "triggerExecution": 9}, "eventTime": {}, "observedMetrics": {}},
        **{"sources": [{**source, **rates}], "sink": {"description": "s", "numOutputRows": 0}, **rates},
    }
    batch = from_spark("counts", StreamingQueryProgress.fromJson(raw))
    assert batch is not None
    assert batch.lag == lag
