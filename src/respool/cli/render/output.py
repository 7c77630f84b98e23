"""How commands print: results to standard output as tables, text or JSON; messages to standard error."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, TextIO

from respool.text import printable, printable_json
from respool.text import size as size

_NARROWEST = 12  # of a column that is folded
_UNLIMITED = 10_000


def width() -> int:
    """Return how wide a line can be: as wide as the terminal, as wide as it likes where there is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED


def print_note(message: str) -> None:
    """Print what happens to standard error: standard output is for results."""
    _print(printable(message), sys.stderr)


def print_result(text: str) -> None:
    """Print a result; control characters, which data may contain, are escaped."""
    _print(printable(text), sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def out_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    print_result(json_text(value))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print."""
    return printable_json(json.dumps(value, default=str, ensure_ascii=False))


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], empty: str) -> None:
    """Print rows as a table of the named columns, numbers to the right; `empty` when there are none.

    On a terminal that is too narrow, the widest columns are folded.
    """
    rows = list(rows)
    if not rows:
        print_result(empty)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    numbers = [all(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    widths = [max(len(_cell(name)), *(len(row[at]) for row in cells)) for at, name in enumerate(columns)]
    while sum(widths) + 2 * (len(widths) - 1) > width() and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    title = _line([_cell(name) for name in columns], widths, numbers)
    start, end = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    lines = [f"{start}{title}{end}"]
    for row in cells:
        lines += _folded(row, widths, numbers)
    # The cells are safe; the title may be bold.
    _print("\n".join(lines), sys.stdout)


def _folded(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> Iterator[str]:
    folds = [wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)]
    for cells in zip_longest(*folds, fillvalue=""):
        yield _line(cells, widths, numbers)


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    parts = zip(cells, widths, numbers, strict=True)
    return "  ".join(f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in parts).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value), keep="")


def throttled(what: str) -> Callable[[int, int], None]:
    """Return a progress callback that prints at most every two seconds."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 2:
            last = time.monotonic()
            print_note(f"{done:,} of {total:,} {what} …")

    return report
