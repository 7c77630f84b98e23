"""Quix Streams: its own windows and state, RocksDB with changelog topics, positions committed."""

import os
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

from quixstreams import Application, State  # type: ignore[import-not-found]
from quixstreams.models import TopicConfig  # type: ignore[import-not-found]

from benchmarks.peers.command import parse_arguments, report

_GAP = 10 * 60 * 1000
_GRACE = timedelta(days=7)  # a partition may be read far ahead of the other


def milliseconds(event: dict[str, Any], *_: object) -> int:
    """Return the time of an event."""
    return int(datetime.fromisoformat(event["event_time"]).replace(tzinfo=timezone.utc).timestamp() * 1000)


def text(at: int) -> str:
    """Return a time in ISO 8601."""
    return datetime.fromtimestamp(at / 1000, timezone.utc).isoformat()


def counts(events: Any) -> Any:
    """Return each window whenever it changes; a window belongs to a key, so all events get the same key."""
    windows = events.group_by(lambda event: "all", name="all").tumbling_window(600_000, _GRACE).count().current()
    return windows.apply(lambda row: {"window": {"start": text(row["start"])}, "count": row["value"]})


def sessions(events: Any) -> Any:
    """Return an early result for each event; the next session of a visit finishes the previous session."""

    def update(event: dict[str, Any], state: State) -> list[dict[str, Any]]:
        at = milliseconds(event)
        start, end, pages = state.get("session", default=[at, at, 0])
        rows = []
        if at - end > _GAP:
            rows.append(row(event, start, end, pages, True))
            start, pages = at, 0
        end, pages = max(at, end), pages + 1
        state.set("session", [start, end, pages])
        return [*rows, row(event, start, end, pages, False)]

    def row(event: dict[str, Any], start: int, end: int, pages: int, finished: bool) -> dict[str, Any]:
        times = {"visit_id": event["visit_id"], "session_start": text(start), "session_end": text(end)}
        return {**times, "visited_pages": pages, "is_finished": finished}

    return events.apply(update, stateful=True, expand=True)


def main() -> None:
    """Process all events of the topic."""
    arguments = parse_arguments()
    app = Application(
        broker_address=arguments.servers,
        consumer_group=arguments.output,  # the names of its internal topics contain this
        auto_offset_reset="earliest",
        state_dir=os.path.abspath("state"),
        loglevel="WARNING",
        topic_create_timeout=30,
        consumer_extra_config={"fetch.message.max.bytes": 10_000_000, "fetch.queue.backoff.ms": 10},
        producer_extra_config={"linger.ms": 50, "queue.buffering.max.messages": 1_000_000},
    )
    shape = TopicConfig(num_partitions=2, replication_factor=1)
    source = app.topic(arguments.topic, value_deserializer="json", timestamp_extractor=milliseconds, config=shape)
    target = app.topic(arguments.output, value_serializer="json", config=shape)
    each = min(50_000, max(1, arguments.events // 10))
    seen = Counter[str]()

    def read(*_: object) -> None:
        seen["events"] += 1
        if seen["events"] % each == 0:
            report(events=seen["events"])

    def count_result(*_: object) -> None:
        seen["results"] += 1
        if seen["results"] >= arguments.events:
            app.stop()

    events = app.dataframe(source).update(read)
    results = counts(events) if arguments.job == "counts" else sessions(events)
    results.to_topic(target)
    results.update(count_result)  # each event has a result
    app.run()
    report(events=seen["events"])


if __name__ == "__main__":
    main()
