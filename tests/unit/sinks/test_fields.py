"""What can be refused when a sink or a pipeline is made, with the name of the field. No JVM."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from respool.errors import PipelineError
from respool.identity import parse_identity
from respool.pipeline.definition import Pipeline
from respool.settings import Settings
from respool.sinks import protocol
from respool.sinks.avro import AvroFormat
from respool.sinks.console import ConsoleSink, FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.files import FileSink
from respool.sinks.kafka import KafkaSink
from respool.sinks.postgres.place import PostgresPlace
from respool.sinks.postgres.sink import JdbcSink
from respool.sinks.protocol import Sink, check_columns
from respool.sinks.several import SeveralSinks

DB = "postgresql://etl@db:5432/shop"
AVRO = '{"type": "record", "name": "T", "fields": [{"name": "shop", "type": "string"}]}'


def _any(value: Any) -> Any:
    return value


def pipeline(**fields: Any) -> Pipeline:
    return Pipeline("orders", "orders", transform=lambda events: events, **fields)


@pytest.mark.parametrize(
    "sink",
    [
        KafkaSink("t", key="shop"),
        DeltaSink("t", key="shop"),
        JdbcSink(DB, "t", key="shop"),
        DeltaSink("t", key=["shop"]),
    ],
)
def test_a_key_of_one_column_may_be_text(sink: KafkaSink | DeltaSink | JdbcSink) -> None:
    assert sink.key == ("shop",)
    assert replace(sink, withdrawn="gone").key == ("shop",)
    assert hash(sink) == hash(replace(sink, key=("shop",)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KafkaSink("t", key=("a", "a")), "KafkaSink.key has the column 'a' twice"),
        (lambda: KafkaSink("t", key=_any(5)), "KafkaSink.key is 5; expected names of columns"),
        (lambda: KafkaSink("t", key=("a", "")), "KafkaSink.key is"),
        (lambda: KafkaSink("t", key="a", withdrawn="a"), "KafkaSink.key and KafkaSink.withdrawn both name"),
        (lambda: KafkaSink("t", headers="a", partition="a"), "KafkaSink.headers and KafkaSink.partition both"),
        (lambda: KafkaSink("t", headers="respool-batch"), "KafkaSink.headers has 'respool-batch'"),
        (lambda: KafkaSink("t", key="shp", format=AvroFormat(AVRO)), "KafkaSink.key .* Did you mean 'shop'"),
        (lambda: AvroFormat("{"), "AvroFormat.schema cannot be read"),
        (lambda: AvroFormat('{"type": "string"}'), "AvroFormat.schema is not the schema of a record"),
        (lambda: AvroFormat("missing.avsc"), "AvroFormat.schema cannot be read: .*missing.avsc"),
        (lambda: AvroFormat(AVRO, "http://me:secret@host"), "AvroFormat.registry has a password"),
        (lambda: DeltaSink("t"), "The results in t need a key"),
        (lambda: DeltaSink("t", mode=_any("apend")), "DeltaSink.mode is 'apend'. Did you mean 'append'"),
        (lambda: DeltaSink("t", mode="append", withdrawn="gone"), "DeltaSink.withdrawn .* mode 'append'"),
        (lambda: DeltaSink("t", mode="overwrite"), "DeltaSink.overwrite_by .* Name it"),
        (lambda: DeltaSink("t", key="a", overwrite_by="w"), "DeltaSink.overwrite_by .* Leave it out"),
        (lambda: DeltaSink("t", key="a", partition_by="p", cluster_by="c"), "DeltaSink.partition_by and"),
        (lambda: FileSink("f", format=_any("csv")), "FileSink.format is 'csv'. .*Expected parquet or json"),
        (lambda: JdbcSink(DB, "t", key=()), "JdbcSink.key is empty"),
        (lambda: JdbcSink("mysql://db/shop", "t", key="a"), "JdbcSink.url is 'mysql://db/shop'"),
        (lambda: JdbcSink("postgresql://db", "t", key="a"), "JdbcSink.url is"),
        (lambda: JdbcSink(DB, "a.b.c", key="a"), "JdbcSink.table is 'a.b.c'"),
        (lambda: JdbcSink(DB, "t", key="a", latest_by="a"), "JdbcSink.key and JdbcSink.latest_by both"),
        (lambda: JdbcSink(DB, "t", key="a", password_env="A", password_file="b"), "exclude each other"),
        (lambda: pipeline(), "has no sink. Give it one, such as sink="),
        (lambda: pipeline(sink=ConsoleSink(), sinks=[ConsoleSink()]), "has `sink` and `sinks`"),
        (lambda: pipeline(sinks=[ConsoleSink()]), "Pipeline.sinks has 1 sinks; expected two"),
        (lambda: pipeline(sinks=[KafkaSink("t"), KafkaSink("t", key="a")]), "has the Kafka topic t twice"),
        (lambda: pipeline(sink=ConsoleSink(), output_mode="updte"), "The output mode of .* Did you mean 'update'"),
    ],
)
def test_a_mistake_is_refused_with_the_name_of_its_field(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://etl:s3cret@db/shop",
        "jdbc:postgresql://db/shop?user=etl&password=s3cret",
        "mysql://etl:s3cret@db/a",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(PipelineError) as error:
        JdbcSink(url, "t", key="a")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("url", [DB, f"jdbc:{DB}", "postgresql://db/shop?sslmode=require"])
@pytest.mark.parametrize("fields", [{}, {"password_env": "PASSWORD"}, {"password_file": "/run/se crets/pg"}])
def test_the_address_of_a_table_is_read_back(url: str, fields: dict[str, str]) -> None:
    sink = JdbcSink(url, 'shop.or"ders', key="id", **fields)
    address = sink.output(Settings()).address
    assert address.startswith("jdbc:postgresql://")
    assert PostgresPlace.parse(address) == sink.place


def test_columns_that_results_lack_are_named_with_their_field() -> None:
    sinks = SeveralSinks((DeltaSink("t", mode="append", partition_by="dya"), KafkaSink("t", key="id")))
    with pytest.raises(PipelineError, match=r"'dya'.*Did you mean 'day'\? Correct DeltaSink.partition_by"):
        check_columns(sinks, ["id", "day"], "orders")
    check_columns(sinks, ["ID", "dya"], "orders")


def test_several_sinks_have_the_places_of_each() -> None:
    sinks: tuple[Sink, ...] = (KafkaSink("t"), FileSink("f"), JdbcSink(DB, "t", key="id"))
    several = pipeline(sinks=list(sinks)).sink
    assert isinstance(several, SeveralSinks)
    recorded = parse_identity(several.identity().text())
    assert protocol.places_of(recorded) == tuple(map(protocol.identity_of, sinks))
    assert (
        protocol.text_of(recorded)
        == several.describe()
        == "Kafka topic t, folder f, PostgreSQL table t of db:5432/shop"
    )
    for sink in sinks:
        assert protocol.overlap(recorded, protocol.identity_of(sink))
        assert protocol.is_among(protocol.identity_of(sink), recorded)
        assert not protocol.is_among(recorded, protocol.identity_of(sink))
    assert not protocol.overlap(recorded, protocol.identity_of(several.with_suffix("-v2")))


def test_several_sinks_are_read_back_at_the_first_and_chosen_by_address(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    several = SeveralSinks((FileSink("f"), KafkaSink("t", key="id"), DeltaSink("d", mode="append")))
    assert several.output(settings) == protocol.SinkOutput("kafka:t", ("id",))
    assert several.recorded_at(settings) == (f"files:{tmp_path}/results/f", f"delta:{tmp_path}/results/d")
    assert several.at("kafka:t", settings) == KafkaSink("t", key="id")
    assert several.at("kafka:u", settings) is None


def test_a_sink_without_a_name_takes_no_suffix() -> None:
    several = SeveralSinks((KafkaSink("t"), FunctionSink(print, "prints")))
    with pytest.raises(PipelineError, match="prints, which cannot take a suffix"):
        several.with_suffix("-v2")


def test_a_pipeline_with_several_sinks_can_be_replaced_in_part() -> None:
    several = pipeline(sinks=[KafkaSink("a"), KafkaSink("b")])
    assert replace(several, timezone="Europe/Paris").sink == several.sink
    assert replace(several, sink=ConsoleSink()).sink == ConsoleSink()
