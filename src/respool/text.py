"""Text for people: safe to print on a terminal, counts, sizes and tables."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

UNLIMITED = 10_000  # characters of a line that is not folded
_LABEL = 13  # characters in front of a text that has a label

# Control characters (C0, DEL and C1: they move the cursor, set titles, send answers), characters that reverse the
# text direction, line separators, and unpaired surrogates, which cannot be encoded.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Return text with each unsafe character as an escape, such as \x1b or \u202e.

    Args:
        text: The text.
        keep: Unsafe characters that are left as they are.
    """
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def printable_json(text: str) -> str:
    r"""Return JSON with each unsafe character as \uXXXX: the same value."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def few(paths: Sequence[str], most: int = 3) -> str:
    """Return the first of many paths, and how many more there are."""
    more = len(paths) - most
    return ", ".join(paths[:most]) + (f" and {more:,} more" if more > 0 else "")


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Return a count with its noun: '1 file', '1,234 files'; `several` is a plural that does not just add an s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def number_range(first: int, last: int) -> str:
    """Return a range of numbers as text: '3', '5 to 12'."""
    return str(first) if first == last else f"{first} to {last}"


def number_ranges(pairs: Iterable[tuple[int, int]]) -> str:
    """Return ranges of numbers, each by its first and its last, as text: '3, 5 to 12'."""
    return ", ".join(number_range(first, last) for first, last in pairs)


def did_you_mean(word: str, choices: "list[str]") -> str:
    """Return ' Did you mean …?' for the choice nearest to `word`, or an empty string."""
    import difflib

    near = difflib.get_close_matches(word, choices, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def size(count: float) -> str:
    """Return a number of bytes in its largest unit, such as `3.1 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def labelled(label: str, text: str, width: int = UNLIMITED) -> str:
    """Return a line with its label in front; a longer text is folded."""
    first, *more = wrap(text, max(20, width - _LABEL), break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([f"{label:<{_LABEL - 1}} {first}", *(f"{' ' * _LABEL}{line}" for line in more)])


def folded(parts: Sequence[str], width: int = UNLIMITED) -> str:
    """Return parts in a line, two spaces apart; parts that do not fit are in further lines, indented."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def table_lines(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    width: int = UNLIMITED,
    title: Callable[[str], str] = str,
) -> list[str]:
    """Return rows as the lines of a table: the title, then the rows; numbers are aligned to the right.

    The widest columns are folded at spaces to fit, never inside a value such as a time or a name. Where that is not
    enough, each row is a block of lines, one for each of its values.

    Args:
        rows: The rows. Control characters in them are escaped.
        columns: The columns to show, in this order.
        width: The most characters of a line.
        title: Called with the line of the columns' names, to mark it.
    """
    names = [_cell(name) for name in columns]
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    numeric = [all(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    least = [max(map(_longest_word, column)) for column in zip(names, *cells, strict=True)]
    space = width - 2 * (len(columns) - 1)
    if sum(least) > space:
        return _blocks(names, cells, width)
    while sum(widths) > space:
        _, at = max((length, at) for at, length in enumerate(widths) if length > least[at])
        widths[at] -= 1
    lines = [title(line) for line in _folded(names, widths, numeric)]
    for row in cells:
        lines += _folded(row, widths, numeric)
    return lines


def _folded(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> Iterator[str]:
    folds = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for cells in zip_longest(*folds, fillvalue=""):
        yield _line(cells, widths, numeric)


def _blocks(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    room = max(map(len, names)) + 2
    lines: list[str] = []
    for row in cells:
        lines += [""] * bool(lines)
        for name, cell in zip(names, row, strict=True):
            first, *more = _wrapped(cell, max(20, width - room))
            lines += [f"{name:<{room}}{first}", *(f"{'':<{room}}{line}" for line in more)]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) if len(text) > width else [text]


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = zip(cells, widths, numeric, strict=True)
    return "  ".join(f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in parts).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value), keep="")
