"""Runs of numbers, names of stores, and positions by source."""

import pytest

from respool.checkpoint.model import Planned, SourceOffsets, Span, StateStore, spans


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([4], [Span(4, 4)]),
        ([4, 5, 6], [Span(4, 6)]),
        ([1, 2, 4, 6, 7], [Span(1, 2), Span(4, 4), Span(6, 7)]),
        ([1, 3], [Span(1, 1), Span(3, 3)]),
    ],
)
def test_numbers_as_runs_without_a_gap(numbers: list[int], expected: list[Span]) -> None:
    assert spans(numbers) == expected


def test_the_place_of_a_store_names_it_when_there_are_several() -> None:
    assert StateStore(1, 2, "default", "", ()).place == "operator 1, partition 2"
    assert StateStore(1, 2, "left", "", ()).place == "operator 1, partition 2, store left"


def test_the_position_of_a_source_by_its_name() -> None:
    planned = Planned(1, 0, 0, {}, (SourceOffsets("0", 5), SourceOffsets("1", None), SourceOffsets("2", 7)))
    assert [planned.end(source) for source in ("0", "1", "2", "3")] == [5, None, 7, None]
