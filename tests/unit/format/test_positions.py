"""What positions of sources mean, and what lies between two of them."""

from typing import Any

import pytest

from respool.format.positions import UNKNOWN, PartitionRange, check_position, kafka_parts, kind_of, reading, text_of
from respool.untrusted import Malformed


def kafka(**topics: dict[str, int]) -> dict[str, dict[str, int]]:
    return topics


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        ({"logOffset": 3}, "files"),
        ({"reservoirVersion": 3, "index": -1}, "Delta"),
        ({"offset": 3, "timestamp": 5}, "rate-micro-batch"),
        ({"offset": 3}, "other"),
        ({"visits": {"0": 3, "1": 4}}, "Kafka"),
        ({"visits": {}}, "Kafka"),
        ({"visits": {"0": 3}, "clicks": {"0": "x"}}, "other"),
        ({"visits": {"x": 3}}, "other"),
        ({"visits": 3}, "other"),
        ({}, "other"),
        (3, "number"),
        (True, "other"),
        ("3", "other"),
        (None, "other"),
    ],
)
def test_the_kind_of_a_source_by_its_position(position: Any, kind: str) -> None:
    assert kind_of(position) == kind


def test_kafka_offsets_by_topic_and_partition() -> None:
    position = {"visits": {"0": 3, "10": 4}, "clicks": {"1": 5}}
    assert kafka_parts(position) == {("visits", 0): 3, ("visits", 10): 4, ("clicks", 1): 5}
    assert kafka_parts({"logOffset": 3}) == {}


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (None, "–"),
        ({"visits": {"1": 4, "0": 3}, "clicks": {"0": 1}}, "visits[0:3,1:4] clicks[0:1]"),
        ({"logOffset": 3}, "log 3"),
        ({"reservoirVersion": 3, "index": 7}, "version 3, index 7"),
        ({"reservoirVersion": 3}, "version 3, index -1"),
        ({"offset": 3, "timestamp": 5}, "3"),
        (7, "7"),
        ({"a": "b"}, '{"a": "b"}'),
    ],
)
def test_a_position_for_people(position: Any, text: str) -> None:
    assert text_of(position) == text


def test_records_of_a_topic_are_counted_by_partition() -> None:
    result = reading("0", kafka(visits={"0": 3, "1": 4}), kafka(visits={"0": 10, "1": 4, "2": 6}))
    assert result.kind == "Kafka"
    assert result.parts == (
        PartitionRange("visits-0", 3, 10),
        PartitionRange("visits-1", 4, 4),
        PartitionRange("visits-2", 0, 6),
    )
    assert result.records == 13
    assert result.skipped == ()
    assert (result.start, result.end) == ("visits[0:3,1:4]", "visits[0:10,1:4,2:6]")
    assert result.reads


def test_records_before_a_later_start_are_skipped_and_not_counted() -> None:
    result = reading("0", kafka(visits={"0": 10, "1": 4}), kafka(visits={"0": 3, "1": 6}))
    assert result.parts == (PartitionRange("visits-0", 10, 10), PartitionRange("visits-1", 4, 6))
    assert result.skipped == (PartitionRange("visits-0", 3, 10),)
    assert result.records == 2


def test_a_partition_that_only_the_start_names_is_skipped_whole_and_a_dropped_topic_is_not() -> None:
    new_partition = reading("0", kafka(visits={"0": 3, "1": 4}), kafka(visits={"0": 3}))
    assert new_partition.skipped == (PartitionRange("visits-1", 0, 4),)
    assert not new_partition.reads
    dropped = reading("0", kafka(visits={"0": 3}, clicks={"0": 4}), kafka(visits={"0": 5}))
    assert dropped.skipped == ()
    assert dropped.parts == (PartitionRange("visits-0", 3, 5),)
    from_nothing = reading("0", kafka(visits={"0": 3}), None)
    assert from_nothing.skipped == (PartitionRange("visits-0", 0, 3),)


@pytest.mark.parametrize(
    ("start", "end", "kind", "part", "records"),
    [
        ({"logOffset": 2}, {"logOffset": 5}, None, PartitionRange("log", 3, 6), None),
        (None, {"logOffset": 5}, None, PartitionRange("log", 0, 6), None),
        ({"offset": 2, "timestamp": 1}, {"offset": 5, "timestamp": 2}, None, PartitionRange("rows", 2, 5), 3),
        (None, {"offset": 5, "timestamp": 2}, None, PartitionRange("rows", 0, 5), 5),
        (
            {"reservoirVersion": 2, "index": 0},
            {"reservoirVersion": 5, "index": 0},
            None,
            PartitionRange("versions", 2, 5),
            None,
        ),
        (2, 5, None, PartitionRange("positions", 2, 5), None),
        (None, 5, None, PartitionRange("positions", -1, 5), None),
        (0, 5, None, PartitionRange("positions", 0, 5), None),
        (2, 5, "rate", PartitionRange("seconds", 2, 5), None),
        (None, 5, "rate", PartitionRange("seconds", 0, 5), None),
    ],
)
def test_other_sources_have_one_part(
    start: Any, end: Any, kind: Any, part: PartitionRange, records: int | None
) -> None:
    result = reading("1", start, end, kind)
    assert result.parts == (part,)
    assert result.records == records
    assert result.skipped == ()
    assert result.reads


@pytest.mark.parametrize("end", [{"logOffset": 5}, 5, {"offset": 5, "timestamp": 2}, {"visits": {"0": 5}}])
def test_nothing_is_read_from_where_a_source_is(end: Any) -> None:
    assert not reading("0", end, end).reads


def test_positions_without_numbers_are_compared() -> None:
    assert reading("0", "a", "b").reads
    assert not reading("0", "a", "a").reads
    assert reading("0", "a", "b").parts == ()
    older, newer = ({"reservoirVersion": version, "index": 0} for version in (2, 5))
    assert not reading("0", newer, older).reads
    assert reading("0", newer, older).skipped == (PartitionRange("versions", 2, 5),)
    assert reading("0", older, {"reservoirVersion": 2, "index": 7}).reads


def test_a_start_that_is_not_kept_is_shown_as_unknown() -> None:
    result = reading("0", UNKNOWN, kafka(visits={"0": 5}))
    assert (result.kind, result.start, result.end) == ("Kafka", "?", "visits[0:5]")
    assert (result.parts, result.records) == ((), None)


def test_the_kind_is_that_of_the_start_where_there_is_no_end() -> None:
    assert reading("0", {"logOffset": 5}, None).kind == "files"
    assert reading("0", {"logOffset": 5}, None).skipped == (PartitionRange("log", 0, 6),)


@pytest.mark.parametrize(
    "position",
    [
        {"logOffset": -1},
        {"logOffset": 0},
        {"visits": {"0": -2, "123456789": 3}},
        {"visits": {"x": "y"}},
        {"visits": {"0": 3}, "other": 5},
        {"visits": {"0": 3}, "other": {}},
        {},
        "any",
        None,
    ],
)
def test_positions_that_a_source_may_have_written(position: Any) -> None:
    check_position(position)


@pytest.mark.parametrize(
    "position",
    [{"logOffset": -2}, {"logOffset": "3"}, {"visits": {"0": "3"}}, {"visits": {"1234567890": 3}}, {"v": {"0": 2**63}}],
)
def test_positions_with_values_that_their_source_never_writes(position: Any) -> None:
    with pytest.raises(Malformed):
        check_position(position)
