"""A consumer loop in memory: the floor of what this machine can do. A crash loses everything."""

import argparse
import json
import os
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

try:
    from orjson import dumps, loads  # type: ignore[import-not-found,unused-ignore]

    PARSER = "orjson"
except ImportError:  # no environment of its own
    from json import loads

    PARSER = "json of the standard library"

    def dumps(value: object) -> bytes:
        """Return JSON."""
        return json.dumps(value).encode()


_GAP = 10  # minutes
Rows = list[tuple[str, dict[str, Any]]]


class Counts:
    """Windows of 10 minutes; what has changed is told once in a while."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.windows: dict[str, int] = {}
        self.told: dict[str, int] = {}

    def add(self, value: bytes, news: Rows) -> None:
        """Take an event in."""
        start = loads(value)["event_time"][:15]  # the tens of the minutes are the window
        self.windows[start] = self.windows.get(start, 0) + 1

    def tell(self) -> Rows:
        """Return what has changed since the last time."""
        news = [(start, count) for start, count in self.windows.items() if self.told.get(start) != count]
        self.told.update(news)
        return [(start, {"window": {"start": f"{start}0:00Z"}, "count": count}) for start, count in news]


class Sessions:
    """Sessions of visits: an early result for each event, none that is final."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.open: dict[str, tuple[str, int, int]] = {}

    def add(self, value: bytes, news: Rows) -> None:
        """Take an event in, and add what has changed to the news."""
        event = loads(value)
        visit, time = event["visit_id"], event["event_time"]
        at = int(time[8:10]) * 1440 + int(time[11:13]) * 60 + int(time[14:16])
        start, last, pages = self.open.get(visit, (time, at, 0))
        if at - last > _GAP:
            start, pages = time, 0
        self.open[visit] = (start, at, pages + 1)
        row = {"visit_id": visit, "session_start": start, "session_end": time, "visited_pages": pages + 1}
        news.append((visit, {**row, "is_finished": False}))

    def tell(self) -> Rows:
        """Return nothing: all was told at once."""
        return []


def send(producer: Producer, topic: str, news: Rows) -> None:
    """Send results."""
    for key, row in news:
        while True:
            try:
                producer.produce(topic, dumps(row), key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


def main() -> None:
    """Process all that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["counts", "sessions"])
    for name in ("topic", "servers", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", type=int, required=True)
    asked = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": asked.servers,
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
    consumer.assign([TopicPartition(asked.topic, partition, 0) for partition in (0, 1)])
    producer = Producer({"bootstrap.servers": asked.servers, "linger.ms": 50, "queue.buffering.max.messages": 1000000})
    job = Counts() if asked.job == "counts" else Sessions()
    each = min(100_000, max(1, asked.events // 10))
    done, told = 0, 0
    while done < asked.events:
        news: Rows = []
        for message in consumer.consume(min(10_000, each), 1.0):
            value = message.value()
            if value is not None and message.error() is None:
                job.add(value, news)
                done += 1
        if done - told >= each:
            told = done
            news += job.tell()
            print(json.dumps({"events": done}), flush=True)
        send(producer, asked.output, news)
    send(producer, asked.output, job.tell())
    producer.flush()
    print(json.dumps({"events": done}), flush=True)
    print(json.dumps({"said": {"parser": PARSER}}), flush=True)


if __name__ == "__main__":
    main()
