"""Which files of a compacted log Spark reads."""

import pytest

from respool.format import compact_log


def test_only_names_as_spark_writes_them_are_log_files() -> None:
    names = ["0", "9.compact", "10", ".10.crc", "07", "10.compact.tmp", "metadata"]
    assert compact_log.numbers_by_name(names) == {"0": 0, "9.compact": 9, "10": 10}
    assert compact_log.number_of("x") is None


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
    assert compact_log.files_up_to(names, last) == files


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
    assert list(compact_log.expected_files(names, last)) == files
