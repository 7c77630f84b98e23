"""Parse files that another party may have written.

Every JSON file that respool reads from a checkpoint, a savepoint, an archive or its home goes through `parse_json` and
`Fields`: size, encoding, depth, types, ranges, file names and paths are checked here and nowhere else. Invalid
content raises `Malformed`, a ValueError; the caller turns it into its own error with the file and the next step.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

T = TypeVar("T")

MAX_BYTES = 256 * 2**20  # of a file that is parsed as a whole
MAX_DEPTH = 100  # of nested arrays and objects; a schema of Spark reaches 30
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # characters that a terminal or a log acts on
LONG = 2**63 - 1  # the largest offset, batch id or time that the JVM can hold


class Malformed(ValueError):
    """The content of a file is invalid; the message states what was found and what was expected."""


def open_regular_file(file: Path) -> BinaryIO:
    """Open a regular file for reading; a device, which may never end, and a pipe, which may block, are refused.

    Raises:
        OSError: It cannot be read or is not a regular file; `strerror` has the reason.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(file))
    raise OSError(errno.EINVAL, "it is a device, a pipe or a socket; expected a regular file", str(file))


def read_regular_file(file: Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file; raise OSError when it cannot be read, is no regular file, or is larger."""
    with open_regular_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes; expected at most {most:,}", str(file))
        return stream.read()


def parse_json(data: bytes | str, max_bytes: int = MAX_BYTES) -> Any:
    """Return the value of a JSON text; raise Malformed when it is too large, too deep or not JSON."""
    if len(data) > max_bytes:
        raise Malformed(f"it has {len(data):,} bytes; at most {max_bytes:,} were expected")
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=_reject_constant)
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8 text") from None
    except RecursionError:
        raise Malformed(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(f"{_excerpt(text)} is not JSON ({error})") from None
    _check_depth_and_text(value)
    return value


def relative_path(value: object) -> str:
    """Return a relative path with `/` between its parts that cannot lead out of its folder; raise Malformed otherwise.

    This function does not check links: the folder's reader and writer refuse to follow them.
    """
    text = _path_text(value)
    if text.startswith("/") or any(part in ("", ".", "..") for part in text.split("/")):
        raise Malformed(f"{_excerpt(text)} is not a path inside its folder")
    return text


def file_name(value: object) -> str:
    """Return a single file name, without any folder; raise Malformed otherwise."""
    text = _path_text(value)
    if "/" in text or text in (".", ".."):
        raise Malformed(f"{_excerpt(text)} is not a file name")
    return text


class Fields:
    """A JSON object whose fields are read by type; a missing field or one of another type raises Malformed."""

    def __init__(self, value: object, what: str = "it") -> None:
        """Check that `value` is a JSON object; `what` names it in messages."""
        if not isinstance(value, Mapping):
            raise Malformed(f"{what} is {_kind(value)}; an object was expected")
        self._value: Mapping[str, Any] = value
        self._what = what

    def __contains__(self, name: str) -> bool:
        """Return whether a field is present and not null."""
        return self._value.get(name) is not None

    def names(self) -> list[str]:
        """Return the names of all fields."""
        return list(self._value)

    def require_known(self, names: Iterable[str]) -> None:
        """Raise Malformed when there is a field that is not in `names`: its meaning is unknown."""
        known = set(names)
        for name in self._value:
            if name not in known:
                raise Malformed(f"{self._what} has an unknown field {_excerpt(name)}")

    def any(self, name: str) -> Any:
        """Return a field of any type; raise Malformed when it is missing."""
        if name not in self._value:
            raise Malformed(f"{self._what} has no field {name!r}")
        return self._value[name]

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.any(name)
        return value if isinstance(value, str) else self._wrong(name, value, "a text")

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None when the field is missing or null."""
        return self.text(name) if name in self else None

    def line(self, name: str) -> str:
        """Return a text without control characters."""
        value = self.text(name)
        return self._wrong(name, value, "a text without control characters") if CONTROL.search(value) else value

    def optional_line(self, name: str) -> str | None:
        """Return a text without control characters, or None when the field is missing or null."""
        return self.line(name) if name in self else None

    def choice(self, name: str, choices: Iterable[T]) -> T:
        """Return the choice that equals a text."""
        value = self.text(name)
        for choice in choices:
            if choice == value:
                return choice
        return self._wrong(name, value, f"one of {', '.join(map(str, choices))}")

    def whole(self, name: str, least: int = 0, most: int = LONG) -> int:
        """Return a whole number within bounds."""
        return whole_number(self.any(name), f"{self._what}: {name!r}", least, most)

    def optional_whole(self, name: str, least: int = 0, most: int = LONG) -> int | None:
        """Return a whole number, or None when the field is missing or null."""
        return self.whole(name, least, most) if name in self else None

    def number(self, name: str) -> float:
        """Return a number."""
        value = self.any(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**63:
            self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.any(name)
        return value if isinstance(value, bool) else self._wrong(name, value, "true or false")

    def time(self, name: str) -> datetime:
        """Return a time with its UTC offset."""
        text = self.text(name)
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return self._wrong(name, text, "a time such as 2025-09-04T07:30:00+00:00")
        return value if value.tzinfo else self._wrong(name, text, "a time with its UTC offset")

    def optional_time(self, name: str) -> datetime | None:
        """Return a time, or None when the field is missing or null."""
        return self.time(name) if name in self else None

    def path(self, name: str) -> str:
        """Return a relative path that cannot lead out of its folder."""
        return relative_path(self.any(name))

    def file_name(self, name: str) -> str:
        """Return a single file name."""
        return file_name(self.any(name))

    def optional_file_name(self, name: str) -> str | None:
        """Return a single file name, or None when the field is missing or null."""
        return self.file_name(name) if name in self else None

    def nested(self, name: str) -> "Fields":
        """Return an object."""
        return Fields(self.any(name), f"{self._what}: {name!r}")

    def items(self, name: str, read: Callable[[Any], T]) -> tuple[T, ...]:
        """Return the items of an array, each read by a function that may raise Malformed."""
        value = self.any(name)
        if not isinstance(value, list):
            self._wrong(name, value, "an array")
        return tuple(read(item) for item in value)

    def objects(self, name: str, read: "Callable[[Fields], T]") -> tuple[T, ...]:
        """Return the items of an array of objects, each read by a function that may raise Malformed."""
        return self.items(name, lambda item: read(Fields(item, f"{self._what}: an item of {name!r}")))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return an array of texts."""
        return self.items(name, lambda item: item if isinstance(item, str) else self._wrong(name, item, "texts"))

    def lines(self, name: str) -> tuple[str, ...]:
        """Return an array of texts without control characters."""
        texts = self.texts(name)
        for text in texts:
            if CONTROL.search(text):
                self._wrong(name, text, "texts without control characters")
        return texts

    def text_by_name(self, name: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        value = self.nested(name)
        return {key: value.text(key) for key in value.names()}

    def whole_by_name(self, name: str) -> dict[str, int]:
        """Return an object whose values are whole numbers, zero or more."""
        value = self.nested(name)
        return {key: value.whole(key) for key in value.names()}

    def _wrong(self, name: str, value: object, expected: str) -> NoReturn:
        raise Malformed(f"{self._what}: {name!r} is {_kind(value)}; {expected} was expected")


def whole_number(value: object, what: str, least: int = 0, most: int = LONG) -> int:
    """Return a whole number within bounds; raise Malformed for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"{what} is {_kind(value)}; a whole number was expected")
    if not least <= value <= most:
        raise Malformed(f"{what} is {_excerpt(str(value))}; {least} to {most} was expected")
    return value


def decimal(text: str, what: str, most: int = LONG) -> int:
    """Return a whole number from its ASCII digits; raise Malformed for anything else, such as other alphabets' digits.

    `str.isdigit` and `int` accept more: signs, spaces, underscores and thousands of digits.
    """
    if is_decimal(text) and int(text) <= most:
        return int(text)
    raise Malformed(f"{what} is {_excerpt(text)}; a whole number from 0 to {most} was expected")


def is_decimal(text: str) -> bool:
    """Return whether a text is a whole number that the JVM can hold, in ASCII digits."""
    return len(text) <= 19 and text.isascii() and text.isdigit() and int(text) <= LONG


def _path_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed(f"{_kind(value)} is not a path")
    if not _is_encodable(value):
        raise Malformed(f"{_excerpt(value)} is not UTF-8 text")
    if len(value) > 4096 or any(len(part.encode()) > 255 for part in value.split("/")):
        raise Malformed(f"{_excerpt(value)} is too long for a path")
    if CONTROL.search(value) or "\\" in value:
        raise Malformed(f"{_excerpt(value)} has characters that a path must not have")
    return value


def _check_depth_and_text(value: object) -> None:
    """Raise Malformed for values that are nested too deep or contain unpaired surrogates, which cannot be encoded."""
    level: list[object] = [value]
    depth = 0
    while level:
        below: list[object] = []
        for item in level:
            if depth == MAX_DEPTH and isinstance(item, dict | list):
                raise Malformed(f"it is nested more than {MAX_DEPTH} levels deep")
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and not _is_encodable(item):
                raise Malformed(f"{_excerpt(item)} has an unpaired surrogate")
        level = below
        depth += 1


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not a JSON number")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _excerpt(value) if value else "an empty text"
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return _excerpt(str(value))


def _excerpt(text: str) -> str:
    """Return the start of a text in ASCII."""
    return ascii(text if len(text) <= 60 else f"{text[:60]}…")
