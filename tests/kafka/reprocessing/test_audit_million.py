"""A million visits, 3 % of them later than the watermark: the audit finds every wrong window, and only those."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from respool.kafka import producer
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.settings import Settings
from respool.visits.generator import VisitsPlan, generate
from support.stage import stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1_000_000
LATE = 0.03
WINDOW = timedelta(minutes=10)
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
HELD = timedelta(hours=6)  # of event time; longer than two batches
HOURS = (0, 3, 6, 9, 12)  # of the 21 that there are: the windows of the others stay right
END = START + timedelta(days=4)


def event_time(message: Message) -> datetime:
    _, _, rest = (message.value or b"").partition(b'"event_time": "')
    return moment(rest.partition(b'"')[0])


@cache
def moment(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode()).replace(tzinfo=timezone.utc)


def some_late(messages: Iterator[Message]) -> Iterator[Message]:
    """Hold some visits of some hours back."""
    chance = random.Random(3)
    held: list[tuple[datetime, Message]] = []
    for message in messages:
        time = event_time(message)
        if time.hour in HOURS and chance.random() < LATE * 21 / len(HOURS):
            held.append((time + HELD, message))
        else:
            yield message
        while held and held[0][0] < time:
            yield held.pop(0)[1]
    yield from (message for _, message in held)


@cache
def window_of(time: datetime) -> datetime:
    return time - (time - START) % WINDOW


def test_every_wrong_window_is_detected_and_corrected(
    spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path, topic: str
) -> None:
    here = stage(spark, kafka, settings, tmp_path, "visit-counts", topic)
    plan = VisitsPlan(count=COUNT, visits=4_000, pages_per_visit=6, start=START)
    truth: Counter[datetime] = Counter()

    def sent() -> Iterator[Message]:
        for message in some_late(generate(plan)):
            truth[window_of(event_time(message))] += 1
            yield message

    producer.produce(kafka, topic, sent())
    last = json.dumps({"visit_id": "last", "event_time": END.isoformat(), "page": "home"}).encode()
    producer.produce_together(kafka, topic, [last] * 3)
    here.live(max_offsets_per_trigger=100_000)
    here.send(last)
    here.live()

    def published() -> dict[datetime, int]:
        rows = here.upserted().values()
        counts = {datetime.fromisoformat(row["window"]["start"].replace("Z", "+00:00")): row["count"] for row in rows}
        return {start: count for start, count in counts.items() if start < END - WINDOW}

    before = published()
    wrong = {start for start, count in truth.items() if before.get(start) != count}
    dropped = truth.total() - sum(before.values())
    assert 0.025 * COUNT < dropped < 0.035 * COUNT
    assert 25 < len(wrong) < len(truth) / 3
    span = (START.isoformat(), (END - timedelta(days=1)).isoformat())
    report = here.audit(*span, fix="million")
    assert {difference.start for difference in report.differences} == wrong
    assert report.counts.total() == len(truth)
    assert report.late == dropped
    assert report.fixed == len(wrong)
    assert published() == truth
