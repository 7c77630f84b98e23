"""Every record becomes an event or a rejected record with a reason; none fails the query."""

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.decode import JsonDecoder, decode, decode_events
from respool.errors import PipelineError
from respool.visits.events import VISIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = JsonDecoder("n BIGINT, flag BOOLEAN, list ARRAY<INT>, inner STRUCT<z: INT>, at TIMESTAMP", event_time="at")
TIME = b'"at": "2025-09-04T07:00:00"'

REJECTED: list[tuple[bytes | None, str]] = [
    (None, "no value"),
    (b"", "not JSON"),
    (b"not json", "not JSON"),
    (b'{"n": 1, ' + TIME, "not JSON"),
    (b"{'n': 1}", "not JSON"),
    (b'{"n": NaN, ' + TIME + b"}", "not JSON"),
    (b'\xef\xbb\xbf{"n": 1, ' + TIME + b"}", "not JSON"),
    (b"[" * 5000, "not JSON"),
    (b'{"n":' * 5000, "not JSON"),
    (b'{"n": "\xff\xfe", ' + TIME + b"}", "not UTF-8"),
    (b"\x00\x01\xff", "not UTF-8"),
    (b"null", "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b"12", "not a JSON object"),
    (b"[{" + TIME + b"}, {" + TIME + b"}]", "not a JSON object"),
    (b"{" + TIME + b"} and more", "more than one JSON object"),
    (b"{" + TIME + b"}{" + TIME + b"}", "more than one JSON object"),
    (b"{" + TIME + b"}, {" + TIME + b"}", "more than one JSON object"),
    (b'{"n": "x", ' + TIME + b"}", "a field has the wrong type"),
    (b'{"n": 1.5, ' + TIME + b"}", "a field has the wrong type"),
    (b'{"n": 99999999999999999999999, ' + TIME + b"}", "a field has the wrong type"),
    (b'{"flag": "yes", ' + TIME + b"}", "a field has the wrong type"),
    (b'{"list": [1, "x"], ' + TIME + b"}", "a field has the wrong type"),
    (b'{"inner": {"z": "q"}, ' + TIME + b"}", "a field has the wrong type"),
    (b"{}", "at is missing"),
    (b'{"at": null}', "at is missing"),
    (b'{"at": "yesterday"}', "at is not readable"),
    (b'{"at": "07:00"}', "at is not readable"),
    (b'{"at": "2025-09-04"}', "at is not readable"),
    (b'{"at": "2025-09-04T25:00:00"}', "at is not readable"),
    (b'{"at": "2025-02-30T07:00:00"}', "at is not readable"),
    (b'{"at": 1757606666015}', "at is not readable"),
    (b'{"at": "12345"}', "at is not readable"),
    (b'{"at": "0000-01-01T00:00:00"}', "at is not readable"),
    (b'{"at": "9999-12-31T23:59:59"}', "at is not readable"),
    (b'{"at": {"year": 2025}}', "at is not readable"),
]


def decoded(spark: "SparkSession", values: list[bytes | None], decoder: JsonDecoder) -> list[Any]:
    frame = spark.createDataFrame([(number, value) for number, value in enumerate(values)], "number INT, value BINARY")
    return decode(frame, decoder).orderBy("number").collect()


def test_a_bad_value_is_rejected_with_its_reason(spark: "SparkSession") -> None:
    rows = decoded(spark, [value for value, _ in REJECTED], NESTED)
    assert [(row.value, row.rejected) for row in rows] == REJECTED
    assert all(row.event is None for row in rows)


def test_ten_megabytes_of_it_are_rejected_unharmed(spark: "SparkSession") -> None:
    garbage = b"x" * 10_000_000
    (row,) = decoded(spark, [garbage], NESTED)
    assert row.rejected == "not JSON"
    assert bytes(row.value) == garbage


def test_a_good_value_becomes_an_event(spark: "SparkSession") -> None:
    value = b' {"list": [1, 2], "inner": {"z": 3}, "n": 7, "unknown": {"x": "}{"}, ' + TIME + b"} "
    (row,) = decoded(spark, [value], NESTED)
    assert row.rejected is None
    assert (row.event.n, row.event.list, row.event.inner.z, row.event.flag) == (7, [1, 2], 3, None)
    assert list(row.event.asDict()) == ["n", "flag", "list", "inner", "at"]


def test_a_required_field_must_be_there(spark: "SparkSession") -> None:
    values: list[bytes | None] = [
        b'{"event_time": "2025-09-04T07:00:00"}',
        b'{"visit_id": 1, "event_time": "2025-09-04T07:00:00"}',
    ]
    assert [row.rejected for row in decoded(spark, values, VISIT)] == ["visit_id is missing", None]


def test_a_time_without_a_zone_is_read_in_the_zone_of_the_session(spark: "SparkSession") -> None:
    paris = spark.newSession()
    paris.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    texts = ["2025-09-04T07:00:00.000000", "2025-09-04T07:00:00Z", "2025-09-04T07:00:00+05:30", "2025-03-30T02:30:00"]
    values: list[bytes | None] = [json.dumps({"at": text}).encode() for text in texts]
    frame = paris.createDataFrame([(number, value) for number, value in enumerate(values)], "number INT, value BINARY")
    rows = decode(frame, NESTED).orderBy("number").selectExpr("unix_seconds(event.at) AS at").collect()
    assert [datetime.fromtimestamp(row.at, timezone.utc).isoformat() for row in rows] == [
        "2025-09-04T05:00:00+00:00",
        "2025-09-04T07:00:00+00:00",
        "2025-09-04T01:30:00+00:00",
        "2025-03-30T01:30:00+00:00",  # in the hour that daylight saving skips: an hour later on the clock
    ]


def test_events_leaves_the_rejected_ones_out(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(b"{}",), (b"{" + TIME + b"}",)], "value BINARY")
    found = decode_events(frame, NESTED, "rejected records")
    assert found.columns == ["n", "flag", "list", "inner", "at"]
    assert found.count() == 1


_anything = st.one_of(st.binary(max_size=40), st.text(alphabet='{}[]":,1aт\\n ', max_size=20).map(str.encode))


@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(_anything, min_size=50))
def test_anything_at_all_is_an_event_or_is_rejected(spark: "SparkSession", values: list[bytes]) -> None:
    for row in decoded(spark, list(values), NESTED):
        assert (row.event is None) != (row.rejected is None)


@pytest.mark.parametrize(
    ("decoder", "told"),
    [
        (JsonDecoder("n BIGINTT", "n"), "not readable"),
        (JsonDecoder("n BIGINT", "at"), "not one of its fields"),
        (JsonDecoder("at STRING", "at"), "must be declared as TIMESTAMP"),
    ],
)
def test_a_wrong_decoder_is_told(spark: "SparkSession", decoder: JsonDecoder, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        decoded(spark, [b"{}"], decoder)
