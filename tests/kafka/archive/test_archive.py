"""Every record is in the archive, byte for byte and once, whatever happens to checkpoints and to the table."""

import shutil
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.archive import table as archive
from respool.errors import PipelineError, QueryError
from respool.kafka import consumer, topics
from respool.kafka import producer as kafka_producer
from respool.kafka.cluster import KafkaCluster, make_client
from respool.kafka.producer import Message
from respool.settings import Settings
from support.archive import ArchiveStage, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[str, int, int]


def visit(number: int, moment: str = "2025-09-04T07:00:00") -> Message:
    return Message(None, f'{{"visit_id": "v{number}", "event_time": "{moment}", "page": "home"}}'.encode())


BAD = [
    Message(b"a", b"not json"),
    Message(None, None),
    Message(b"\xff", b"\xff\xfe\x00"),
    Message(b"c", b'{"visit_id": "v1", "event_time": "soon"}'),
]


class Stage(ArchiveStage):
    """What is sent, and what is archived in the end."""

    def send(self, topic: str, *messages: Message) -> None:
        kafka_producer.produce(self.kafka, topic, messages)

    def send_to(self, topic: str, partition: int, count: int) -> None:
        kafka_producer.produce_together(
            self.kafka, topic, [visit(number).value or b"" for number in range(count)], partition
        )

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def commits(self) -> list[int]:
        return sorted(int(commit.stem) for commit in (self.table / "_delta_log").glob("*.json"))

    def archived(self) -> "DataFrame":
        return self.spark.read.format("delta").load(str(self.table))

    def places(self) -> list[Place]:
        return [(row["topic"], row["partition"], row["offset"]) for row in self.rows()]

    def sent(self, *names: str) -> list[Place]:
        return sorted(
            (record.topic, record.partition, record.offset)
            for name in names
            for record in consumer.read(self.kafka, name)
        )


@pytest.fixture
def stage(spark: "SparkSession", kafka: KafkaCluster, settings: Settings, tmp_path: Path) -> Stage:
    return Stage(spark, kafka, replace(settings, home=tmp_path / "a home"))


def test_every_column_is_archived_unchanged(stage: Stage, topic: str) -> None:
    from confluent_kafka import Producer

    stage.send(topic, visit(1), visit(2, "2025-09-04T23:59:59.999999-05:30"), *BAD)
    stage.send(
        topic, visit(3, "0001-01-01T00:00:00"), visit(4, "1969-12-31T23:00:00Z"), visit(5, "9998-12-31T23:59:59")
    )
    producer = make_client(Producer, stage.kafka, {})
    producer.produce(topic, b"", b"", headers=[("h", b"\x00\xff"), ("h", None), ("empty", b"")])
    producer.flush()

    batches = stage.run(topic)
    assert sum(batch.rejected for batch in batches) == len(BAD) + 1
    assert stage.archived().columns == list(archive.COLUMNS)
    # As Spark reads them: times aware, and of any year.
    rows = {(row["partition"], row["offset"]): row for row in stage.archived().toArrow().to_pylist()}
    sent = list(consumer.read(stage.kafka, topic))
    assert len(rows) == len(sent) == 10
    for record in sent:
        row = rows[record.partition, record.offset]
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        assert (row["topic"], row["timestamp_type"], headers) == (topic, 0, record.headers)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["timestamp"] == record.timestamp
    assert {(row["event_date"], row["event_hour"]) for row in rows.values()} == {
        (date(2025, 9, 4), 7),
        (date(2025, 9, 5), 5),
        (date(1, 1, 1), 0),
        (date(1969, 12, 31), 23),
        (date(9998, 12, 31), 23),
        (None, None),
    }
    lost = {row["value"]: row for row in rows.values() if row["event_date"] is None}
    assert {row["event_time"] for row in lost.values()} == {None}
    assert (lost[None]["rejected"], lost[b"not json"]["rejected"]) == ("no value", "not JSON")
    assert sum(row["rejected"] is not None for row in rows.values()) == len(lost) == len(BAD) + 1


def test_times_are_read_in_the_zone_of_the_pipeline_and_filed_in_utc(stage: Stage, topic: str) -> None:
    stage.send(
        topic, visit(1, "2025-09-04T01:30:00"), visit(2, "2025-10-26T02:30:00"), visit(3, "2025-09-04T01:30:00Z")
    )
    stage.run(topic, timezone="Europe/Paris")
    filed = sorted((row["event_time"], row["event_date"], row["event_hour"]) for row in stage.rows())
    assert filed == [
        (datetime(2025, 9, 3, 23, 30, tzinfo=timezone.utc), date(2025, 9, 3), 23),
        (datetime(2025, 9, 4, 1, 30, tzinfo=timezone.utc), date(2025, 9, 4), 1),
        (datetime(2025, 10, 26, 0, 30, tzinfo=timezone.utc), date(2025, 10, 26), 0),
    ]


def test_commits_are_numbered_as_in_the_walk_through(stage: Stage, topic: str) -> None:
    clicks = [(7, 0), (7, 1), (7, 2), (7, 33), (7, 34), (7, 35), (8, 6), (8, 7), (8, 8), (7, 3), (7, 4)]
    messages = [visit(1, f"2025-09-04T{hour:02}:{minute:02}:00.000000") for hour, minute in clicks]
    with stage.running(topic) as batches:
        until(lambda: bool(batches))  # Spark runs a batch 0 over an empty topic: it makes the table
        assert stage.commits() == [0]
        for number, batch in enumerate((messages[:3], messages[3:6], messages[6:9], messages[9:]), start=1):
            kafka_producer.produce_together(stage.kafka, topic, [record.value or b"" for record in batch])
            until(lambda number=number: len(batches) > number)  # type: ignore[misc]
            assert stage.commits() == list(range(number + 1))
    assert stage.places() == stage.sent(topic)
    # The same for records that were there first, and nothing for a run that finds nothing new.
    stage.run(topic)
    assert stage.commits() == [0, 1, 2, 3, 4]


def test_a_lost_checkpoint_doubles_nothing(stage: Stage, topic: str) -> None:
    stage.send(topic, *(visit(number) for number in range(20)), BAD[0])
    stage.run(topic)
    assert stage.commits() == [0, 1]
    stage.lose_checkpoint()
    batches = stage.run(topic, max_offsets_per_trigger=10)
    assert len(batches) > 1
    assert sum(batch.rejected for batch in batches) == 1
    assert stage.commits() == [0, 1]
    assert stage.places() == stage.sent(topic)

    stage.lose_checkpoint()
    stage.send(topic, *(visit(number) for number in range(20, 30)))
    stage.run(topic)
    assert stage.commits() == [0, 1, 2]
    assert stage.places() == stage.sent(topic)


def test_a_crash_between_the_two_commits_doubles_nothing(stage: Stage, topic: str) -> None:
    stage.send(topic, *(visit(number) for number in range(10)))
    stage.run(topic)
    stage.send(topic, *(visit(number) for number in range(10)))
    stage.run(topic)
    (stage.checkpoint / "commits" / "1").unlink()
    (stage.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    stage.send(topic, *(visit(number) for number in range(10)))
    batches = stage.run(topic)
    assert [batch.batch for batch in batches] == [1, 2]
    assert stage.commits() == [0, 1, 2, 3]
    assert stage.places() == stage.sent(topic)


def test_optimize_leaves_a_file_an_hour_and_a_rerun_doubles_nothing(stage: Stage, topic: str) -> None:
    hours = ("2025-09-04T07:00:00", "2025-09-04T08:00:00", "nonsense")
    # Keys spread them over both partitions; without, all may go to one.
    visits = (visit(number, hours[number % 3])._replace(key=b"%d" % number) for number in range(24))
    stage.send(topic, *visits)
    stage.run(topic, max_offsets_per_trigger=12)
    before, after = archive.optimize(stage.spark, str(stage.table))
    assert before.files > 6
    assert after.files == 3
    assert archive.optimize(stage.spark, str(stage.table)) == (after, after)
    stage.lose_checkpoint()
    stage.send(topic, visit(24))
    stage.run(topic)
    assert stage.places() == stage.sent(topic)


def test_deleted_records_are_archived_again_and_nothing_else(stage: Stage, topic: str) -> None:
    stage.send(topic, *(visit(number) for number in range(20)))
    stage.run(topic)
    archive.optimize(stage.spark, str(stage.table))
    stage.spark.sql(f"DELETE FROM delta.`{stage.table}` WHERE offset BETWEEN 2 AND 4")
    assert len(stage.places()) < 20
    stage.lose_checkpoint()
    stage.send(topic, visit(20))
    stage.run(topic)
    assert stage.places() == stage.sent(topic)


def test_a_running_query_sees_what_others_do_to_the_table(stage: Stage, topic: str) -> None:
    stage.send_to(topic, 0, 3)
    with stage.running(topic) as batches:
        until(lambda: len(batches) == 1)
        archive.optimize(stage.spark, str(stage.table))
        # Another query archives some of the next records of the other partition, in a file that mixes partitions.
        other = (
            stage.archived().where("offset < 2").selectExpr("* EXCEPT (partition)", "explode(array(1, 7)) AS partition")
        )
        other.coalesce(1).write.format("delta").mode("append").save(str(stage.table))
        stage.send_to(topic, 1, 4)
        until(lambda: len(batches) == 2)
        stage.send_to(topic, 0, 1)
        until(lambda: len(batches) == 3)
    assert [place for place in stage.places() if place[1] != 7] == stage.sent(topic)


def test_two_topics_share_a_table(stage: Stage, topic: str, kafka: KafkaCluster) -> None:
    # Their names differ only beyond what Delta's statistics keep.
    first, second = (f"{topic}-{'x' * 32}-{number}" for number in (1, 2))
    for name, count in ((first, 30), (second, 5)):
        topics.create(kafka, name, partitions=2)
        stage.send(name, *(visit(number) for number in range(count)))
    stage.run(first)
    stage.lose_checkpoint()
    stage.run(second)
    assert stage.places() == stage.sent(first, second)
    for name in (first, second):
        stage.lose_checkpoint()
        stage.send(name, visit(0), visit(1), visit(2))
        stage.run(name)
    assert stage.places() == stage.sent(first, second)


def test_a_read_of_one_hour_touches_only_its_files(stage: Stage, topic: str) -> None:
    from pyspark.sql import functions as F

    stage.send(topic, *(visit(number, f"2025-09-04T{number % 10:02}:30:00") for number in range(100)), *BAD)
    stage.run(topic)
    hour = stage.archived().where("event_date = '2025-09-04' AND event_hour = 7")
    files = {row[0] for row in hour.select(F.input_file_name()).distinct().collect()}
    assert {"event_date=2025-09-04/event_hour=7" in file for file in files} == {True}
    assert hour.count() == 10
    # What Spark plans to read, and not only what it kept of it.
    assert len(hour.inputFiles()) == len(files) < len(stage.archived().inputFiles())
    assert stage.archived().where("event_date IS NULL").count() == len(BAD)


def test_a_table_of_something_else_is_refused(stage: Stage, topic: str) -> None:
    stage.send(topic, visit(1))
    stage.spark.range(3).write.format("delta").save(str(stage.table))
    with pytest.raises(QueryError, match="is not an archive: it has no column topic"):
        stage.run(topic)
    with pytest.raises(PipelineError, match="There is no archive at"):
        archive.optimize(stage.spark, str(stage.table.parent / "nowhere"))


def test_a_table_is_found_under_the_home_or_where_it_says(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert archive.locate("visits_table", settings) == f"{tmp_path}/archive/visits_table"
    assert archive.locate("/elsewhere/t", settings) == "/elsewhere/t"
    assert archive.locate("s3a://bucket/t", settings) == "s3://bucket/t"
    with pytest.raises(PipelineError, match="respool run visits-archive"):
        archive.require(archive.locate("visits_table", settings))
