"""Mistakes in the definition of a pipeline are refused when it is made, and the message names the field."""

import re
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ConsoleSink,
    DeltaSource,
    FileSource,
    Input,
    JsonDecoder,
    KafkaSink,
    KafkaSource,
    Pipeline,
    PipelineError,
    RateSource,
    Windows,
    archive_pipeline,
)
from respool.pipeline.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = JsonDecoder("shop STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP", event_time="ordered_at")
PAYMENT = JsonDecoder("shop STRING NOT NULL, paid_at TIMESTAMP", event_time="paid_at")


def join(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
    return orders.join(payments, "shop")


INPUTS = {
    "orders": Input(KafkaSource("orders"), ORDER, watermark="10 minutes"),
    "payments": Input(KafkaSource("payments", starting="latest"), PAYMENT, watermark="1 hour"),
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "neither topic nor source nor inputs; expected one of"),
        ({"topic": "a", "source": RateSource()}, "it has topic and source"),
        ({"source": RateSource(), "inputs": INPUTS}, "it has source and inputs"),
        ({"topic": "a", "sink": None}, "has no sink"),
        ({"topic": "a", "transform": "count"}, "transform of the pipeline mine is not a function"),
        ({"topic": "a", "trigger": "soon"}, "trigger: "),
        ({"topic": "a", "decode": ORDER, "watermark": "soon"}, "watermark: "),
        ({"topic": "a", "watermark": "1m"}, "watermark is 1m, but the input has no event time"),
        ({"topic": "a", "event_time": "when"}, "event_time is 'when', which is not a column of the Kafka topic a"),
        ({"topic": "a", "event_time": "value", "watermark": "1m"}, "'value', which is declared as binary"),
        ({"topic": "a", "decode": ORDER, "event_time": "ordered_at"}, "but the decoder determines the event time"),
        ({"source": RateSource(), "event_time": "value"}, "declared as bigint; expected TIMESTAMP"),
        ({"source": RateSource(), "decode": ORDER}, "decode is for records of Kafka"),
        ({"source": "orders"}, "source is a str, which is not a source"),
        ({"topic": "a", "max_offsets_per_trigger": 0}, "max_offsets_per_trigger of the pipeline mine is 0"),
        ({"topic": "a", "spark": {"spark.sql.shuffle.partitions": 4}}, "expected names and values as text"),
        ({"topic": "a", "output_mode": "updte"}, "Did you mean 'update'"),
        (
            {"topic": "a", "results": Windows("1h"), "output_mode": "update"},
            "has no event time: its results can",
        ),
        ({"topic": "a", "decode": ORDER, "sink": KafkaSink("t", key=("shp",))}, "has the column 'shp', which its res"),
        ({"inputs": INPUTS, "transform": lambda orders: orders}, "Give the transform a parameter of the name of each"),
        ({"inputs": INPUTS, "transform": join, "decode": ORDER}, "decode is given for a pipeline with inputs"),
        ({"inputs": INPUTS, "transform": join, "watermark": "1m"}, "watermark is given for a pipeline with inputs"),
        ({"inputs": INPUTS, "transform": join, "stateless": True}, "is stateless and has several inputs"),
        ({"inputs": INPUTS, "transform": join, "idle_inputs": "igno"}, "Did you mean 'ignore'"),
        ({"topic": "a", "decode": ORDER, "watermark": "1m", "idle_inputs": "ignore"}, "needs at least two inputs"),
        ({"inputs": {"my orders": INPUTS["orders"]}}, "has the name 'my orders'; expected the name of a parameter"),
        ({"inputs": {"orders": KafkaSource("a")}}, r"inputs\['orders'\] is a KafkaSource; expected an Input"),
        ({"inputs": {"shops": Input(DeltaSource("shops"), static=True)}}, "all inputs are static"),
    ],
)
def test_a_mistake_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        Pipeline("mine", **{"sink": ConsoleSink(), **fields})
    assert re.search("(pipeline|sink of) mine", str(caught.value))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": RateSource(), "static": True}, "can only be read as a stream"),
        ({"source": DeltaSource("t"), "static": True, "watermark": "1m"}, "watermark has no effect on a static input"),
        ({"source": FileSource("p", "a INT, at TIMESTAMP"), "event_time": "att"}, "not a column of the parquet files"),
        ({"source": FileSource("p", "a INTT"), "event_time": "a"}, "'INTT' at character 3 is not a type"),
        ({"source": KafkaSource("a"), "decode": JsonDecoder("at TIMESTAM", "at")}, "schema 'at TIMESTAM' is not read"),
    ],
)
def test_a_mistake_in_an_input_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Input(**fields)


def test_a_column_of_a_table_is_not_judged_without_spark() -> None:
    assert Input(DeltaSource("t"), watermark="1m", event_time="at").time_column == "at"


def test_a_pipeline_without_a_transform_moves_its_events() -> None:
    moved = Pipeline("mine", "a", decode=ORDER, sink=KafkaSink("t", key=("shop",)))
    assert moved.compute({"events": "the events"}) == "the events"  # type: ignore[dict-item,comparison-overlap]


def test_what_a_pipeline_reads() -> None:
    both = Pipeline("mine", inputs=INPUTS, transform=join, sink=ConsoleSink())
    assert (both.reads, both.topics) == ("orders, payments", ["orders", "payments"])
    assert repr(both) == "Pipeline('mine', reads='orders, payments')"
    assert both.describe()["reads"] == "Kafka topic orders, Kafka topic payments"
    single = Pipeline("mine", "orders", sink=ConsoleSink())
    assert (single.reads, single.topics, list(single.streams)) == ("orders", ["orders"], ["events"])
    rate = Pipeline("mine", source=RateSource(), sink=ConsoleSink())
    assert (rate.reads, rate.topics) == ("10 generated rows a batch", [])


def test_the_fingerprint_has_the_settings_of_each_input_and_no_secret() -> None:
    secret = KafkaSource("orders", options={"kafka.sasl.jaas.config": "password=hunter2", "minPartitions": "4"})
    inputs = {**INPUTS, "orders": Input(secret, ORDER, watermark="600 seconds")}
    settings = fingerprint_of(Pipeline("mine", inputs=inputs, transform=join, sink=ConsoleSink())).settings
    assert settings["orders: topic"] == "orders"
    assert settings["orders: watermark"] == "10 minutes"
    assert settings["orders: option minPartitions"] == "4"
    assert settings["payments: starting"] == "latest"
    assert settings["payments: event time"] == "paid_at"
    assert "hunter2" not in str(settings)
    plain = fingerprint_of(Pipeline("mine", "orders", decode=ORDER, sink=ConsoleSink())).settings
    assert plain["topic"] == "orders"
    assert not {"starting", "on data loss", "static", "source"} & set(plain)


def test_each_kafka_input_has_an_archive_of_its_own() -> None:
    both = Pipeline("mine", inputs=INPUTS, transform=join, sink=ConsoleSink())
    archives = [archive_pipeline(both, name) for name in INPUTS]
    assert [archive.name for archive in archives] == ["mine-orders-archive", "mine-payments-archive"]
    assert [archive.archive for archive in archives] == ["orders_table", "payments_table"]
    with pytest.raises(PipelineError, match="orders, payments can be archived"):
        archive_pipeline(both)
    with pytest.raises(PipelineError, match="none of its inputs has a decoder"):
        archive_pipeline(Pipeline("mine", source=RateSource(), sink=ConsoleSink()))
    several = Pipeline("mine", source=KafkaSource(("a", "b")), decode=ORDER, sink=ConsoleSink())
    assert archive_pipeline(several).archive == "mine-archive_table"
