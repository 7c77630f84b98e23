"""Text from records and files, made safe to print on a terminal."""

import re

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
