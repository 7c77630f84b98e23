"""A consumer loop in memory: the upper bound of what this machine can do. A crash loses everything."""

import json
import os
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.peers.command import parse_arguments, report

try:
    from orjson import dumps, loads  # type: ignore[import-not-found,unused-ignore]

    PARSER = "orjson"
except ImportError:  # it runs in the environment of the benchmark
    from json import loads

    PARSER = "json of the standard library"

    def dumps(value: object) -> bytes:
        """Return JSON."""
        return json.dumps(value).encode()


_GAP = 10  # minutes
Rows = list[tuple[str, dict[str, Any]]]


class Counts:
    """Windows of 10 minutes; changed windows are published from time to time."""

    def __init__(self) -> None:
        """Start without any state."""
        self.windows: dict[str, int] = {}
        self.published: dict[str, int] = {}

    def add(self, value: bytes, rows: Rows) -> None:
        """Count an event."""
        start = loads(value)["event_time"][:15]  # the tens of the minutes are the window
        self.windows[start] = self.windows.get(start, 0) + 1

    def publish(self) -> Rows:
        """Return the windows that changed since the previous call."""
        changed = [(start, count) for start, count in self.windows.items() if self.published.get(start) != count]
        self.published.update(changed)
        return [(start, {"window": {"start": f"{start}0:00Z"}, "count": count}) for start, count in changed]


class Sessions:
    """Sessions of visits: an early result for each event, never a final result."""

    def __init__(self) -> None:
        """Start without any state."""
        self.open: dict[str, tuple[str, int, int]] = {}

    def add(self, value: bytes, rows: Rows) -> None:
        """Process an event, and add the changed session to the rows."""
        event = loads(value)
        visit, time = event["visit_id"], event["event_time"]
        at = int(time[8:10]) * 1440 + int(time[11:13]) * 60 + int(time[14:16])
        start, last, pages = self.open.get(visit, (time, at, 0))
        if at - last > _GAP:
            start, pages = time, 0
        self.open[visit] = (start, at, pages + 1)
        row = {"visit_id": visit, "session_start": start, "session_end": time, "visited_pages": pages + 1}
        rows.append((visit, {**row, "is_finished": False}))

    def publish(self) -> Rows:
        """Return nothing: each result was published immediately."""
        return []


def send(producer: Producer, topic: str, rows: Rows) -> None:
    """Send results."""
    for key, row in rows:
        while True:
            try:
                producer.produce(topic, dumps(row), key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


def main() -> None:
    """Process all events of the topic."""
    arguments = parse_arguments()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.servers,
            "group.id": f"bare-{os.getpid()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 10_000_000,
            # By default it stops fetching at 100,000 waiting messages, and waits for a second.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 200_000,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(arguments.topic, partition, 0) for partition in (0, 1)])
    producer = Producer(
        {"bootstrap.servers": arguments.servers, "linger.ms": 50, "queue.buffering.max.messages": 1000000}
    )
    job = Counts() if arguments.job == "counts" else Sessions()
    each = min(100_000, max(1, arguments.events // 10))
    done, reported = 0, 0
    while done < arguments.events:
        rows: Rows = []
        for message in consumer.consume(min(10_000, each), 1.0):
            value = message.value()
            if value is not None and message.error() is None:
                job.add(value, rows)
                done += 1
        if done - reported >= each:
            reported = done
            rows += job.publish()
            report(events=done)
        send(producer, arguments.output, rows)
    send(producer, arguments.output, job.publish())
    producer.flush()
    report(events=done)
    report(said={"parser": PARSER})


if __name__ == "__main__":
    main()
