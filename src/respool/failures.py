"""Why a streaming query failed, in words that tell what to do; Spark's own words when the cause is not known."""

import re

from respool.errors import QueryError

# What Spark and Kafka say, and what it means to the user. The first that matches tells.
_KNOWN = (
    (
        r"No space left on device|DISK_FULL|not enough space",
        "The disk is full. Free some space and run this again: it goes on from the last finished batch.",
    ),
    (
        r"UnknownTopicOrPartition|does not host this topic-partition"
        r"|partitions? .{0,300}(are gone|is gone|have been lost)|Topic .{0,300} (not present|does not exist)",
        "A topic that it uses is gone. Create it again with: respool topic create NAME. If it was deleted for good, "
        "start over with another --checkpoint.",
    ),
    (
        r"failOnDataLoss|[Dd]ata (?:may have been|has been) lost|OffsetOutOfRange|offset .{0,100} was changed",
        "Records that it had not read yet are no longer in Kafka: the topic was recreated or its retention passed. "
        "Start over with another --checkpoint to read what is there.",
    ),
    (
        r"TimeoutException|Timed out waiting|Failed to (?:create new KafkaAdminClient|construct kafka)"
        r"|Connection to node|disconnected|Broker may not be available|No resolvable bootstrap",
        "Kafka does not answer. Check it with: respool broker status, or check --bootstrap-servers; then run this "
        "again: it goes on from the last finished batch.",
    ),
    (
        r"RecordTooLarge|larger than .{0,60} max\.request\.size|MESSAGE_TOO_LARGE",
        "A record is larger than its topic takes. Raise max.message.bytes of the topic, and max.request.size in "
        "[kafka].",
    ),
    (
        r"SASL|Authentication|Authorization|SSL handshake",
        "Kafka refuses the credentials. Check the [kafka] table of respool.toml.",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log",
        "Another query writes to the same checkpoint. Stop it, or name another folder with --checkpoint.",
    ),
    (
        r"STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_\w*SCHEMA\w*NOT_COMPATIBLE",
        "The pipeline keeps other state than its checkpoint holds: its code has changed. Start over with another "
        "--checkpoint, or run the code that made it.",
    ),
)


def explain(pipeline: str, error: BaseException) -> QueryError:
    """Return what to tell the user about the failure of a pipeline's query."""
    text = str(error)
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            return QueryError(f"The pipeline {pipeline} has failed. {meaning}\n  Spark says: {_first_words(text)}")
    return QueryError(
        f"The pipeline {pipeline} has failed: {_first_words(text)}\n"
        "Spark's log under the home (logs/spark.log) tells more; respool --debug run … shows the stack trace."
    )


def _first_words(text: str) -> str:
    """Return the line of a failure that tells most: the innermost Python or Java cause, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    python = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    told = (python or causes or lines or ["no reason was given"])[-1 if python or causes else 0]
    told = told.removeprefix("Caused by: ")
    return told if len(told) <= 300 else told[:299] + "…"
