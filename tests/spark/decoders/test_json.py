"""Every record becomes an event or a rejected record with a reason; none fails the query."""

import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.decoders.json import JsonDecoder, _parse_schema, _read, _text_time
from respool.decoders.protocol import decode, decode_events
from respool.errors import PipelineError
from respool.visits.counts import VISIT

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


def reader_of(spark: "SparkSession", decoder: JsonDecoder) -> Any:
    """Return the column with which JsonReader reads values; None when from_json reads them all."""
    from pyspark.sql import types

    return _read(spark, _text_time(_parse_schema(decoder), decoder, types))


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


REQUIRED = JsonDecoder(
    "inner STRUCT<z: INT NOT NULL, deep: STRUCT<`a b`: STRING NOT NULL>>, items ARRAY<STRUCT<price: DOUBLE NOT NULL, "
    "tags: ARRAY<STRUCT<name: STRING NOT NULL>>>>, by_name MAP<STRING, STRUCT<n: INT NOT NULL>>, at TIMESTAMP",
    event_time="at",
)


def test_a_required_field_of_a_nested_struct_must_be_there(spark: "SparkSession") -> None:
    reasons: dict[str, str | None] = {
        '"x": 1': None,
        '"inner": null, "items": null, "by_name": null': None,
        '"inner": {"z": 1}, "items": [], "by_name": {}': None,
        '"inner": {"z": 1, "deep": {"a b": "x"}}, "items": [null, {"price": 1}], "by_name": {"k": {"n": 1}}': None,
        '"inner": {}': "inner.z is missing",
        '"inner": {"z": null}': "inner.z is missing",
        '"inner": {"z": 1, "deep": {}}': "inner.deep.a b is missing",
        '"items": [{"price": 1}, {"price": null}]': "items[].price is missing",
        '"items": [{}]': "items[].price is missing",
        '"items": [{"price": 1, "tags": [{"name": "x"}, {}]}]': "items[].tags[].name is missing",
        '"by_name": {"k": null, "l": {}}': "by_name[].n is missing",
    }
    rows = decoded(spark, [f'{{"at": "2025-09-04T07:00:00", {fields}}}'.encode() for fields in reasons], REQUIRED)
    for row, (fields, reason) in zip(rows, reasons.items(), strict=True):
        assert row.rejected == reason, fields
        assert (row.event is None) == (reason is not None)


def test_arrays_and_maps_without_nulls_yield_no_nulls(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType, TimestampType

    # DDL has no word for it; a schema of Spark has.
    schema = StructType().add("at", TimestampType())
    schema = schema.add("list", ArrayType(ArrayType(IntegerType(), containsNull=False)))
    schema = schema.add("map", MapType(StringType(), IntegerType(), valueContainsNull=False))
    monkeypatch.setattr("respool.decoders.json._parse_schema", lambda _: schema)
    values: list[bytes | None] = [
        b'{"list": [null, [1]], "map": {"k": 1}, ' + TIME + b"}",
        b'{"list": [[1], [2, null]], ' + TIME + b"}",
        b'{"map": {"k": null}, ' + TIME + b"}",
    ]
    reasons = [row.rejected for row in decoded(spark, values, JsonDecoder("", "at"))]
    assert reasons == [None, "list[][] is missing", "map[] is missing"]


def test_a_field_may_have_any_name(spark: "SparkSession") -> None:
    decoder = JsonDecoder("`it's \\ that` STRING NOT NULL, `a.b``c` STRING, `at` TIMESTAMP", event_time="at")
    values: list[bytes | None] = [
        b'{"it\'s \\\\ that": "x", "a.b`c": "y", ' + TIME + b"}",
        b'{"a.b`c": "y", ' + TIME + b"}",
    ]
    complete, missing = decoded(spark, values, decoder)
    assert (complete.event["it's \\ that"], complete.event["a.b`c"]) == ("x", "y")
    assert missing.rejected == "it's \\ that is missing"


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


@st.composite
def _times(draw: st.DrawFn) -> tuple[str, datetime | None]:
    """Return an ISO-8601 time, and what it says in UTC, read in Paris; None for one that is not readable."""
    at = draw(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))  # noqa: DTZ001  (read in a zone below)
    text = at.strftime(f"%Y-%m-%d{draw(st.sampled_from('T tx'))}%H:%M")
    readable = text[10] != "x"
    if draw(st.booleans()):
        text += at.strftime(":%S")
        digits = draw(st.integers(0, 9))
        text += f".{at.microsecond:06}789"[: digits + 1] if digits else ""
        at = at.replace(microsecond=int(f"{at.microsecond:06}"[: min(digits, 6)].ljust(6, "0")))
    else:
        at = at.replace(second=0, microsecond=0)
    offset = draw(st.none() | st.integers(-14 * 4, 14 * 4).map(lambda quarters: timedelta(minutes=15 * quarters)))
    if offset is None:
        text += draw(st.sampled_from(["Z", "z"]))
        offset = timedelta(0)
    else:
        minutes = abs(offset) // timedelta(minutes=1)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if offset < timedelta(0) else "+"
        written = [f"{sign}{hours:02}:{minutes:02}", f"{sign}{hours:02}{minutes:02}"]
        text += draw(st.sampled_from([*written, *([] if minutes else [f"{sign}{hours:02}"])]))
    return text, at.replace(tzinfo=timezone(offset)) if readable else None


@pytest.mark.parametrize("decoder", [JsonDecoder("at TIMESTAMP", "at"), JsonDecoder("n INT, at TIMESTAMP", "at")])
@hypothesis_settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(times=st.lists(_times(), min_size=100))
def test_iso_times_are_read_as_python_reads_them(
    spark: "SparkSession", decoder: JsonDecoder, times: list[tuple[str, datetime | None]]
) -> None:
    rows = decoded(spark, [json.dumps({"at": text}).encode() for text, _ in times], decoder)
    for row, (text, at) in zip(rows, times, strict=True):
        assert row.rejected == (None if at else "at is not readable"), text
        # A naive time of Python's collect() is of the machine's zone.
        assert at is None or row.event.at.astimezone(timezone.utc) == at, text


def test_a_time_without_seconds_is_readable(spark: "SparkSession") -> None:
    texts = ["2025-09-04T07:30Z", "2025-09-04T07:30", "2025-09-04 09:30+02:00", "2025-09-04t07:30z"]
    rows = decoded(spark, [json.dumps({"at": text}).encode() for text in texts], NESTED)
    assert [row.rejected for row in rows] == [None] * 4
    assert {row.event.at.astimezone(timezone.utc) for row in rows} == {datetime(2025, 9, 4, 7, 30, tzinfo=timezone.utc)}
    wrong = ["2025-09-04T07:3Z", "2025-09-04T07Z", "2025-09-04Z", "2025-09-04T07:30:Z", "2025-09-04T07:30ZZ"]
    rows = decoded(spark, [json.dumps({"at": text}).encode() for text in wrong], NESTED)
    assert [row.rejected for row in rows] == ["at is not readable"] * len(wrong)


def test_events_omits_rejected_records(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(b"{}",), (b"{" + TIME + b"}",)], "value BINARY")
    events = decode_events(frame, NESTED, "rejected records")
    assert events.columns == ["n", "flag", "list", "inner", "at"]
    assert events.count() == 1


_anything = st.one_of(st.binary(max_size=40), st.text(alphabet='{}[]":,1aт\\n ', max_size=20).map(str.encode))


@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(_anything, min_size=50))
def test_anything_at_all_is_an_event_or_is_rejected(spark: "SparkSession", values: list[bytes]) -> None:
    for row in decoded(spark, list(values), NESTED):
        assert (row.event is None) != (row.rejected is None)


TYPED = JsonDecoder(
    "s STRING, flag BOOLEAN, tiny TINYINT, small SMALLINT, n INT, big BIGINT, f FLOAT, d DOUBLE, price DECIMAL(10, 2), "
    "day DATE, seen TIMESTAMP, list ARRAY<INT>, inner STRUCT<z: INT NOT NULL, deep: STRUCT<a: STRING>>, "
    "items ARRAY<STRUCT<sku: STRING, price: DECIMAL(5, 1)>>, tags MAP<STRING, BIGINT>, "
    "nested MAP<STRING, ARRAY<DOUBLE>>, at TIMESTAMP",
    event_time="at",
)
READ = (
    b'{"visit_id": "v1", "event_time": "2025-09-04T07:00:00"}',
    b' {\n"page":\t"a\xc3\xa9","visit_id":"v1" , "n": -1.5e3, "m": 0, "yes":true,"no": false,"page2":null}\r\n',
    b'{"visit_id": null, "n": 1234567890123456789012}',
    b"{}",
    b'{"visit_id": "a\\n\\u00e9\\ud83d\\ude00b\\"", "pa\\u0067e": ""}',
    b'{"visit_id": "v1", "visit_id": "v2"}',
    b'{"visit_id": 1, "page": true}',
    b'{"visit_id": {"a": [1, 2.50, "x"]}, "page": [ null , {} ]}',
    b'{"n": {"visit_id": "other"}, "m": [{"visit_id": "other"}], "visit_id": "v1"}',
)
LEFT = (
    b"",
    b" ",
    b"[]",
    b"null",
    b'"visit_id"',
    b'{"visit_id": "v1"',
    b'{"visit_id": "v1",}',
    b'{"visit_id": "v1"} x',
    b'{"visit_id": "v1"}{}',
    b'{"visit_id" "v1"}',
    b'{"visit_id": v1}',
    b'{"visit_id": "a\nb"}',
    b'{"visit_id": "\xff"}',
    b'{"visit_id": "\xed\xa0\x80"}',
    b'{"visit_id": "\xc0\xa2"}',
    b'{"n": 012}',
    b'{"n": NaN}',
    b'{"n": nul}',
    b'{"n": truee}',
    b'\xef\xbb\xbf{"visit_id": "v1"}',
    '{"visit_id": "v1"}'.encode("utf-16-le"),
    '{"visit_id": "v1"}'.encode("utf-16-be"),
    '{"visit_id": "v1"}'.encode("utf-32-le"),
    '{"visit_id": "v1"}'.encode("utf-16"),
    b'{"page": "' + b"x" * 40_000 + b'"}',
)
TYPED_READ = (
    b'{"flag": true, "tiny": -128, "small": 32767, "n": -2147483648, "big": 9223372036854775807, "f": 1, "d": 1e-3}',
    b'{"price": 1.005, "day": "2025-09-04", "seen": "2025-09-04T07:00:00.5+02:00", "list": [1, null], "inner": null}',
    b'{"price": "12.50", "items": [null, {}, {"sku": "a\\tb", "price": 1}], "tags": {"a": 1, "": null}, "at": 12}',
    b'{"tags": {}, "list": [], "inner": {"deep": {"a": {"b": 1}}, "z": 3}, "nested": {"x": [1, 2.5], "y": null}}',
    b'{"inner": {"deep": null, "other": [[]]}, "n": 1, "n": null, "day": "2025-9-4", "seen": "2025-09-04"}',
)
TYPED_LEFT = (
    b'{"tiny": 300}',
    b'{"n": 2147483648}',
    b'{"n": 1.0}',
    b'{"n": "1"}',
    b'{"flag": "true"}',
    b'{"d": "NaN"}',
    b'{"d": ""}',
    b'{"price": "1,000.5"}',
    b'{"price": "abc"}',
    b'{"price": 123456789.5}',
    b'{"seen": 1757606666}',
    b'{"day": "04.09.2025"}',
    b'{"day": ""}',
    b'{"list": {}}',
    b'{"list": [1, "x"]}',
    b'{"inner": []}',
    b'{"tags": {"a": 1, "a": 2}}',
    b'{"n": "x", "n": 1}',
)


@pytest.mark.parametrize(("decoder", "read", "left"), [(VISIT, READ, LEFT), (TYPED, TYPED_READ, TYPED_LEFT)])
def test_what_is_accepted_is_read_without_from_json(
    spark: "SparkSession", decoder: JsonDecoder, read: tuple[bytes, ...], left: tuple[bytes, ...]
) -> None:
    frame = spark.createDataFrame([(value,) for value in (*read, *left)], "value BINARY")
    column = reader_of(spark, decoder)
    assert column is not None
    rows = frame.select(column.isNotNull().alias("read")).collect()
    assert [row.read for row in rows] == [True] * len(read) + [False] * len(left)


def test_a_type_that_only_from_json_reads_leaves_all_to_it(spark: "SparkSession") -> None:
    decoder = JsonDecoder("clock TIMESTAMP_NTZ, at TIMESTAMP", "at")
    assert reader_of(spark, decoder) is None
    (row,) = decoded(spark, [b'{"clock": "2025-09-04T07:00:00", ' + TIME + b"}"], decoder)
    assert row.event.clock == datetime(2025, 9, 4, 7)  # noqa: DTZ001


_texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["2025-09-04T07:00:00", "2025-09-04T07:00:00.5Z", "é\u0000", '"', "\\", "\u2028", "\ud83d\ude00"]),
    st.sampled_from(["", "1", "-1.50", "1,5", "NaN", "Infinity", "true", "2025-02-30", "1582-10-10", "0001-01-01"]),
)
_numbers = st.one_of(
    st.integers(),
    st.integers(-40_000, 40_000),
    st.floats(),
    st.decimals(-1000, 1000, places=3).map(float),
    st.sampled_from([2**31, 2**63, -(2**63), 10**30, 1e308, 5e-324, -0.0]),
)
_scalars = st.one_of(st.none(), st.booleans(), _texts, _numbers)
_anywhere = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["z", "a", "sku", "x"]), inner),
    max_leaves=4,
)
_flat_names = st.sampled_from(["event_id", "visit_id", "event_time", "page", "Page", "é", "", "_respool_corrupt"])
_of_types = {
    "s": _texts,
    "flag": st.booleans(),
    **dict.fromkeys(["tiny", "small", "n", "big"], st.integers(-200, 200)),
    **dict.fromkeys(["f", "d", "price"], st.floats(-1e7, 1e7)),
    "day": st.dates().map(str),
    "seen": st.datetimes().map(datetime.isoformat),
    "list": st.lists(st.integers(-9, 9) | st.none(), max_size=3),
    "inner": st.fixed_dictionaries({"z": st.integers(0, 9)}, optional={"deep": st.fixed_dictionaries({"a": _texts})}),
    "items": st.lists(st.fixed_dictionaries({}, optional={"sku": _texts, "price": st.floats(-999, 999)}), max_size=3),
    "tags": st.dictionaries(_texts, st.integers(), max_size=3),
    "nested": st.dictionaries(_texts, st.lists(st.floats(allow_nan=False), max_size=2) | st.none(), max_size=2),
    "at": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(datetime.isoformat),  # noqa: DTZ001
}


@st.composite
def _typed(draw: st.DrawFn) -> dict[str, Any]:
    """Return fields of the declared types, in any order, now and then with one of another type."""
    names = draw(st.lists(st.sampled_from([*_of_types, "other"]), unique=True, max_size=8))
    fields: dict[str, Any] = {}
    for name in names:
        as_declared = name in _of_types and draw(st.integers(0, 15)) > 0
        fields[name] = draw(_of_types[name] if as_declared else _anywhere)
    return fields


@st.composite
def _values_of(draw: st.DrawFn, objects: st.SearchStrategy[dict[str, Any]]) -> bytes:
    """Return JSON, now and then with a few bytes added or replaced."""
    text = json.dumps(draw(objects), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    value = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 2)):
        return value
    first = draw(st.integers(0, len(value)))
    last = draw(st.integers(first, min(first + 2, len(value))))
    other = draw(st.binary(max_size=2) | st.sampled_from([b'"', b"}", b",", b"0", b"\\"]))
    return value[:first] + other + value[last:]


_flat = st.dictionaries(_flat_names, _anywhere, max_size=6)


@pytest.mark.parametrize(
    ("decoder", "known", "objects"),
    [(VISIT, (*READ, *LEFT), _flat), (TYPED, (*TYPED_READ, *TYPED_LEFT), _typed())],
    ids=["flat", "typed"],
)
@hypothesis_settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_read_without_from_json_is_what_from_json_reads(
    spark: "SparkSession",
    decoder: JsonDecoder,
    known: tuple[bytes, ...],
    objects: st.SearchStrategy[dict[str, Any]],
    data: st.DataObject,
) -> None:
    drawn = data.draw(st.lists(_values_of(objects), min_size=100, max_size=300))
    values: list[bytes | None] = [None, *known, *drawn]
    rows = [repr(row) for row in decoded(spark, values, decoder)]  # as text, in which NaN is equal to itself
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("respool.decoders.json._READER", "respool.None")  # as in a JVM without the class
        assert reader_of(spark, decoder) is None
        for value, row, expected in zip(values, rows, decoded(spark, values, decoder), strict=True):
            assert row == repr(expected), value


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (JsonDecoder("n BIGINTT", "n"), "not readable"),
        (JsonDecoder("n BIGINT", "at"), "not one of its fields"),
        (JsonDecoder("at STRING", "at"), "must be declared as TIMESTAMP"),
    ],
)
def test_a_wrong_decoder_is_reported(spark: "SparkSession", decoder: JsonDecoder, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        decoded(spark, [b"{}"], decoder)
