"""Why a streaming query failed, whether waiting can help, and the message for the user.

This is the only place that reads the texts of Spark, Kafka and Python. Everything else uses the `Failure`.
"""

import re
from dataclasses import dataclass
from enum import Enum

from respool.errors import BrokerUnreachable, QueryError, SinkUnreachable

_RESUMES = "then run this again: it resumes after the last finished batch."


class Cause(Enum):
    """What made a query fail."""

    DISK_FULL = "the disk is full"
    KAFKA = "Kafka does not answer"
    TOPIC_UNKNOWN = "a topic is not in Kafka's metadata"  # the topic is gone, or no broker answered
    TOPIC_GONE = "a topic is gone"
    DATA_LOSS = "records are no longer in Kafka"
    RECORD_TOO_LARGE = "a record is too large"
    REGISTRY = "the schema registry does not answer"
    REGISTRY_REFUSED = "the schema registry refuses"
    REFUSED = "Kafka refuses the credentials"
    CONCURRENT_QUERY = "another query writes to the checkpoint"
    STATE_MISMATCH = "the state was written by other code"
    WORKER_START = "a Python worker did not start in time"
    WORKER_LOST = "a Python worker ended"
    EXECUTOR_LOST = "an executor was lost"
    APPLICATION_ENDED = "the cluster has ended the application"
    MODULE_MISSING = "a Python module is missing"
    NETWORK = "a connection failed"
    SINK = "a sink does not answer"
    CODE = "Python code raised an exception"
    UNKNOWN = "unknown"


# Causes that can pass without a change of code, settings or data; with the number of restarts in a row that may fail
# before the cause counts as permanent. None: no limit.
_TRANSIENT: dict[Cause, int | None] = {
    Cause.KAFKA: None,
    Cause.TOPIC_UNKNOWN: None,
    Cause.REGISTRY: None,
    Cause.NETWORK: None,
    Cause.SINK: None,
    Cause.WORKER_START: 10,
    Cause.EXECUTOR_LOST: 10,
    Cause.WORKER_LOST: 3,  # most often killed for its memory; a crash that the data causes would repeat for ever
}

# Messages of Spark and Kafka, in the order in which they are tried: an outer message often repeats inner messages.
_PATTERNS: tuple[tuple[str, Cause], ...] = (
    (r"respool\.Schemas\$RegistryUnreachable", Cause.REGISTRY),
    (r"respool\.Schemas\$RegistryRefused", Cause.REGISTRY_REFUSED),
    (r"No space left on device|DISK_FULL|not enough space", Cause.DISK_FULL),
    (r"UnknownTopicOrPartitionException", Cause.TOPIC_GONE),
    (r"failOnDataLoss|OffsetOutOfRangeException", Cause.DATA_LOSS),
    (r"RecordTooLargeException|RecordBatchTooLargeException", Cause.RECORD_TOO_LARGE),
    (r"kafka\.common\.errors\.\w*(?:Authentication|Authorization)Exception", Cause.REFUSED),
    (r"CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log", Cause.CONCURRENT_QUERY),
    (r"STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_\w*SCHEMA\w*NOT_COMPATIBLE", Cause.STATE_MISMATCH),
    (
        r"Python worker (?:failed )?to connect back|Timed out while waiting for the Python worker"
        r"|STREAMING_PYTHON_RUNNER_INITIALIZATION_(?:TIMEOUT|COMMUNICATION)_FAILURE"
        r"|Python daemon failed to launch worker",
        Cause.WORKER_START,
    ),
    (r"Python worker exited unexpectedly", Cause.WORKER_LOST),
    (
        r"SparkContext (?:was|has been) shut ?down|All masters are unresponsive|Master removed our application"
        r"|stopped SparkContext",
        Cause.APPLICATION_ENDED,
    ),
    (
        r"ExecutorLostFailure|MetadataFetchFailedException|FetchFailedException|FetchFailed\("
        r"|BlockNotFoundException|Failed to get broadcast_\d+",
        Cause.EXECUTOR_LOST,
    ),
    (r"Topic \S+ not present in metadata", Cause.TOPIC_UNKNOWN),
    (
        r"kafka\.common\.errors\.(?:Timeout|Disconnect|Network|BrokerNotAvailable|LeaderNotAvailable"
        r"|NotLeaderOrFollower|CoordinatorNotAvailable|CoordinatorLoadInProgress|NotCoordinator|NotController"
        r"|NotEnoughReplicas|NotEnoughReplicasAfterAppend|KafkaStorage)Exception"
        r"|No resolvable bootstrap urls|Cannot fetch record for offset \d+ in \d+ milliseconds",
        Cause.KAFKA,
    ),
    (
        r"java\.net\.(?:Connect|SocketTimeout|UnknownHost|NoRouteToHost|PortUnreachable|Socket)Exception"
        r"|org\.apache\.http\.conn\.\w*Exception|ApiCall(?:Attempt)?TimeoutException|Unable to execute HTTP request"
        r"|Status Code: 50[0-4]\b|\bSlowDown\b",
        Cause.NETWORK,
    ),
)

_MEANINGS: dict[Cause, str] = {
    Cause.DISK_FULL: (
        "The disk is full. Free some space and run this again: it resumes after the last finished batch."
    ),
    Cause.KAFKA: (
        f"Kafka does not answer. Check it with: respool broker status, or check --bootstrap-servers; {_RESUMES}"
    ),
    Cause.TOPIC_UNKNOWN: (
        f"A topic that it uses is gone, or Kafka does not answer. Check: respool topic list; {_RESUMES}"
    ),
    Cause.TOPIC_GONE: (
        "A topic that it uses is gone. Create it again with: respool topic create NAME. If it is the topic that the "
        "pipeline reads, {start_over}: its old offsets are not those of the new topic."
    ),
    Cause.DATA_LOSS: (
        "Records that it had not read yet are no longer in Kafka: the topic was recreated or its retention passed. "
        "To read the available records, {start_over}."
    ),
    Cause.REGISTRY: f"The schema registry of its decoder does not answer. Check that it runs; {_RESUMES}",
    Cause.REGISTRY_REFUSED: "The schema registry of its decoder refuses. Check the SchemaRegistry of the decoder.",
    Cause.RECORD_TOO_LARGE: (
        "A record is larger than its topic accepts. Raise max.message.bytes of the topic that it writes to."
    ),
    Cause.REFUSED: "Kafka refuses the credentials. Check the [kafka] table of respool.toml.",
    Cause.CONCURRENT_QUERY: (
        "Another query writes to the same checkpoint. Stop it, or name another folder with --checkpoint."
    ),
    Cause.STATE_MISMATCH: (
        "The pipeline's state differs from the state in its checkpoint: its code has changed. Run the code that made "
        "it, or {start_over}."
    ),
    Cause.WORKER_START: f"A Python worker did not start in time. Check the load of the machine; {_RESUMES}",
    Cause.WORKER_LOST: f"A Python worker ended unexpectedly. Check the memory of the machine; {_RESUMES}",
    Cause.EXECUTOR_LOST: (
        f"Executors of the cluster were lost. Check its workers and the memory of their hosts; {_RESUMES}"
    ),
    Cause.APPLICATION_ENDED: (
        f"The cluster has ended the Spark application, or its master is gone. Check the cluster; {_RESUMES}"
    ),
    Cause.MODULE_MISSING: (
        "A task needs a Python module that is not installed where it ran. Pure Python packages are shipped with "
        "spark.submit.pyFiles in the [spark] table of respool.toml, or --py-files of spark-submit; install others on "
        "every host of the cluster. See docs/deploy.md."
    ),
    Cause.NETWORK: f"A connection failed. Check the network and the object store; {_RESUMES}",
    Cause.SINK: f"A sink does not answer. Check that its server runs and can be reached; {_RESUMES}",
}

_UNKNOWN_TOPIC = re.compile(r"Topic (\S+) not present in metadata")
# The last line of a Python traceback: the class of the exception, and its text.
_RAISED = re.compile(r"^(?!py4j\.|pyspark\.|java\.|javax\.|org\.|scala\.)([A-Za-z_][\w.]*)(?::\s|$)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
# Errors of respool's own that pass when a server answers again.
_UNREACHABLE: dict[type[Exception], Cause] = {BrokerUnreachable: Cause.KAFKA, SinkUnreachable: Cause.SINK}


@dataclass(frozen=True)
class Failure:
    """The failure of a query.

    Attributes:
        pipeline: The pipeline's name.
        cause: What made it fail.
        message: The message for the user.
        reason: The most specific line of Spark's text.
        topic: The topic that is not in Kafka's metadata, for `Cause.TOPIC_UNKNOWN`.
    """

    pipeline: str
    cause: Cause
    message: str
    reason: str = ""
    topic: str | None = None

    @property
    def is_transient(self) -> bool:
        """Whether the query may succeed when it is restarted as it is."""
        return self.cause in _TRANSIENT

    @property
    def needs_kafka(self) -> bool:
        """Whether a restart makes sense only once Kafka answers."""
        return self.cause in (Cause.KAFKA, Cause.TOPIC_UNKNOWN)

    @property
    def attempts(self) -> int | None:
        """How many restarts in a row may fail; None for no limit."""
        return _TRANSIENT.get(self.cause, 0)

    def error(self) -> QueryError:
        """Return the exception to raise."""
        return QueryError(self.message)


def classify(pipeline: str, error: BaseException, checkpoint: str) -> Failure:
    """Return why the query of a pipeline on a checkpoint failed."""
    text = without_plan(error)
    cause = next((cause for kind, cause in _UNREACHABLE.items() if isinstance(error, kind)), None) or _cause(text)
    topic = _UNKNOWN_TOPIC.search(text) if cause is Cause.TOPIC_UNKNOWN else None
    return _failure(pipeline, cause, innermost_message(text), checkpoint, topic[1] if topic else None)


def topic_gone(failure: Failure, checkpoint: str) -> Failure:
    """Return the failure of a query whose topic is missing although Kafka answers."""
    return _failure(failure.pipeline, Cause.TOPIC_GONE, failure.reason, checkpoint, failure.topic)


def gave_up(pipeline: str, before: Failure | None, waited: str) -> Failure:
    """Return the failure of a query whose time to recover has passed.

    Args:
        pipeline: The pipeline's name.
        before: Its last failure; None when the query was still running and waited for Kafka.
        waited: How long, as text.
    """
    cause, reason = (before.cause, before.reason) if before else (Cause.KAFKA, "")
    message = (
        f"The pipeline {pipeline} has failed: {cause.value}, for more than {waited}. Wait longer with --give-up-after. "
        "Run this again to resume after the last finished batch."
    )
    return Failure(pipeline, cause, f"{message}\n  Spark says: {reason}" if reason else message, reason)


def _cause(text: str) -> Cause:
    if _TRACEBACK in text:
        raised = _RAISED.findall(text.partition(_TRACEBACK)[2])
        for kind, cause in _UNREACHABLE.items():
            if f"{kind.__module__}.{kind.__qualname__}" in raised:
                return cause
        if raised[-1:] == ["ModuleNotFoundError"]:
            return Cause.MODULE_MISSING
        # An exception of the user's code may quote anything: its text says nothing about the cause.
        if any(re.search(r"(?:Error|Exception|Exit|Interrupt|Warning)$", name) for name in raised):
            return Cause.DISK_FULL if re.search(r"No space left on device", text) else Cause.CODE
    for pattern, cause in _PATTERNS:
        if re.search(pattern, text, re.DOTALL):
            return cause
    return Cause.UNKNOWN


def _failure(pipeline: str, cause: Cause, reason: str, checkpoint: str, topic: str | None) -> Failure:
    meaning = _MEANINGS.get(cause)
    if meaning is None:
        message = (
            f"The pipeline {pipeline} has failed: {reason}\n"
            "Spark's log under the home (logs/spark.log) has the details; respool --debug run … shows the stack trace."
        )
    else:
        start_over = f"start over without its checkpoint: move {checkpoint} away"
        meaning = meaning.replace("{start_over}", start_over)
        message = f"The pipeline {pipeline} has failed. {meaning}\n  Spark says: {reason}"
    return Failure(pipeline, cause, message, reason, topic)


def without_plan(error: BaseException) -> str:
    """Return Spark's message of a failed query, without its plan: names in it may look like any error."""
    return str(error).partition("=== Streaming Query ===")[0]


def is_delta_conflict(error: BaseException) -> bool:
    """Return whether a Delta commit failed because another writer had changed the same files meanwhile."""
    text = str(error)
    return "DELTA_CONCURRENT" in text or "ConcurrentModificationException" in text


def innermost_cause(error: BaseException) -> str:
    """Return the line that a Java stack trace ends its causes with, or the first line without one."""
    text = str(error)
    line = next((line for line in reversed(text.splitlines()) if line.startswith("Caused by: ")), text.strip())
    return line.removeprefix("Caused by: ").splitlines()[0][:300]


def innermost_message(text: str) -> str:
    """Return the most specific line of a failure: the innermost cause, otherwise the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # Py4J's own error says only that Java has failed.
    python = [line for line in lines if re.match(r"(?!py4j)[\w.]*(Error|Exception): ", line)]
    reasons = [line for line in lines if line.startswith("Reason: ")]
    reason = (python or causes or reasons or lines[:1] or ["no reason was given"])[-1]
    reason = reason.removeprefix("Caused by: ").removeprefix("Reason: ")
    return reason if len(reason) <= 300 else reason[:299] + "…"
