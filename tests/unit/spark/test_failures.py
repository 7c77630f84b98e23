"""Which failures are transient, by what Spark, Kafka and Python say."""

from datetime import timedelta

import pytest

from respool.errors import BrokerError, BrokerUnreachable, SinkError, SinkUnreachable
from respool.kafka import outage
from respool.kafka.cluster import KafkaCluster
from respool.spark import failures
from respool.spark.failures import Cause, Failure

# As recorded from Spark 4.2 with foreachBatch: Python's traceback, with Java's inside.
IN_A_BATCH = (
    "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    '  File "py4j/clientserver.py", line 644, in _call_proxy\n'
    "    return_value = getattr(self.pool[obj_id], method)(*params)\n"
    "py4j.protocol.Py4JJavaError: An error occurred while calling o152.save.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 1.0 failed 1 times, most "
    "recent failure: Lost task 1.0 in stage 1.0 (TID 3) (host executor driver): {cause}\n\n"
    "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3318)\n"
    "Caused by: {cause}\n\t... 1 more\n"
)
KAFKA = "org.apache.kafka.common.errors."


def failure(text: str) -> Failure:
    plan = "\n=== Streaming Query ===\nLogical Plan:\nProject [TimeoutException#1, java.net.ConnectException]\n"
    return failures.classify("small", Exception(text + plan), "cp")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("failed due to: respool.Schemas$RegistryUnreachable: http://r does not answer", Cause.REGISTRY),
        (f"{KAFKA}TimeoutException: Timed out waiting for a node assignment. Call: listNodes", Cause.KAFKA),
        (f"{KAFKA}TimeoutException: Timeout of 60000ms expired before the position for in-0", Cause.KAFKA),
        (f"{KAFKA}TimeoutException: Expiring 20 record(s) for out-1:120000 ms has passed", Cause.KAFKA),
        (f"{KAFKA}DisconnectException: Cancelled fetchMetadata request", Cause.KAFKA),
        (f"{KAFKA}NotLeaderOrFollowerException: For requests intended only for the leader", Cause.KAFKA),
        ("Cannot fetch record for offset 20 in 120000 milliseconds", Cause.KAFKA),
        (f"{KAFKA}TimeoutException: Topic out not present in metadata after 60000 ms.", Cause.TOPIC_UNKNOWN),
        ("java.net.ConnectException: Connection refused", Cause.NETWORK),
        ("java.net.UnknownHostException: bucket.s3.example.com", Cause.NETWORK),
        ("software.amazon.awssdk.core.exception.ApiCallTimeoutException: too long", Cause.NETWORK),
        ("Slow down (Service: S3, Status Code: 503, Request ID: 1)", Cause.NETWORK),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.\n"
            "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
            Cause.WORKER_START,
        ),
        ("[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Streaming Runner", Cause.WORKER_START),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", Cause.WORKER_LOST),
        (
            "Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 times, most recent failure: Lost task 0.3 "
            "in stage 9.0 (TID 41) (127.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the "
            "running tasks) Reason: Command exited with code 137",
            Cause.EXECUTOR_LOST,
        ),
        ("org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location", Cause.EXECUTOR_LOST),
    ],
)
def test_what_may_pass_is_transient(text: str, cause: Cause) -> None:
    for shown in (text, IN_A_BATCH.replace("{cause}", text)):
        assert failure(shown).cause is cause
        assert failure(shown).is_transient


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{KAFKA}UnknownTopicOrPartitionException: This server does not host", Cause.TOPIC_GONE),
        (f"{KAFKA}SaslAuthenticationException: Authentication failed", Cause.REFUSED),
        (f"{KAFKA}TopicAuthorizationException: Not authorized to access topics: [in]", Cause.REFUSED),
        (f"{KAFKA}RecordTooLargeException: The message is 9 bytes", Cause.RECORD_TOO_LARGE),
        ("Some data may have been lost. ... set the source option failOnDataLoss to false", Cause.DATA_LOSS),
        ("java.io.IOException: No space left on device", Cause.DISK_FULL),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log", Cause.CONCURRENT_QUERY),
        ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema", Cause.STATE_MISMATCH),
        ("Job 7 cancelled because SparkContext was shut down", Cause.APPLICATION_ENDED),
        ("Job aborted. All masters are unresponsive! Giving up.", Cause.APPLICATION_ENDED),
        ("failed due to: respool.Schemas$RegistryRefused: refuses the credentials", Cause.REGISTRY_REFUSED),
        ("something new", Cause.UNKNOWN),
        ("", Cause.UNKNOWN),
    ],
)
def test_what_does_not_pass_is_permanent(text: str, cause: Cause) -> None:
    for shown in (text, IN_A_BATCH.replace("{cause}", text or "x")):
        assert failure(shown).cause is cause
        assert not failure(shown).is_transient


@pytest.mark.parametrize(
    "raised",
    [
        "ValueError: the sink is on fire",
        f"RuntimeError: {KAFKA}TimeoutException: no answer",
        "requests.exceptions.ConnectionError: java.net.ConnectException: Connection refused",
        "TimeoutError",
    ],
)
def test_an_exception_of_the_users_code_is_permanent_whatever_it_says(raised: str) -> None:
    text = f'Return Message: Traceback (most recent call last):\n  File "mine.py", line 3, in write\n{raised}\n'
    assert failure(text).cause is Cause.CODE
    # Raised from a failure of Spark: it is the user's code that made something else of it.
    chained = IN_A_BATCH.replace("{cause}", f"{KAFKA}TimeoutException: no answer")
    chained += f"\nThe above exception was the direct cause of the following exception:\n\n{text}"
    assert failure(chained).cause is Cause.CODE
    assert not failure(chained).is_transient


def test_the_topic_that_is_missing_is_named() -> None:
    named = failure(f"{KAFKA}TimeoutException: Topic out not present in metadata after 60000 ms.")
    assert named.topic == "out"
    gone = failures.topic_gone(named, "cp")
    assert (gone.cause, gone.is_transient) == (Cause.TOPIC_GONE, False)
    assert "respool topic create" in gone.message


def test_only_workers_have_a_limited_number_of_restarts() -> None:
    assert failure(f"{KAFKA}TimeoutException: x").attempts is None
    assert failure("Python worker exited unexpectedly (crashed)").attempts == 3
    assert failure("something new").attempts == 0


def test_errors_are_distinguished_by_their_class() -> None:
    assert failures.classify("small", BrokerUnreachable("x"), "cp").cause is Cause.KAFKA
    assert not failures.classify("small", BrokerError("x"), "cp").is_transient
    text = "Traceback (most recent call last):\n  File x\nrespool.errors.BrokerUnreachable: The broker did not answer\n"
    assert failure(text).cause is Cause.KAFKA


def test_the_time_between_restarts_doubles_up_to_a_minute() -> None:
    waits = [outage.backoff(attempt) for attempt in range(1, 12)]
    for attempt, wait in enumerate(waits):
        assert 0.8 * min(2**attempt, 60) <= wait <= 1.2 * min(2**attempt, 60)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (64, "1 min 4 s"), (120, "2 min"), (7260, "2 h 1 min")]
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert outage.duration(seconds) == text


def test_a_kafka_that_does_not_answer_is_waited_for_as_long_as_is_wanted() -> None:
    notes: list[str] = []
    with pytest.raises(BrokerUnreachable, match=r"No Kafka broker answers at 127\.0\.0\.1:1; waited for 2 s"):
        outage.wait_until_answers(KafkaCluster("127.0.0.1:1"), timedelta(seconds=2), notes.append)
    assert all("is unreachable since" in note for note in notes)
    assert len(notes) <= 1


def test_a_sink_that_does_not_answer_may_answer_later_and_one_that_refuses_will_not() -> None:
    for error, cause in ((SinkUnreachable("table t", "no"), Cause.SINK), (SinkError("table t", "no"), Cause.CODE)):
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        raised = failure(f'Return Message: Traceback (most recent call last):\n  File "a.py"\n{kind}: {error}\n')
        assert raised.cause is cause
        assert raised.is_transient == isinstance(error, SinkUnreachable)
    assert failures.classify("small", SinkUnreachable("table t", "no"), "cp").cause is Cause.SINK
