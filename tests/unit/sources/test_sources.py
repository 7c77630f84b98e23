"""What a source refuses when it is made, what it reads, and which identity it has."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from respool import DeltaSource, FileSource, KafkaSource, PipelineError, RateSource, SettingsError, SparkSource
from respool.sources.protocol import Source, TableSource


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs either topics or a pattern"),
        ({"topics": "a", "pattern": "a.*"}, "needs either topics or a pattern"),
        ({"topics": "my orders"}, "topics has 'my orders', which is not a name of a Kafka topic"),
        ({"topics": ("a", "a")}, "has a topic twice"),
        ({"pattern": "a("}, "pattern is 'a.', which is not a regular expression"),
        ({"topics": "a", "on_data_loss": "skp"}, "on_data_loss is 'skp'; expected fail or skip.*Did you mean 'skip'"),
        ({"topics": "a", "starting": "soon"}, "starting is 'soon'; expected earliest, latest, a time"),
        ({"topics": "a", "starting": datetime(2025, 9, 4)}, "without a time zone"),  # noqa: DTZ001
        ({"topics": "a", "starting": {"b": {0: 1}}}, "topic 'b', which the source does not read"),
        ({"topics": "a", "starting": {"a": {0: -1}}}, "expected an offset by partition"),
        ({"topics": "a", "starting": {"a": 5}}, "expected an offset by partition"),
        ({"topics": "a", "starting": 5}, "starting is 5; expected"),
        ({"topics": "a", "options": {"startingOffsets": "latest"}}, "options of KafkaSource has 'startingOffsets'"),
        ({"topics": "a", "options": {"failOnDataLoss": "false"}}, "Set it by on_data_loss"),
        ({"topics": "a", "options": {"minPartitions": 4}}, "expected names and values as text"),
    ],
)
def test_a_mistake_in_a_kafka_source_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        KafkaSource(**fields)


def test_a_pattern_reads_whole_names_and_no_rejected_records() -> None:
    source = KafkaSource(pattern="orders-.*")
    assert source.matches("orders-eu")
    assert not source.matches("orders")
    assert not source.matches("more-orders-eu")
    assert not source.matches("orders-eu-rejected")
    assert (source.names, source.reads(), source.describe()) == ((), "orders-.*", "Kafka topics orders-.*")


def test_a_topic_is_given_as_text_or_with_others() -> None:
    assert KafkaSource("a").names == ("a",)
    assert KafkaSource(["a", "b"]).reads() == "a, b"
    assert KafkaSource(("a", "b")).identity() == KafkaSource(["b", "a"], starting="latest").identity()
    assert KafkaSource("a").identity() != KafkaSource(pattern="a").identity()
    assert KafkaSource("a") == KafkaSource(("a",))


def test_the_start_is_read_in_every_form() -> None:
    half_past = datetime(2025, 9, 4, 9, 30, tzinfo=timezone(timedelta(hours=2)))
    for starting in ("2025-09-04T07:30Z", "2025-09-04T09:30+02:00", half_past):
        assert KafkaSource("a", starting=starting).starting_text() == "2025-09-04T07:30:00+00:00"
    assert KafkaSource("a", starting={"a": {1: 5, 0: 120}}).starting_text() == "a-0 at 120; a-1 at 5"


def test_the_options_of_a_source_are_never_shown() -> None:
    secret = {"kafka.sasl.jaas.config": "password=hunter2"}
    for source in (KafkaSource("a", options=secret), SparkSource("jms", secret), DeltaSource("t", options=secret)):
        assert isinstance(source, Source)
        assert "hunter2" not in f"{source!r} {source.describe()} {source.identity().text()}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeltaSource(""), "table of a DeltaSource is empty"),
        (lambda: DeltaSource("t", starting=-1), "starting is -1; expected a version"),
        (lambda: DeltaSource("t", starting="monday"), "starting is 'monday'"),
        (lambda: DeltaSource("t", starting=True), "starting is True"),
        (lambda: DeltaSource("t", options={"readChangeFeed": "true"}), "Set it by change_feed"),
        (lambda: FileSource("", "a INT"), "path of a FileSource is empty"),
        (lambda: FileSource("p"), "schema of the FileSource p is empty"),
        (lambda: SparkSource(""), "format of a SparkSource is empty"),
        (lambda: SparkSource("kafka"), "Use KafkaSource"),
        (lambda: RateSource(0), "rows_per_batch is 0"),
    ],
)
def test_a_mistake_in_another_source_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()
    with pytest.raises(SettingsError):
        RateSource(5, advance="soon")


def test_tables_and_files_can_be_static_and_generated_rows_cannot() -> None:
    for source in (DeltaSource("t"), FileSource("p", "a INT"), SparkSource("jdbc")):
        assert isinstance(source, TableSource)
    assert not isinstance(RateSource(), TableSource)
    assert not isinstance(KafkaSource("a"), TableSource)
