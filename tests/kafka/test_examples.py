"""The examples run as they are, on a broker and a home of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool as package
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message
from respool.local import broker
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
PIPELINES = sorted(file for file in EXAMPLES.glob("*.py") if file.name != "time_travel.py")


class Example:
    """A broker and a home for an example."""

    def __init__(self, spark: "SparkSession", kafka: KafkaCluster, settings: Settings) -> None:
        self.spark, self.kafka, self.settings = spark, kafka, settings

    def send(self, topic: str, *values: dict[str, Any]) -> None:
        topics.ensure_topic(self.kafka, topic, partitions=1)
        producer.produce(self.kafka, topic, [Message(None, json.dumps(value).encode()) for value in values])

    def run(self, *names: str) -> None:
        pipelines = [package.find_pipeline(name) for name in names]
        package.run(*pipelines, available_now=True, settings=self.settings, spark=self.spark)

    def results(self, topic: str) -> list[Any]:
        return [json.loads(record.value or b"null") for record in consumer.read(self.kafka, topic)]

    def table(self, name: str) -> list[Any]:
        table = f"{self.settings.result_store}/{name}"
        return [row.asDict(recursive=True) for row in self.spark.read.format("delta").load(table).collect()]


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker for the topics of the examples, whose names are fixed."""
    with broker.running(Settings(home=tmp_path_factory.mktemp("examples"))) as started:
        yield KafkaCluster(started.address)


@pytest.fixture
def example(
    spark: "SparkSession",
    own_kafka: KafkaCluster,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Example:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in topics.topic_names(own_kafka):
        topics.delete(own_kafka, name)
    home = replace(settings, home=tmp_path, bootstrap_servers=own_kafka.bootstrap_servers)
    return Example(spark, own_kafka, home)


def order(number: int, time: str, amount: float = 1.0) -> dict[str, Any]:
    return {"order_id": f"o{number}", "amount": amount, "ordered_at": f"2025-09-04T{time}Z"}


def payment(number: int, time: str) -> dict[str, Any]:
    return {"paid_id": f"o{number}", "method": "card", "paid_at": f"2025-09-04T{time}Z"}


@pytest.mark.parametrize("file", PIPELINES, ids=lambda file: file.stem)
def test_an_example_is_short(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) < 60


def test_a_join_of_two_streams(example: Example) -> None:
    example.send("orders", order(1, "07:00"), order(2, "07:00"))
    example.send("payments", payment(1, "07:30"))
    example.run("join_streams:paid_orders")
    example.send("orders", order(9, "12:00"))
    example.send("payments", payment(9, "12:00"))
    example.run("join_streams:paid_orders")
    methods = {row["order_id"]: row.get("method") for row in example.results("paid-orders")}
    assert methods == {"o1": "card", "o2": None, "o9": "card"}


def test_deduplication(example: Example) -> None:
    example.send("orders", order(1, "07:00"), order(1, "07:00"), order(2, "07:01"))
    example.run("deduplicate:unique_orders")
    example.send("orders", order(1, "07:05", amount=9.0))
    example.run("deduplicate:unique_orders")
    assert sorted((row["order_id"], row["amount"]) for row in example.table("unique-orders")) == [
        ("o1", 1.0),
        ("o2", 1.0),
    ]


def test_sliding_windows(example: Example) -> None:
    closing = order(3, "20:00", 9.0)  # the windows before it are closed
    example.send("orders", order(1, "07:05", 2.0), order(2, "07:15", 3.0), closing)
    example.run("sliding_windows:revenue", "sliding_windows:orders_archive")
    starts = {row["window"]["start"].strftime("%H:%M"): row["revenue"] for row in example.table("revenue")}
    revenue = {start: value for start, value in starts.items() if start < "12:00"}
    assert len(revenue) == 7
    assert sorted(revenue.values()) == [2.0, 3.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    plan = package.plan_reprocess(
        package.find_pipeline("sliding_windows:revenue"),
        "2025-09-04T07:00Z",
        "2025-09-04T07:10Z",
        settings=example.settings,
    )
    report = package.audit(plan, spark=example.spark)
    assert (report.compared, report.different) == (6, 0)


def test_a_processor_with_a_state_of_its_own(example: Example) -> None:
    def reading(ok: bool, minute: int) -> dict[str, Any]:
        return {"sensor": "s1", "ok": ok, "at": f"2025-09-04T07:{minute:02}:00Z"}

    example.send("readings", reading(False, 0), reading(True, 1), reading(False, 2), reading(False, 3))
    example.run("stateful_processor:alerts")
    example.send("readings", reading(False, 4))
    example.run("stateful_processor:alerts")
    assert [row["at"] for row in example.results("alerts")] == ["2025-09-04T07:04:00.000Z"]


def test_an_existing_job(tmp_path: Path, respool: str) -> None:
    place = tmp_path / "sales"
    (place / "in").mkdir(parents=True)
    (place / "in" / "a.json").write_text('{"shop": "Lyon", "amount": 2.5}\n')
    environment = {**os.environ, "SALES": str(place), "RESPOOL_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        result = subprocess.run(
            command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    assert "Attachment(name='shop-totals'" in run(sys.executable, "existing_job.py")
    assert "shop-totals" in run(respool, "checkpoint", "show", str(place / "checkpoint"))


def test_time_travel_in_python(tmp_path: Path, respool: str) -> None:
    script = EXAMPLES / "time_travel.py"
    environment = {**os.environ, "RESPOOL_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    with broker.running(Settings(home=tmp_path / "home")):
        docstring = script.read_text(encoding="utf-8").split('"""')[1]
        generate = [line.split()[1:] for line in docstring.splitlines() if line.startswith("    respool generate")]
        assert len(generate) == 2
        for arguments in generate:
            run(respool, *arguments)
        output = run(sys.executable, str(script))
    rewind, _, rest = output.partition("verdict")
    assert "Next batch   3" in rewind
    assert "count 18 → 19" in rest
    assert "count 19 → 20" in rest
    assert "4 wrong, 0 missing, 0 " in rest
    assert "0 wrong, 0 missing, 0 " in rest.partition("published\n")[2]
