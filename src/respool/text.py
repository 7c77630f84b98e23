"""Text from records and files, made safe to print on a terminal."""

import re
from collections.abc import Iterable, Sequence

# Control characters (C0, DEL and C1: they move the cursor, set titles, send answers), characters that reverse the
# direction of what follows, separators of lines, and halves of surrogate pairs, which cannot be encoded.
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
