"""Pathway: incremental tables, its inputs and state kept on disk."""

import argparse
import json
import os
import threading
from time import monotonic, sleep
from typing import Any

import pathway as pw  # type: ignore[import-not-found]
from confluent_kafka import Consumer, TopicPartition

_TIME = "%Y-%m-%dT%H:%M:%S.%f"
_QUIET = 1.0  # seconds without a result, after all events were taken in
_TEN = pw.Duration(minutes=10)


class Visit(pw.Schema):  # type: ignore[misc]
    """An event."""

    visit_id: str
    event_time: str


def counts(events: Any) -> Any:
    """Return each window whenever it changes."""
    found = events.select(window=pw.apply_with_type(lambda text: text[:15], str, pw.this.event_time))
    found = found.groupby(pw.this.window).reduce(pw.this.window, count=pw.reducers.count())

    def row(window: str, count: int) -> bytes:
        return json.dumps({"window": {"start": f"{window}0:00"}, "count": count}).encode()

    return found.select(key=pw.this.window, value=pw.apply_with_type(row, bytes, pw.this.window, pw.this.count))


def sessions(events: Any) -> Any:
    """Return each session whenever it changes."""
    timed = events.select(pw.this.visit_id, at=pw.this.event_time.dt.strptime(_TIME))
    windows = timed.windowby(pw.this.at, window=pw.temporal.session(max_gap=_TEN), instance=pw.this.visit_id)
    found = windows.reduce(
        visit=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        end=pw.this._pw_window_end,
        pages=pw.reducers.count(),
    )

    def row(visit: str, start: Any, end: Any, pages: int) -> bytes:
        told = {"visit_id": visit, "session_start": start.isoformat(), "session_end": end.isoformat()}
        return json.dumps({**told, "visited_pages": pages, "is_finished": False}).encode()

    value = pw.apply_with_type(row, bytes, pw.this.visit, pw.this.start, pw.this.end, pw.this.pages)
    return found.select(key=pw.this.visit, value=value)


def finish(asked: argparse.Namespace) -> None:
    """End this process, which would wait for events for ever, once its last result has been written."""
    consumer = Consumer({"bootstrap.servers": asked.servers, "group.id": "ends"})
    parts = [TopicPartition(asked.output, number) for number in (0, 1)]
    written, since = -1, monotonic()
    while monotonic() - since < _QUIET:
        now = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
        if now != written:
            written, since = now, monotonic()
        sleep(0.05)
    print(json.dumps({"events": asked.events, "ago": monotonic() - since}), flush=True)
    os._exit(0)


def main() -> None:
    """Process all that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["counts", "sessions"])
    for name in ("topic", "servers", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", type=int, required=True)
    asked = parser.parse_args()
    settings = {
        "bootstrap.servers": asked.servers,
        "group.id": asked.output,
        "auto.offset.reset": "earliest",
        "queued.min.messages": "1000000",
        "fetch.queue.backoff.ms": "10",
    }
    events = pw.io.kafka.read(
        settings, asked.topic, schema=Visit, format="json", autocommit_duration_ms=500, name="visits"
    )
    results = counts(events) if asked.job == "counts" else sessions(events)
    pw.io.kafka.write(results, settings, asked.output, format="raw", key=pw.this.key, value=pw.this.value)

    def tell(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            print(json.dumps({"events": row["done"]}), flush=True)
            if row["done"] >= asked.events:
                threading.Thread(target=finish, args=(asked,)).start()

    pw.io.subscribe(events.reduce(done=pw.reducers.count()), tell)
    kept = pw.persistence.Backend.filesystem(os.path.abspath("kept"))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(kept, snapshot_interval_ms=2_000),
    )


if __name__ == "__main__":
    main()
