"""Bytewax: a dataflow of a single worker, with a recovery store that is written every epoch of 10 seconds."""

import tempfile
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import bytewax.operators.windowing as win  # type: ignore[import-not-found]
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.recovery import RecoveryConfig, init_db_dir  # type: ignore[import-not-found]
from bytewax.run import cli_main  # type: ignore[import-not-found]
from orjson import dumps, loads  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.command import parse_arguments, report

_FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
_TEN = timedelta(minutes=10)
Event = tuple[str, datetime]


class Reader:
    """Parses events, and reports how many it has read."""

    def __init__(self, events: int) -> None:
        """Report about ten times while so many events are read."""
        self.each = min(100_000, max(1, events // 10))
        self.seen = 0
        self.reported = 0

    def __call__(self, messages: list[Any]) -> Iterable[Event]:
        """Return the events of some messages."""
        events = []
        for message in messages:
            event = loads(message.value)
            at = datetime.fromisoformat(event["event_time"]).replace(tzinfo=timezone.utc)
            events.append((event["visit_id"], at))
        self.seen += len(events)
        if self.seen - self.reported >= self.each:
            self.reported = self.seen
            report(events=self.seen)
        return events


def counts(events: Any) -> Any:
    """Return the closed windows."""
    # Partitions are read at different speeds: with 10 minutes, events of the slower partition would be dropped as late.
    clock = win.EventClock(lambda event: event[1], wait_for_system_duration=timedelta(hours=1))
    windower = win.TumblingWindower(length=_TEN, align_to=_FIRST)
    windows = win.count_window("count", events, clock, windower, lambda event: "all")

    def result(keyed: tuple[str, tuple[int, int]]) -> Any:
        number, count = keyed[1]
        start = (_FIRST + number * _TEN).isoformat()
        return KafkaSinkMessage(start.encode(), dumps({"window": {"start": start}, "count": count}))

    return op.map("result", windows.down, result)


def sessions(events: Any) -> Any:
    """Return an early result for each event; the next session of a visit finishes the previous session."""

    def update(state: tuple[datetime, datetime, int] | None, at: datetime) -> Any:
        start, end, pages = state or (at, at, 0)
        rows = []
        if at - end > _TEN:
            rows.append((start, end, pages, True))
            start, pages = at, 0
        end, pages = max(at, end), pages + 1
        return (start, end, pages), [*rows, (start, end, pages, False)]

    def result(keyed: tuple[str, tuple[datetime, datetime, int, bool]]) -> Any:
        visit, (start, end, pages, finished) = keyed
        row = {"visit_id": visit, "session_start": start, "session_end": end, "visited_pages": pages}
        return KafkaSinkMessage(visit.encode(), dumps({**row, "is_finished": finished}))

    return op.map("result", op.stateful_flat_map("session", events, update), result)


def main() -> None:
    """Process all events of the topic."""
    arguments = parse_arguments()
    reader = Reader(arguments.events)
    flow = Dataflow("bench")
    options = {"queued.min.messages": "1000000", "fetch.queue.backoff.ms": "10", "fetch.message.max.bytes": "10000000"}
    source = KafkaSource([arguments.servers], [arguments.topic], tail=False, add_config=options, batch_size=1_000)
    events = op.flat_map_batch("parse", op.input("in", flow, source), reader)
    results = counts(events) if arguments.job == "counts" else sessions(events)
    sink = KafkaSink(
        [arguments.servers], arguments.output, {"linger.ms": "50", "queue.buffering.max.messages": "1000000"}
    )
    op.output("out", results, sink)
    with tempfile.TemporaryDirectory(dir=".") as store:
        init_db_dir(Path(store), 1)
        cli_main(flow, recovery_config=RecoveryConfig(Path(store)))
    report(events=reader.seen)


if __name__ == "__main__":
    main()
