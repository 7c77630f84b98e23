"""The results of an engine, read from its topic or table and compared with the expected results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.truth import SessionResult, Truth, minute_of
from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster


def windows(kafka: KafkaCluster, topic: str) -> Iterator[tuple[int, int]]:
    """Yield the starts of windows and their counts, in the order in which they were published."""
    for _, value in _records(kafka, topic):
        if value is not None:
            result = json.loads(value.decode())
            yield minute_of(result["window"]["start"]), result["count"]


def sessions(kafka: KafkaCluster, topic: str) -> Iterator[SessionResult]:
    """Yield the results of sessions; those of a visit in the order in which they were published."""
    for key, value in _records(kafka, topic):
        result: dict[str, Any] = json.loads((value or key or b"{}").decode())  # parsing bytes takes twice as long
        start = minute_of(result["session_start"])
        if value is None:
            yield SessionResult(result["visit_id"], start, None, None)
        else:
            end, pages = minute_of(result["session_end"]), result["visited_pages"]
            yield SessionResult(result["visit_id"], start, end, pages, bool(result["is_finished"]))


def table_bytes(table: Path) -> int:
    """Return the bytes of the data files of a Delta table."""
    from deltalake import DeltaTable

    return sum(int(size) for size in _adds(DeltaTable(str(table)))["size_bytes"])


def wrong_archive(truth: Truth, table: Path) -> str | None:
    """Return what is wrong with an archive; None if it has every record once, in the partition of its hour."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset", "value", "event_date", "event_hour"])
    if rows.num_rows != truth.events:
        return f"{rows.num_rows:,} of {truth.events:,} records are archived"
    distinct = rows.group_by(["partition", "offset"]).aggregate([]).num_rows
    if distinct != truth.events:
        return f"{truth.events - distinct:,} records are archived more than once"
    length = pc.sum(pc.binary_length(rows["value"])).as_py()
    if length != truth.value_bytes:
        return f"the values have {length:,} bytes in all, expected {truth.value_bytes:,}"
    counts = rows.group_by(["event_date", "event_hour"]).aggregate([("offset", "count")]).to_pylist()
    hours = {_hour(str(row["event_date"]), int(row["event_hour"])): row["offset_count"] for row in counts}
    return None if hours == truth.hours else "records are in the partition of another hour"


def _hour(date: str, hour: int) -> int:
    return minute_of(f"{date}T{hour:02}:00:00")


def _adds(table: Any) -> dict[str, list[Any]]:
    import pyarrow as pa

    return dict(pa.table(table.get_add_actions(flatten=True)).to_pydict())


def _records(kafka: KafkaCluster, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values, partition by partition, so that the records of a key are in order."""
    from confluent_kafka import Consumer, TopicPartition

    ends = topics.end_offsets(kafka, topic)
    consumer = Consumer(
        {**kafka.for_client(), "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    try:
        for partition, end in ends.items():
            consumer.assign([TopicPartition(topic, partition, 0)])
            at = 0
            while at < end:
                for message in consumer.consume(10_000, 1.0):
                    if message.error() is None:
                        at = (message.offset() or 0) + 1
                        if ("pathway_diff", b"-1") not in (message.headers() or ()):  # a retracted row
                            yield message.key(), message.value()
                # Transactions leave markers at the end that are not records.
                at = max(at, *(position.offset for position in consumer.position([TopicPartition(topic, partition)])))
    finally:
        consumer.close()
