"""Whatever is wrong with a decoder is reported when a pipeline is made, without Spark, and names the field."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import respool
from respool import (
    KAFKA_TIMESTAMP,
    AvroDecoder,
    ConsoleSink,
    CsvDecoder,
    FunctionDecoder,
    JsonDecoder,
    Pipeline,
    PipelineError,
    ProtobufDecoder,
    RawDecoder,
    SchemaRegistry,
    TextDecoder,
)
from respool.archive.table import DecoderIdentity
from respool.decoders.protocol import Decoder
from respool.decoders.recorded import decoder_of_identity
from respool.identity import parse_identity
from respool.pipeline.fingerprint import changes, fingerprint_of
from support.decoding import descriptor_set, order_file


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
ORDERS = descriptor_set(order_file())
DECODERS: list[Any] = [
    JsonDecoder("shop STRING NOT NULL, at TIMESTAMP", "at"),
    JsonDecoder("meta STRUCT<at: TIMESTAMP>", "meta.at", time_unit="milliseconds", include=("key",)),
    AvroDecoder(record(AT), "at", registry=SchemaRegistry("http://127.0.0.1:1")),
    ProtobufDecoder(ORDERS, "shop.Order", "at"),
    CsvDecoder("shop STRING, at TIMESTAMP", "at", separator=";"),
    TextDecoder(),
    RawDecoder(include=("key", "headers")),
    FunctionDecoder(lambda: None, "at TIMESTAMP", "at"),  # type: ignore[arg-type,return-value]
]


def pipeline(decoder: Any) -> Pipeline:
    return Pipeline("orders", "orders", lambda events: events, ConsoleSink(), decoder, watermark="1 minute")


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (JsonDecoder("shop STRNG, at TIMESTAMP", "at"), "'STRNG' at character 6"),
        (JsonDecoder("at TIMESTAMP", "time"), "event time 'time' is not one of its fields (at)"),
        (JsonDecoder("at STRING", "at"), "event time 'at' must be declared as TIMESTAMP"),
        (JsonDecoder("at TIMESTAMP", ""), "event_time is ''. Expected the name of a field"),
        (JsonDecoder("at TIMESTAMP", None), "event_time is None"),  # type: ignore[arg-type]
        (JsonDecoder("meta STRUCT<at: TIMESTAMP>", "meta.att"), "'meta.att' is not one of the fields of meta (at)"),
        (JsonDecoder("meta STRING", "meta.at"), "is not one in meta, not a struct"),
        (JsonDecoder("at TIMESTAMP", "at", time_unit="millis"), "time_unit is 'millis'. Did you mean"),  # type: ignore[arg-type]
        (JsonDecoder("at TIMESTAMP", KAFKA_TIMESTAMP, time_unit="seconds"), "time_unit has no effect"),
        (JsonDecoder("at TIMESTAMP", "at", tombstones="kep"), "tombstones is 'kep'. Did you mean 'keep'"),  # type: ignore[arg-type]
        (JsonDecoder("at TIMESTAMP", "at", include=("keys",)), "include is ('keys',); expected a tuple"),  # type: ignore[arg-type]
        (JsonDecoder("at TIMESTAMP", "at", include="key"), "include is 'key'; expected a tuple"),  # type: ignore[arg-type]
        (JsonDecoder("record INT, at TIMESTAMP", "at", include=("key",)), "has the field 'record', and its events get"),
        (JsonDecoder("event_time INT", KAFKA_TIMESTAMP), "has the field 'event_time', and its events get"),
        (CsvDecoder("a ARRAY<INT>, at TIMESTAMP", "at"), "field 'a' is of the type array<int>"),
        (CsvDecoder("at TIMESTAMP", "at", separator="||"), "separator is '||'. Expected one character"),
        (AvroDecoder("order.avsc", "at"), "is not JSON"),
        (AvroDecoder('"string"', "at"), "is not a record"),
        (AvroDecoder(record({"name": "at", "type": "long"}), "at"), "'at' is a number (bigint). Name its unit"),
        (AvroDecoder(record({"name": "at", "type": "boolean"}), "at"), "'at' is of the type boolean"),
        (AvroDecoder(record(AT), "at", time_unit="seconds"), "'at' is a timestamp: time_unit has no effect"),
        (
            AvroDecoder(record(AT, {"name": "x", "type": "strin"}), "at"),
            "field 'x' of the decoder's Avro schema is not",
        ),
        (AvroDecoder(record(AT, {"name": "x", "type": ["null", "Order"]}), "at"), "'Order' of the field 'x' contains"),
        (AvroDecoder(record(AT), "at", record(AT), registry=SchemaRegistry("http://a:1")), "Give one"),
        (ProtobufDecoder(b"junk", "shop.Order", "at"), "are not a complete descriptor set"),
        (ProtobufDecoder(b"", "shop.Order", "at"), "it has no file"),
        (ProtobufDecoder(ORDERS, "shop.Ordr", "at"), "no message 'shop.Ordr', but"),
        (ProtobufDecoder(ORDERS, "shop.Order", "lines"), "'lines' is of the type array"),
        (TextDecoder(column=""), "column is ''"),
        (FunctionDecoder(None, "at TIMESTAMP", "at"), "must be functions"),  # type: ignore[arg-type]
        ("json", "decode is a str, which is not a decoder"),
    ],
)
def test_a_mistake_is_reported_when_the_pipeline_is_made(decoder: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=f"^The pipeline orders: .*{re.escape(message)}"):
        pipeline(decoder)


def test_a_file_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(PipelineError, match=r"The Avro schema gone\.avsc cannot be read"):
        AvroDecoder.from_file("gone.avsc", "at")
    with pytest.raises(PipelineError, match=r"The descriptor set gone\.desc cannot be read"):
        ProtobufDecoder.from_file("gone.desc", "shop.Order", "at")


def test_a_decoder_may_be_read_from_a_file(tmp_path: Any) -> None:
    (tmp_path / "order.avsc").write_text(record(AT))
    (tmp_path / "order.desc").write_bytes(ORDERS)
    assert AvroDecoder.from_file(tmp_path / "order.avsc", "at") == AvroDecoder(record(AT), "at")
    protobuf = ProtobufDecoder.from_file(tmp_path / "order.desc", "shop.Order", event_time="at")
    assert protobuf == ProtobufDecoder(ORDERS, "shop.Order", "at")


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.identity().kind)
class TestEveryDecoder:
    def test_is_a_value_that_a_pipeline_accepts(self, decoder: Any) -> None:
        assert decoder == replace(decoder)
        assert hash(decoder) == hash(replace(decoder))
        assert decoder.time_column in decoder.check()
        assert pipeline(decoder).decode is decoder
        assert isinstance(decoder, Decoder)

    def test_has_an_identity_that_can_be_recorded(self, decoder: Any) -> None:
        identity = decoder.identity()
        assert parse_identity(identity.text()) == identity
        assert replace(decoder, tombstones="drop").identity() != identity
        assert replace(decoder, include=("offset",)).identity() != identity

    def test_has_a_fingerprint_that_shows_what_changed(self, decoder: Any) -> None:
        before, after = (fingerprint_of(pipeline(item)) for item in (decoder, replace(decoder, tombstones="drop")))
        assert len(changes(before, after)) == 1
        assert "setting decoder's tombstones" in changes(before, after)[0]

    def test_is_recognized_by_an_archive(self, decoder: Any) -> None:
        reading = DecoderIdentity.of(decoder, "UTC")
        kept = DecoderIdentity.from_properties(reading.to_properties())
        assert kept == reading
        assert kept.is_decoded_as(reading)
        assert not kept.is_decoded_as(DecoderIdentity.of(replace(decoder, tombstones="drop"), "UTC"))

    def test_is_made_again_from_its_identity_or_not_at_all(self, decoder: Any) -> None:
        again = decoder_of_identity(decoder.identity())
        depends_on_more = isinstance(decoder, AvroDecoder | ProtobufDecoder | FunctionDecoder)
        assert (again is None) == depends_on_more
        assert again is None or again.identity() == decoder.identity()

    def test_needs_headers_only_if_events_have_them(self, decoder: Any) -> None:
        assert ("headers" in decoder.columns()) == ("headers" in decoder.include)
        assert "headers" in replace(decoder, include=("headers",)).columns()


def test_the_identity_of_avro_ignores_what_is_for_people() -> None:
    plain = AvroDecoder(record(AT), "at")
    assert AvroDecoder(record({**AT, "doc": "When."}), "at").identity() == plain.identity()
    assert AvroDecoder(record({**AT, "default": 1}), "at").identity() != plain.identity()


def test_the_identity_of_a_function_changes_with_its_code() -> None:
    def made(text: str) -> FunctionDecoder:
        return FunctionDecoder(lambda: text, "at TIMESTAMP", "at")  # type: ignore[arg-type,return-value]

    assert made("a").identity() == made("a").identity()
    assert made("a").identity() != made("b").identity()


def test_the_options_of_a_registry_are_in_no_identity() -> None:
    decoder = AvroDecoder(record(AT), "at", registry=SchemaRegistry("http://a:1", {"basic.auth.user.info": "a:secret"}))
    assert "secret" not in f"{decoder} {decoder.identity().text()} {fingerprint_of(pipeline(decoder)).to_json()}"


def test_no_jvm_is_needed_to_check(tmp_path: Any) -> None:
    code = (
        "import respool, sys; respool.Pipeline('p', 't', print, respool.ConsoleSink(), "
        "respool.JsonDecoder('at TIMESTAMP', 'at')); assert 'py4j.java_gateway' not in sys.modules or "
        "sys.modules['pyspark'].SparkContext._gateway is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": ""})


def test_the_parts_of_a_record_have_one_name() -> None:
    assert JsonDecoder("at TIMESTAMP", "at", include=("key", "tombstone")).check() == ["at", "record"]
    assert respool.JsonDecoder("m STRUCT<at: TIMESTAMP>", "m.at").time_column == "event_time"
