"""The text of `metadata`, `offsets`, `commits` and source logs."""

import json
from typing import Any

import pytest

from respool.errors import CheckpointError, UnknownFormatVersionError
from respool.format import logs
from respool.format.model import MOST_PARTITIONS, SourceOffsets

HEAD = {
    "batchWatermarkMs": 7,
    "batchTimestampMs": 8,
    "conf": {"spark.sql.shuffle.partitions": "2", "a": "b"},
}


def text(version: str, *lines: Any) -> str:
    return "\n".join([version, *(line if isinstance(line, str) else json.dumps(line) for line in lines)])


def test_the_id_of_a_query() -> None:
    assert logs.query_id(logs.metadata("an-id")) == "an-id"
    assert logs.metadata("an-id") == '{"id":"an-id"}'
    for wrong in ("", "{}", "[]", '{"id":1}'):
        with pytest.raises(CheckpointError, match="metadata is damaged: it has no query id"):
            logs.query_id(wrong)


def test_offsets_of_version_1_number_their_sources() -> None:
    result = logs.parse_offset_log("offsets/3", text("v1", HEAD, "-", {"logOffset": 3}, ""))
    assert (result.version, result.watermark_ms, result.timestamp_ms) == (1, 7, 8)
    assert result.conf == HEAD["conf"]
    assert result.sources == (SourceOffsets("0", None), SourceOffsets("1", {"logOffset": 3}))


def test_offsets_of_version_2_name_their_sources() -> None:
    result = logs.parse_offset_log("offsets/3", text("v2", HEAD, "visits:-", 'clicks:{"t":{"0":3}}', ""))
    assert result.version == 2
    assert result.sources == (SourceOffsets("visits", None), SourceOffsets("clicks", {"t": {"0": 3}}))


@pytest.mark.parametrize("head", ["", "  ", "{}"])
def test_offsets_without_settings_have_no_watermark(head: str) -> None:
    result = logs.parse_offset_log("offsets/3", text("v1", head, "3"))
    assert (result.watermark_ms, result.timestamp_ms, result.conf) == (0, 0, {})


def test_the_number_of_partitions_is_bounded() -> None:
    def planned(partitions: str) -> Any:
        return logs.parse_offset_log(
            "offsets/3", text("v1", {"conf": {"spark.sql.shuffle.partitions": partitions}}, "3")
        )

    assert planned(str(MOST_PARTITIONS)).conf == {"spark.sql.shuffle.partitions": str(MOST_PARTITIONS)}
    for wrong in (str(MOST_PARTITIONS + 1), "-1", "x"):
        with pytest.raises(CheckpointError, match="offsets/3 is damaged"):
            planned(wrong)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        (" \n ", "it is empty"),
        ("v1", "it ends after its first line"),
        ("v2", "it ends after its first line"),
        ("v1\n{}", "it names no source"),
        ("v1\n{}\n\n", "it names no source"),
        ("v2\n{}\nvisits", "'visits' names no source"),
        ("x1\n{}", "it begins with 'x1', expected v1 or v2"),
        ("v1\n[]\n3", "its second line is an array"),
        ("v1\n{}\n{", "is not JSON"),
        ('v1\n{}\n{"logOffset":"x"}', "'logOffset'"),
    ],
)
def test_damaged_offsets_are_named_with_what_is_wrong(content: str, why: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        logs.parse_offset_log("offsets/3", content)
    assert str(caught.value).startswith("offsets/3 is damaged: ")
    assert why in str(caught.value)
    assert not isinstance(caught.value, UnknownFormatVersionError)


@pytest.mark.parametrize("version", ["v3", "v10"])
def test_a_newer_version_is_not_damaged(version: str) -> None:
    with pytest.raises(
        UnknownFormatVersionError, match=f"offsets/3 has format version {version}; this respool supports v1, v2"
    ):
        logs.parse_offset_log("offsets/3", text(version, HEAD, "3"))


@pytest.mark.parametrize("version", ["v", "vx", "v²", "1", "w3"])
def test_what_is_no_version_is_damage(version: str) -> None:
    with pytest.raises(CheckpointError, match="it begins with") as caught:
        logs.parse_offset_log("offsets/3", text(version, HEAD, "3"))
    assert not isinstance(caught.value, UnknownFormatVersionError)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_commits_say_the_next_watermark_and_the_ids_of_the_state(version: int) -> None:
    facts = {"nextBatchWatermarkMs": 5, "stateUniqueIds": {"0": [["a", "b"], ["c", "d"]], "1": []}}
    result = logs.parse_commit_log("commits/3", text(f"v{version}", facts))
    assert result.version == version
    assert result.next_watermark_ms == 5
    assert result.state_ids == {0: (("a", "b"), ("c", "d")), 1: ()}


@pytest.mark.parametrize("content", ["v1", "v1\n{}", 'v1\n{"nextBatchWatermarkMs":0}', 'v1\n{"stateUniqueIds":null}'])
def test_a_commit_without_facts(content: str) -> None:
    result = logs.parse_commit_log("commits/3", content)
    assert (result.next_watermark_ms, result.state_ids) == (0, {})


@pytest.mark.parametrize(
    "facts",
    [[], {"nextBatchWatermarkMs": -1}, {"stateUniqueIds": []}, {"stateUniqueIds": {"x": []}}]
    + [{"stateUniqueIds": {"0": value}} for value in ("a", ["a"], [[1]])],
)
def test_damaged_commits(facts: Any) -> None:
    with pytest.raises(CheckpointError, match="commits/3 is damaged"):
        logs.parse_commit_log("commits/3", text("v1", facts))


def test_entries_of_a_log_of_files() -> None:
    entries = [{"path": "file:///a", "batchId": 3, "timestamp": 1}, {"path": "file:///b"}]
    assert logs.log_entries("sources/0/3", text("v1", *entries, "")) == entries
    assert logs.log_entries("sources/0/3", "v1") == []
    damaged: tuple[object, ...] = ({"batchId": 3}, {"path": 1}, {"path": "a\nb"}, {"path": "a", "batchId": -1}, [])
    for wrong in damaged:
        with pytest.raises(CheckpointError, match="sources/0/3 is damaged"):
            logs.log_entries("sources/0/3", text("v1", wrong))


def test_the_position_at_which_a_kafka_source_began() -> None:
    assert logs.initial_offsets("sources/0/0", b'\0v1\n{"visits":\n{"0":3}}') == {"visits": {"0": 3}}
    for wrong in (b"\0v1\n3", b'\0v1\n{"visits":{"0":"x"}}', b"\0\xff", b"\0v1"):
        with pytest.raises(CheckpointError, match="sources/0/0 is damaged"):
            logs.initial_offsets("sources/0/0", wrong)


OPERATOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
    "stateStoreInfo": [
        {"storeName": "left", "stateSchemaFilePaths": ["file:/a", "file:/b"]},
        {"storeName": "right"},
    ],
    "operatorPropertiesJson": '{"a": 1}',
}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_metadata_of_an_operator(version: str) -> None:
    result = logs.operator_metadata("m", text(version, OPERATOR))
    assert (result.name, result.stores, result.properties) == ("stateStoreSave", ("left", "right"), {"a": 1})
    assert logs.operator_stores("m", text(version, OPERATOR)) == ("left", "right")
    bare = logs.operator_metadata("m", text(version, {"stateStoreInfo": []}))
    assert (bare.name, bare.stores, bare.properties) == ("", (), {})


def test_where_the_schemas_of_an_operator_are() -> None:
    assert logs.schema_paths("m", text("v2", OPERATOR)) == ("file:/a", "file:/b")
    assert logs.schema_paths("m", text("v2", {})) == ()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"stateStoreInfo": [{}]},
        {"stateStoreInfo": [{"storeName": "a/b"}]},
        {"stateStoreInfo": [], "operatorPropertiesJson": "[]"},
        {"stateStoreInfo": [], "operatorInfo": []},
    ],
)
def test_damaged_metadata_of_an_operator(facts: Any) -> None:
    with pytest.raises(CheckpointError, match="m is damaged"):
        logs.operator_metadata("m", text("v1", facts))


def test_bytes_that_are_no_text() -> None:
    assert logs.decode("a", "é".encode()) == "é"
    with pytest.raises(CheckpointError, match="a is damaged: it is not text"):
        logs.decode("a", b"\xff")


def test_only_names_as_spark_writes_them_are_log_files() -> None:
    names = ["0", "9.compact", "10", ".10.crc", "07", "10.compact.tmp", "metadata"]
    assert logs.numbers_by_name(names) == {"0": 0, "9.compact": 9, "10": 10}
    assert logs.number_of("x") is None


@pytest.mark.parametrize(
    ("names", "last", "files"),
    [
        ({"0", "1", "2"}, 2, ["0", "1", "2"]),
        ({"0", "1", "2"}, 1, ["0", "1"]),
        ({"0", "1", "2.compact", "3"}, 3, ["2.compact", "3"]),
        ({"2.compact", "3", "5.compact", "6"}, 4, None),
        ({"2.compact", "3", "5.compact", "6"}, 6, ["5.compact", "6"]),
        ({"1", "2"}, 2, None),
        (set(), -1, []),
    ],
)
def test_a_log_is_read_from_a_compact_file_or_from_0(names: set[str], last: int, files: list[str] | None) -> None:
    assert logs.files_up_to(names, last) == files


@pytest.mark.parametrize(
    ("names", "last", "files"),
    [
        ({"0", "2"}, 2, ["0", "1", "2"]),
        ({"2.compact"}, 4, ["2.compact", "3", "4"]),
        ({"2.compact", "5.compact"}, 7, ["5.compact", "6", "7"]),
        ({"2.compact", "5.compact"}, 8, ["8.compact"]),
        (set(), -1, []),
    ],
)
def test_spark_derives_compact_files_from_the_distance_of_the_last_two(
    names: set[str], last: int, files: list[str]
) -> None:
    assert list(logs.expected_files(names, last)) == files
