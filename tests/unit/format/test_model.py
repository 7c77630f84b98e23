"""Runs of numbers, names of stores, and positions by source."""

import pytest

from respool.format.model import InclusiveRange, OffsetLogEntry, SourceOffsets, StateStore, intersect, spans, spans_text


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([4], [InclusiveRange(4, 4)]),
        ([4, 5, 6], [InclusiveRange(4, 6)]),
        ([1, 2, 4, 6, 7], [InclusiveRange(1, 2), InclusiveRange(4, 4), InclusiveRange(6, 7)]),
        ([1, 3], [InclusiveRange(1, 1), InclusiveRange(3, 3)]),
    ],
)
def test_numbers_as_runs_without_a_gap(numbers: list[int], expected: list[InclusiveRange]) -> None:
    assert spans(numbers) == expected


def test_the_place_of_a_store_names_it_when_there_are_several() -> None:
    assert StateStore(1, 2, "default", "", ()).place == "operator 1, partition 2"
    assert StateStore(1, 2, "left", "", ()).place == "operator 1, partition 2, store left"


def test_the_position_of_a_source_by_its_name() -> None:
    planned = OffsetLogEntry(1, 0, 0, {}, (SourceOffsets("0", 5), SourceOffsets("1", None), SourceOffsets("2", 7)))
    assert [planned.end(source) for source in ("0", "1", "2", "3")] == [5, None, 7, None]


def test_the_kafka_offsets_of_a_batch_by_topic_and_partition() -> None:
    sources = (SourceOffsets("0", {"a": {"0": 3, "1": 4}}), SourceOffsets("1", 7), SourceOffsets("2", {"b": {"0": 1}}))
    assert OffsetLogEntry(1, 0, 0, {}, sources).kafka_ends() == {("a", 0): 3, ("a", 1): 4, ("b", 0): 1}


def test_what_ranges_have_in_common() -> None:
    some, others = [InclusiveRange(0, 4), InclusiveRange(8, 9)], [InclusiveRange(3, 8)]
    assert intersect(some, others) == [InclusiveRange(3, 4), InclusiveRange(8, 8)]
    assert intersect(some, [InclusiveRange(5, 7)]) == []
    assert 4 in some[0]
    assert 5 not in some[0]
    assert spans_text(some) == "0 to 4, 8 to 9"
