"""Faults of an archive are reported, and repaired until the table equals the topic, whoever is killed meanwhile."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from respool.archive import repair
from respool.archive.contents import read_contents
from respool.cli.app import app
from respool.errors import PipelineError
from respool.kafka import consumer, records, topics
from respool.kafka import producer as kafka_producer
from respool.kafka.cluster import KafkaCluster, admin_client, make_client
from respool.settings import Settings
from respool.sinks.protocol import WriteContext
from respool.spark import sql as archive
from respool.spark.session import session_for
from respool.visits.counts import visits_archive
from support.archive import PATIENCE, ArchiveStage, until
from support.processes import children_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def visit(number: int, hour: int = 7) -> bytes:
    return f'{{"visit_id": "v{number}", "event_time": "2025-09-04T{hour:02}:00:00", "page": "home"}}'.encode()


@dataclass(frozen=True)
class Stage(ArchiveStage):
    """The archive of one topic. The table is changed without Spark."""

    topic: str

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        kafka_producer.produce_together(self.kafka, self.topic, values, partition)

    def archive(self) -> None:
        """Archive the existing records of the topic, by the sink of the archiving query."""
        pipeline = visits_archive(topic=self.topic, table="visits_table")
        starts, ends = topics.start_offsets(self.kafka, self.topic), topics.end_offsets(self.kafka, self.topic)
        offsets = {number: (starts[number], end) for number, end in ends.items()}
        frame = records.read_offsets(
            session_for(self.spark, pipeline.timezone, pipeline.spark), self.kafka, self.topic, offsets
        )
        pipeline.sink.write(pipeline.transform(frame), WriteContext(pipeline.name, None, self.kafka, self.settings))

    def delete(self, where: str) -> None:
        DeltaTable(str(self.table)).delete(where)

    def double(self, where: str, **columns: Any) -> None:
        """Append records that the table has already, with some columns changed."""
        opened = DeltaTable(str(self.table))
        rows_there = pa.table(opened.scan(predicate=where))
        rows = pa.Table.from_pylist([{**row, **columns} for row in rows_there.to_pylist()], rows_there.schema)
        write_deltalake(opened, rows, mode="append")

    def places(self) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in self.rows()]

    def sent(self) -> list[tuple[int, int]]:
        return sorted((record.partition, record.offset) for record in consumer.read(self.kafka, self.topic))

    def version(self) -> int:
        return DeltaTable(str(self.table)).version()

    def verify(self, *flags: str) -> tuple[int, dict[str, Any]]:
        """Run the command, and return its exit code and its report."""
        done = CliRunner().invoke(app, [*self.command("verify", *flags), "--json"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, json.loads(done.stdout)

    def command(self, name: str, *flags: str) -> list[str]:
        servers = ["--bootstrap-servers", self.kafka.bootstrap_servers] if name == "verify" else []
        return ["archive", name, "--home", str(self.settings.home), *servers, *flags]


@pytest.fixture
def stage(
    spark: "SparkSession",
    kafka: KafkaCluster,
    settings: Settings,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stage:
    @contextmanager
    def same(_: Settings, **__: object) -> "Iterator[SparkSession]":
        yield spark

    # A second session in a process would be the same session, and its end would end both.
    monkeypatch.setattr("respool.spark.session.spark_session", same)
    return Stage(spark, kafka, replace(settings, home=tmp_path / "a home"), topic)


def broken(report: dict[str, Any]) -> dict[str, list[str]]:
    problems = {
        check["name"]: [it["what"] for it in check["found"] if it["status"] == "broken"] for check in report["checks"]
    }
    return {name: what for name, what in problems.items() if what}


def notes(report: dict[str, Any]) -> str:
    return " ".join(it["what"] for check in report["checks"] for it in check["found"] if it["status"] == "note")


def test_gaps_are_refilled_and_doubles_removed(stage: Stage) -> None:
    for partition in (0, 1):
        stage.send(partition, [*(visit(number, 7 + number % 2) for number in range(20)), b"not JSON", visit(21)])
    stage.archive()
    whole = stage.rows()
    code, report = stage.verify()
    assert (code, broken(report), report["rejected"]) == (0, {}, 2)

    stage.delete("partition = 0 AND offset < 2 OR partition = 1 AND offset IN (5, 6, 20)")
    stage.double("partition = 0 AND offset IN (9, 10, 20)")
    stage.double("partition = 0 AND offset = 10")
    stage.send(1, [visit(22)])  # not archived yet, which is no fault
    code, report = stage.verify()
    assert code == 3
    assert broken(report) == {
        "each record once": [f"{stage.topic}-0: 5 duplicate records at offsets 9 to 10, 20."],
        "no record missing": [f"{stage.topic}-1: 3 records missing, offsets 5 to 6, 20. Kafka has them."],
        "records before the first": [
            f"{stage.topic}-0: the archive starts at offset 2. Kafka has 2 records before it, offsets 0 to 1."
        ],
    }
    assert "The archive is 1 offset behind Kafka" in notes(report)
    before = stage.version()

    code, report = stage.verify("--fix")
    assert (code, report["ok"]) == (0, True)
    assert report["done"] == ["5 duplicate records removed", "5 records refilled from Kafka"]
    assert stage.version() == before + 2
    assert stage.rows() == whole
    assert stage.verify("--fix")[1]["done"] == []
    assert stage.version() == before + 2
    stage.archive()
    assert stage.places() == stage.sent()


def test_records_lost_in_kafka_are_reported_and_the_rest_refilled(stage: Stage) -> None:
    from confluent_kafka import TopicPartition

    stage.send(0, [visit(number) for number in range(20)])
    stage.archive()
    stage.delete("offset IN (0, 1, 4, 5, 6, 7, 12)")
    broker = admin_client(stage.kafka)
    for future in broker.delete_records([TopicPartition(stage.topic, 0, 6)]).values():
        future.result()
    code, report = stage.verify("--fix")
    assert code == 3
    assert report["done"] == ["3 records refilled from Kafka"]
    lost = f"{stage.topic}-0: 2 offsets missing, offsets 4 to 5. Kafka no longer has them."
    assert broken(report) == {"no record missing": [lost]}
    assert "the archive starts at offset 2. Kafka no longer has offsets 0 to 1." in notes(report)
    assert stage.places() == [(0, offset) for offset in range(20) if offset not in (0, 1, 4, 5)]


def test_markers_of_transactions_are_no_gaps(stage: Stage) -> None:
    from confluent_kafka import Producer

    producer = make_client(Producer, stage.kafka, {"transactional.id": stage.topic})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for value in range(3):
            producer.produce(stage.topic, visit(number * 10 + value), partition=0)
        producer.flush()
        (producer.abort_transaction if number == 1 else producer.commit_transaction)()
    stage.archive()
    code, report = stage.verify()
    assert code == 0
    assert "Kafka has no record at offsets 3, 7, 11" in notes(report)
    whole = stage.rows()
    assert len(whole) == 12  # Spark reads what was not committed, too, by default
    stage.delete("offset BETWEEN 5 AND 13")
    code, report = stage.verify()
    assert broken(report) == {
        "no record missing": [f"{stage.topic}-0: 7 records missing, offsets 5 to 6, 8 to 10, 12 to 13. Kafka has them."]
    }
    assert stage.verify("--fix")[0] == 0
    assert stage.rows() == whole


def test_a_recreated_topic_refills_nothing(stage: Stage) -> None:
    stage.send(0, [visit(number) for number in range(9)])
    stage.archive()
    stage.delete("offset = 4")
    topics.delete(stage.kafka, stage.topic)
    assert f"The topic {stage.topic} no longer exists" in notes(stage.verify()[1])
    topics.create(stage.kafka, stage.topic, partitions=2)
    stage.send(0, [visit(number + 100) for number in range(5)])
    before = stage.version()
    for problem in ("ends at offset 5, the archive at 8", "has another record at offset 8 than the archive"):
        code, report = stage.verify("--fix")
        assert (code, report["done"]) == (3, [])
        (what,) = broken(report)["compared with Kafka"]
        assert f"{problem}: it is not the topic that was archived." in what
        stage.send(0, [visit(number) for number in range(9)])
    assert stage.version() == before


def test_doubles_that_differ_stay_and_the_better_of_two_readings_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.send(0, [visit(number) for number in range(9)])
    stage.archive()
    whole = stage.rows()
    stage.double("offset = 3", event_time=None, event_date=None, event_hour=None, rejected="not JSON")
    stage.double("offset = 5", value=b"other")
    replace_doubles = repair._replace
    calls: list[int] = []

    def conflict_at_first(*words: Any) -> None:
        from pyspark.errors import PySparkException

        calls.append(1)
        if len(calls) == 1:
            raise PySparkException("[DELTA_CONCURRENT_DELETE_READ] …")
        replace_doubles(*words)

    monkeypatch.setattr(repair, "_replace", conflict_at_first)
    code, report = stage.verify("--fix")
    assert (code, len(calls)) == (3, 2)
    assert report["done"][0] == "1 duplicate record removed"
    assert report["done"][1].startswith("1 offset unchanged: the records there differ")
    assert [row for row in stage.rows() if row["value"] != b"other"] == whole


def test_a_running_query_that_is_beyond_the_gap_is_no_hindrance(stage: Stage) -> None:
    stage.send(0, [visit(number) for number in range(9)])
    with stage.running(stage.topic) as batches:
        until(lambda: len(batches) == 1)
        stage.delete("offset = 4")
        with pytest.raises(PipelineError, match="visits-archive is running and has not passed the missing records"):
            stage.verify("--fix")
        stage.send(0, [visit(9)])
        until(lambda: len(batches) == 2)
        assert stage.verify("--fix")[0] == 0
        stage.send(0, [visit(10)])
        until(lambda: len(batches) == 3)
    assert stage.places() == stage.sent()


def test_deleted_rows_that_are_still_in_their_file_do_not_count(stage: Stage) -> None:
    stage.send(0, [visit(number) for number in range(9)])
    stage.archive()
    table = archive.identifier(str(stage.table))
    stage.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    stage.spark.sql(f"DELETE FROM {table} WHERE offset IN (0, 4)")
    assert len(list(stage.table.rglob("deletion_vector*.bin"))) == 1
    code, report = stage.verify()
    assert (code, report["records"]) == (3, 7)
    assert broken(report)["no record missing"] == [f"{stage.topic}-0: 1 record missing, offset 4. Kafka has it."]


def test_whoever_kills_a_fix_runs_it_again(stage: Stage, respool: str) -> None:
    for partition in (0, 1):
        stage.send(partition, [visit(number) for number in range(20)])
    stage.archive()
    whole = stage.rows()
    stage.delete("offset BETWEEN 5 AND 8")
    stage.double("offset > 15")
    kill_when_it_writes(stage, [respool, *stage.command("verify", "--fix")])
    assert set(stage.places()) <= set(stage.sent())
    assert stage.verify("--fix")[0] == 0
    assert stage.rows() == whole


def test_whoever_kills_an_optimize_runs_it_again(stage: Stage, respool: str) -> None:
    stage.send(0, [visit(number, 7 + number % 2) for number in range(20)])
    stage.archive()
    for part in range(3):  # as many small commits leave it
        stage.double(f"offset % 4 = {part} AND partition = 0", partition=part + 1)
    whole = stage.rows()
    kill_when_it_writes(stage, [respool, *stage.command("optimize")])
    assert stage.rows() == whole
    done = CliRunner().invoke(app, stage.command("optimize"))
    assert done.exit_code == 0, done.output
    assert stage.rows() == whole
    assert read_contents(str(stage.table)).files == 2


def kill_when_it_writes(stage: Stage, command: list[str]) -> None:
    """Start a command, and kill it and its JVM as soon as it begins to write a data file."""

    def files() -> set[Path]:
        return set(stage.table.rglob("*.parquet"))

    before = files()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=stage.settings.home, start_new_session=True)
    try:
        until(lambda: files() != before or process.poll() is not None, pause=0.002)
        assert process.poll() is None
    finally:
        for pid in (*children_of(process.pid), process.pid):  # its JVM first, which has a session of its own
            os.kill(pid, signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
