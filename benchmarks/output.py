"""What an engine wrote: read from its topic or table, and held against what is right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.truth import Told, Truth, minute_of
from respool import topics
from respool.kafka import Kafka


def windows(kafka: Kafka, topic: str) -> Iterator[tuple[int, int]]:
    """Yield the starts of windows and their counts, in the order in which they were told."""
    for _, value in _records(kafka, topic):
        if value is not None:
            found = json.loads(value.decode())
            yield minute_of(found["window"]["start"]), found["count"]


def sessions(kafka: Kafka, topic: str) -> Iterator[Told]:
    """Yield what was told of sessions, in the order in which it was told of each visit."""
    for key, value in _records(kafka, topic):
        found: dict[str, Any] = json.loads((value or key or b"{}").decode())  # of bytes it takes twice as long
        start = minute_of(found["session_start"])
        if value is None:
            yield Told(found["visit_id"], start, None, None)
        else:
            end, pages = minute_of(found["session_end"]), found["visited_pages"]
            yield Told(found["visit_id"], start, end, pages, bool(found["is_finished"]))


def table_bytes(table: Path) -> int:
    """Return the bytes of the data files of a Delta table."""
    from deltalake import DeltaTable

    return sum(int(size) for size in _adds(DeltaTable(str(table)))["size_bytes"])


def wrong_archive(truth: Truth, table: Path) -> str | None:
    """Return what is wrong with an archive; None when every record is there once, in the partition of its hour."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset", "value", "event_date", "event_hour"])
    if rows.num_rows != truth.events:
        return f"{rows.num_rows:,} of {truth.events:,} records are there"
    once = rows.group_by(["partition", "offset"]).aggregate([]).num_rows
    if once != truth.events:
        return f"{truth.events - once:,} records are there more than once"
    length = pc.sum(pc.binary_length(rows["value"])).as_py()
    if length != truth.value_bytes:
        return f"the values have {length:,} bytes in all, and should have {truth.value_bytes:,}"
    counts = rows.group_by(["event_date", "event_hour"]).aggregate([("offset", "count")]).to_pylist()
    hours = {_hour(str(one["event_date"]), int(one["event_hour"])): one["offset_count"] for one in counts}
    return None if hours == truth.hours else "records are in the partition of another hour"


def _hour(date: str, hour: int) -> int:
    return minute_of(f"{date}T{hour:02}:00:00")


def _adds(table: Any) -> dict[str, list[Any]]:
    import pyarrow as pa

    return dict(pa.table(table.get_add_actions(flatten=True)).to_pydict())


def _records(kafka: Kafka, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values; those of one partition in their order, which is the order of a key."""
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
                        if ("pathway_diff", b"-1") not in (message.headers() or ()):  # a row that it takes back
                            yield message.key(), message.value()
                # Transactions leave marks at the end that are no records.
                at = max(at, *(one.offset for one in consumer.position([TopicPartition(topic, partition)])))
    finally:
        consumer.close()
