"""The bounds of the typed reader, and what its messages say of a value."""

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from respool.untrusted import (
    LONG,
    Fields,
    Malformed,
    decimal,
    file_name,
    is_decimal,
    parse_json,
    relative_path,
    whole_number,
)

TIME = "2025-09-04T07:30:00+00:00"


def message(work: Callable[[], object]) -> str:
    with pytest.raises(Malformed) as caught:
        work()
    return str(caught.value)


def test_json_is_utf_8() -> None:
    assert parse_json('"é"'.encode()) == "é"
    assert "UTF-8" in message(lambda: parse_json('"é"'.encode("utf-16")))


@pytest.mark.parametrize("text", ['["\\ud800", [1]]', '[["\\ud800"], ["x"]]', '[{"a": "\\ud800"}, ["x"]]'])
def test_half_a_character_is_noticed_at_every_place(text: str) -> None:
    assert "surrogate" in message(lambda: parse_json(text))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ("", "an empty text"),
        ("abc", "'abc'"),
        ("\x1b[1mé", r"'\x1b[1m\xe9'"),
        ({}, "an object"),
        ([], "an array"),
        (1.5, "'1.5'"),
    ],
)
def test_a_message_says_what_was_found_and_what_was_expected(value: object, shown: str) -> None:
    assert message(lambda: Fields({"n": value}).whole("n")) == f"it: 'n' is {shown}; a whole number was expected"


def test_a_long_value_is_cut() -> None:
    assert message(lambda: decimal("x" * 60, "it")).startswith(f"it is '{'x' * 60}'; ")
    assert message(lambda: decimal("x" * 61, "it")).startswith(f"it is '{'x' * 60}\\u2026'; ")


@pytest.mark.parametrize("name", ["x", "x" * 255, "é" * 127 + "x", "...", ".x"])
def test_file_names_up_to_the_limit_of_file_systems(name: str) -> None:
    assert file_name(name) == name
    assert Fields({"f": name}).file_name("f") == name
    assert Fields({"f": name}).optional_file_name("f") == name


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "\ud800", "a\u2028b", "a\x9bb"])
def test_longer_names_and_names_that_a_terminal_acts_on_are_malformed(name: str) -> None:
    message(lambda: file_name(name))
    message(lambda: Fields({"f": name}).optional_file_name("f"))


def test_paths_up_to_4096_characters() -> None:
    longest = "x/" * 2047 + "xx"
    assert len(longest) == 4096
    assert relative_path(longest) == longest
    message(lambda: relative_path(longest + "x"))


def test_whole_numbers_of_a_long() -> None:
    fields = Fields({"zero": 0, "most": LONG, "more": LONG + 1, "less": -1})
    assert fields.whole("zero") == fields.optional_whole("zero") == whole_number(0, "it") == 0
    assert fields.whole("most") == fields.optional_whole("most") == LONG
    for name in ("more", "less"):
        message(lambda name=name: fields.whole(name))  # type: ignore[misc]
        message(lambda name=name: fields.optional_whole(name))  # type: ignore[misc]
    assert whole_number(-1, "it", least=-1) == -1


@pytest.mark.parametrize("value", [0, 1.5, -(2**63), 2**63, 127])
def test_numbers_of_the_jvm(value: float) -> None:
    assert Fields({"n": value}).number("n") == value


@pytest.mark.parametrize("value", [2**64, -(2**64), 1e300, 2**63 + 2**11, "1", None, True])
def test_other_numbers_are_malformed(value: object) -> None:
    message(lambda: Fields({"n": value}).number("n"))


@pytest.mark.parametrize("text", ["0", "007", "9" * 18, str(LONG)])
def test_digits_are_decimal(text: str) -> None:
    assert is_decimal(text)
    assert decimal(text, "it") == int(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1_0", "٣", "²", str(LONG + 1), "0" * 20, "1" * 5000, "x"])
def test_anything_else_is_not_decimal(text: str) -> None:
    assert not is_decimal(text)
    message(lambda: decimal(text, "it"))


def test_decimals_have_an_inclusive_bound() -> None:
    assert decimal("7", "it", most=7) == 7
    assert message(lambda: decimal("8", "it", most=7)) == "it is '8'; a whole number from 0 to 7 was expected"


OPTIONAL: list[tuple[str, Any, Any, Any]] = [
    ("optional_text", "a\nb", "a\nb", 1),
    ("optional_line", "a b", "a b", "a\nb"),
    ("optional_whole", 3, 3, "3"),
    ("optional_time", TIME, datetime(2025, 9, 4, 7, 30, tzinfo=timezone.utc), "yesterday"),
    ("optional_file_name", "a", "a", "a/b"),
]


@pytest.mark.parametrize(("kind", "value", "result", "wrong"), OPTIONAL)
def test_an_optional_field_is_missing_null_or_of_its_type(kind: str, value: Any, result: Any, wrong: Any) -> None:
    fields = Fields({"there": value, "null": None, "wrong": wrong})
    assert getattr(fields, kind)("there") == result
    assert getattr(fields, kind)("null") is None
    assert getattr(fields, kind)("missing") is None
    message(lambda: getattr(fields, kind)("wrong"))


def test_a_line_has_no_control_characters() -> None:
    fields = Fields({"good": "a b", "bad": "a\x1bb", "goods": ["a", "b"], "bads": ["a", "\x9b"], "mixed": ["a", 1]})
    assert fields.line("good") == "a b"
    assert fields.lines("goods") == fields.texts("goods") == ("a", "b")
    assert fields.texts("bads") == ("a", "\x9b")
    assert "control characters" in message(lambda: fields.line("bad"))
    assert "control characters" in message(lambda: fields.lines("bads"))
    message(lambda: fields.texts("mixed"))


def test_a_choice_must_be_one_of_the_allowed_values() -> None:
    assert message(lambda: Fields({"c": "z"}).choice("c", ("x", "y"))) == "it: 'c' is 'z'; one of x, y was expected"


def test_unknown_fields_are_malformed_in_strict_records() -> None:
    fields = Fields({"a": 1, "b": None}, "the file")
    fields.require_known(["a", "b", "c"])
    assert message(lambda: fields.require_known(["a"])) == "the file has an unknown field 'b'"


def test_objects_of_an_array() -> None:
    fields = Fields({"l": [{"n": 1}, {"n": 2}], "m": [{"n": 1}, 2]})
    assert fields.objects("l", lambda item: item.whole("n")) == (1, 2)
    assert re.match("it: an item of 'm' is '2'", message(lambda: fields.objects("m", lambda item: item.whole("n"))))


def test_numbers_by_name() -> None:
    assert Fields({"o": {"a": 0, "b": 2}}).whole_by_name("o") == {"a": 0, "b": 2}
    message(lambda: Fields({"o": {"a": -1}}).whole_by_name("o"))
