"""What is printed of records and files cannot control a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.render import output
from respool.text import folded, number_range, number_ranges, plural, printable, printable_json, table_lines

EVIL = "\x1b]0;title\x07\x1b[2J\rgone\x9b31m\u202etxt\x00\x7f\ud800"


def test_control_characters_are_escaped() -> None:
    assert printable(EVIL) == ("\\x1b]0;title\\x07\\x1b[2J\\x0dgone\\x9b31m\\u202etxt\\x00\\x7f\\ud800")
    assert printable("two\nlines\tand é 漢 ✍️ 👩‍💻 \\x1b") == "two\nlines\tand é 漢 ✍️ 👩‍💻 \\x1b"
    assert printable("a\nb\tc", keep="") == "a\\x0ab\\x09c"


def test_json_stays_the_same_value() -> None:
    text = printable_json(json.dumps({"key": EVIL}, ensure_ascii=False))
    assert json.loads(text) == {"key": EVIL}
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)


@given(st.text())
def test_any_text_can_be_printed(text: str) -> None:
    printable(text).encode()


@pytest.mark.parametrize("way", ["out", "say", "table", "json"])
def test_every_way_to_print_escapes(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    match way:
        case "out":
            output.print_result(EVIL)
        case "say":
            output.print_note(EVIL)
        case "table":
            output.table([{"a\x1b": EVIL, "n": 1}, {"a\x1b": "line\nline", "n": 2}], ("a\x1b", "n"), "")
        case "json":
            output.out_json({EVIL: [EVIL]})
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\x9b" not in printed
    assert "\r" not in printed
    assert printed.count("\n") == (3 if way == "table" else 1)


def test_counts_have_the_right_plural() -> None:
    assert [plural(count, "file") for count in (0, 1, 2, 1234)] == ["0 files", "1 file", "2 files", "1,234 files"]
    assert [plural(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]


def test_ranges_of_one_number_are_that_number() -> None:
    assert (number_range(3, 3), number_range(5, 12)) == ("3", "5 to 12")
    assert number_ranges([(3, 3), (5, 12)]) == "3, 5 to 12"


TIME = "2026-11-19T22:07:08.511Z"
ROWS = [
    {"time": TIME, "what": "a rewind of three batches", "files": 1234, "id": "20261119T220708.511000Z-4"},
    {"time": TIME, "what": "undone", "files": 5, "id": None},
]


def test_a_table_is_folded_at_spaces_only() -> None:
    lines = table_lines(ROWS, ("time", "what", "files", "id"), 80)
    assert lines == [
        "time                      what                  files  id",
        "2026-11-19T22:07:08.511Z  a rewind of three     1,234  20261119T220708.511000Z-4",
        "                          batches",
        "2026-11-19T22:07:08.511Z  undone                    5  –",
    ]
    assert max(map(len, table_lines(ROWS, ("time", "what", "files", "id")))) > 80


def test_a_table_that_would_break_a_value_is_printed_as_blocks() -> None:
    assert table_lines(ROWS, ("time", "what", "files", "id"), 40) == [
        "time   2026-11-19T22:07:08.511Z",
        "what   a rewind of three batches",
        "files  1,234",
        "id     20261119T220708.511000Z-4",
        "",
        "time   2026-11-19T22:07:08.511Z",
        "what   undone",
        "files  5",
        "id     –",
    ]


@given(
    st.lists(st.lists(st.text("ab -:/", max_size=30), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(20, 100),
)
def test_no_width_breaks_a_word_of_a_table(cells: list[list[str]], width: int) -> None:
    rows = [dict(zip("xyz", row, strict=True)) for row in cells]
    words = [word for line in table_lines(rows, "xyz", width) for word in line.split()]
    for row in cells:
        assert {word for cell in row for word in cell.split()} <= set(words)


def test_parts_that_do_not_fit_are_in_further_lines() -> None:
    parts = ["visit-counts batch 3", "3 rows in 1.6 s", "watermark 2025-09-04T04:52Z", "state 2 rows"]
    assert folded(parts) == "  ".join(parts)
    assert folded(parts, 80) == "  ".join(parts)
    assert folded(parts, 60) == "visit-counts batch 3  3 rows in 1.6 s\n  watermark 2025-09-04T04:52Z  state 2 rows"
