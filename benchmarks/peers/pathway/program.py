"""Pathway: incremental tables, with inputs and state persisted to disk."""

import argparse
import json
import os
import threading
from time import monotonic, sleep
from typing import Any

import pathway as pw  # type: ignore[import-not-found]
from confluent_kafka import Consumer, TopicPartition

from benchmarks.peers.command import parse_arguments, report

_TIME = "%Y-%m-%dT%H:%M:%S.%f"
_QUIET = 1.0  # seconds without a result, after all events were read
_TEN = pw.Duration(minutes=10)


class Visit(pw.Schema):  # type: ignore[misc]
    """An event."""

    visit_id: str
    event_time: str


def counts(events: Any) -> Any:
    """Return each window whenever it changes."""
    windows = events.select(window=pw.apply_with_type(lambda text: text[:15], str, pw.this.event_time))
    windows = windows.groupby(pw.this.window).reduce(pw.this.window, count=pw.reducers.count())

    def row(window: str, count: int) -> bytes:
        return json.dumps({"window": {"start": f"{window}0:00"}, "count": count}).encode()

    return windows.select(key=pw.this.window, value=pw.apply_with_type(row, bytes, pw.this.window, pw.this.count))


def sessions(events: Any) -> Any:
    """Return each session whenever it changes."""
    timed = events.select(pw.this.visit_id, at=pw.this.event_time.dt.strptime(_TIME))
    windows = timed.windowby(pw.this.at, window=pw.temporal.session(max_gap=_TEN), instance=pw.this.visit_id)
    results = windows.reduce(
        visit=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        end=pw.this._pw_window_end,
        pages=pw.reducers.count(),
    )

    def row(visit: str, start: Any, end: Any, pages: int) -> bytes:
        times = {"visit_id": visit, "session_start": start.isoformat(), "session_end": end.isoformat()}
        return json.dumps({**times, "visited_pages": pages, "is_finished": False}).encode()

    value = pw.apply_with_type(row, bytes, pw.this.visit, pw.this.start, pw.this.end, pw.this.pages)
    return results.select(key=pw.this.visit, value=value)


def finish(arguments: argparse.Namespace) -> None:
    """End this process, which would wait for events forever, once its last result has been written."""
    consumer = Consumer({"bootstrap.servers": arguments.servers, "group.id": "ends"})
    parts = [TopicPartition(arguments.output, number) for number in (0, 1)]
    written, since = -1, monotonic()
    while monotonic() - since < _QUIET:
        now = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
        if now != written:
            written, since = now, monotonic()
        sleep(0.05)
    report(events=arguments.events, ago=monotonic() - since)
    os._exit(0)


def main() -> None:
    """Process all events of the topic."""
    arguments = parse_arguments()
    settings = {
        "bootstrap.servers": arguments.servers,
        "group.id": arguments.output,
        "auto.offset.reset": "earliest",
        "queued.min.messages": "1000000",
        "fetch.queue.backoff.ms": "10",
    }
    events = pw.io.kafka.read(
        settings, arguments.topic, schema=Visit, format="json", autocommit_duration_ms=500, name="visits"
    )
    results = counts(events) if arguments.job == "counts" else sessions(events)
    pw.io.kafka.write(results, settings, arguments.output, format="raw", key=pw.this.key, value=pw.this.value)

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            report(events=row["done"])
            if row["done"] >= arguments.events:
                threading.Thread(target=finish, args=(arguments,)).start()

    pw.io.subscribe(events.reduce(done=pw.reducers.count()), on_change)
    backend = pw.persistence.Backend.filesystem(os.path.abspath("kept"))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=2_000),
    )


if __name__ == "__main__":
    main()
