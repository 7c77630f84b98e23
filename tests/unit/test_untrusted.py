import os
import re
from pathlib import Path

import pytest

from respool.untrusted import Fields, Malformed, file_name, parse_json, read_regular_file, relative_path


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b'{"a": -Infinity}',
        b"[" * 100_000,
        b"[" * 101 + b"]" * 101,
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"1" * 10_000,
    ],
)
def test_what_is_not_plain_json_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        parse_json(text)


def test_size_is_bounded() -> None:
    with pytest.raises(Malformed, match="at most 10"):
        parse_json(b" " * 10 + b"1", max_bytes=10)
    assert parse_json(b" " * 9 + b"1", max_bytes=10) == 1


def test_depth_up_to_the_bound_is_parsed() -> None:
    assert parse_json("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "a\0b",
        "a\nb",
        "a\\b",
        "x" * 256,
        "a/" * 3000,
        7,
        None,
    ],
)
def test_a_path_that_leads_out_of_its_folder_is_malformed(path: object) -> None:
    with pytest.raises(Malformed):
        relative_path(path)


def test_paths_of_a_checkpoint_are_accepted() -> None:
    for path in ("metadata", "state/0/1/2.delta", "offsets/.3.crc", "state/0/_metadata/v2/0", "a b/%41", "é"):
        assert relative_path(path) == path


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\x7f", 1])
def test_a_name_with_a_folder_is_malformed(name: object) -> None:
    with pytest.raises(Malformed):
        file_name(name)


class TestFields:
    fields = Fields(
        {"n": 3, "t": "x", "f": True, "o": {"k": "v"}, "l": [1], "d": "2025-09-04T07:30:00+00:00", "z": None, "r": 1.5}
    )

    def test_each_type_is_returned(self) -> None:
        assert self.fields.whole("n") == 3
        assert self.fields.text("t") == "x"
        assert self.fields.flag("f") is True
        assert self.fields.nested("o").text("k") == "v"
        assert self.fields.text_by_name("o") == {"k": "v"}
        assert self.fields.items("l", lambda item: item + 1) == (2,)
        assert self.fields.time("d").isoformat() == "2025-09-04T07:30:00+00:00"
        assert self.fields.number("r") == 1.5
        assert self.fields.optional_text("z") is None
        assert self.fields.optional_whole("missing") is None
        assert self.fields.choice("t", ("y", "x")) == "x"

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            ("whole", "t"),
            ("whole", "f"),
            ("whole", "z"),
            ("whole", "missing"),
            ("text", "n"),
            ("text", "z"),
            ("flag", "n"),
            ("nested", "l"),
            ("text_by_name", "t"),
            ("whole_by_name", "o"),
            ("texts", "l"),
            ("texts", "o"),
            ("time", "t"),
            ("time", "n"),
            ("number", "f"),
            ("path", "n"),
            ("optional_text", "n"),
        ],
    )
    def test_another_type_is_malformed(self, kind: str, name: str) -> None:
        with pytest.raises(Malformed):
            getattr(self.fields, kind)(name)

    def test_bounds_are_inclusive(self) -> None:
        assert self.fields.whole("n", least=3, most=3) == 3
        with pytest.raises(Malformed):
            self.fields.whole("n", least=4)
        with pytest.raises(Malformed):
            self.fields.whole("n", most=2)

    def test_a_time_without_an_offset_is_malformed(self) -> None:
        with pytest.raises(Malformed, match="UTC offset"):
            Fields({"d": "2025-09-04T07:30:00"}).time("d")

    @pytest.mark.parametrize("value", [None, [], "x", 1])
    def test_only_an_object_has_fields(self, value: object) -> None:
        with pytest.raises(Malformed):
            Fields(value)


def test_a_regular_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0\xff\r\n")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert read_regular_file(tmp_path / name) == read_regular_file(tmp_path / name, 4) == b"\0\xff\r\n"
    with pytest.raises(OSError, match=re.escape("it has 4 bytes; expected at most 3")) as raised:
        read_regular_file(tmp_path / "file", 3)
    assert raised.value.filename == str(tmp_path / "file")


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # nobody writes to it: an open that waits would never end
    for place in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(OSError, match=re.escape("it is a device, a pipe or a socket; expected a regular file")):
            read_regular_file(place)
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none")
