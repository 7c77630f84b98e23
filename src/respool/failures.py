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
        r"UnknownTopicOrPartitionException|Topic \S+ not present in metadata",
        "A topic that it uses is gone. Create it again with: respool topic create NAME. If it is the topic that the "
        "pipeline reads, {start_over}: its old place is not one of the new topic.",
    ),
    (
        r"failOnDataLoss|OffsetOutOfRangeException",
        "Records that it had not read yet are no longer in Kafka: the topic was recreated or its retention passed. "
        "To read what is there, {start_over}.",
    ),
    (
        r"kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception|No resolvable bootstrap urls",
        "Kafka does not answer. Check it with: respool broker status, or check --bootstrap-servers; then run this "
        "again: it goes on from the last finished batch.",
    ),
    (
        r"RecordTooLargeException",
        "A record is larger than its topic takes. Raise max.message.bytes of the topic, and max.request.size in "
        "[kafka].",
    ),
    (
        r"kafka\.common\.errors\.\w*(?:Authentication|Authorization)Exception",
        "Kafka refuses the credentials. Check the [kafka] table of respool.toml.",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log",
        "Another query writes to the same checkpoint. Stop it, or name another folder with --checkpoint.",
    ),
    (
        r"STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_\w*SCHEMA\w*NOT_COMPATIBLE",
        "The pipeline keeps other state than its checkpoint holds: its code has changed. Run the code "
        "that made it, or {start_over}.",
    ),
)


def explain(pipeline: str, error: BaseException, checkpoint: str) -> QueryError:
    """Return what to tell the user about the failure of a pipeline's query on a checkpoint."""
    start_over = f"start over without its checkpoint: move {checkpoint} away"
    # Behind this line stands the plan, with names of columns and topics that may read like anything.
    text = str(error).partition("=== Streaming Query ===")[0]
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            meaning = meaning.replace("{start_over}", start_over)
            return QueryError(f"The pipeline {pipeline} has failed. {meaning}\n  Spark says: {first_words(text)}")
    return QueryError(
        f"The pipeline {pipeline} has failed: {first_words(text)}\n"
        "Spark's log under the home (logs/spark.log) tells more; respool --debug run … shows the stack trace."
    )


def first_words(text: str) -> str:
    """Return the line of a failure that tells most: the innermost cause, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # Py4J's own error tells nothing but that Java has failed.
    python = [line for line in lines if re.match(r"(?!py4j)[\w.]*(Error|Exception): ", line)]
    reasons = [line for line in lines if line.startswith("Reason: ")]
    told = (python or causes or reasons or lines[:1] or ["no reason was given"])[-1]
    told = told.removeprefix("Caused by: ").removeprefix("Reason: ")
    return told if len(told) <= 300 else told[:299] + "…"
