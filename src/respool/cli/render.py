"""How results look: tables for people, JSON for programs, one voice for messages."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def say(message: str) -> None:
    """Tell the user what happens, on standard error: standard output is for results."""
    print(message, file=sys.stderr, flush=True)


def out(text: str) -> None:
    """Print a result."""
    print(text, flush=True)


def out_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    out(json.dumps(value, default=str, ensure_ascii=False))


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], empty: str) -> None:
    """Print rows as a table of the named columns, numbers to the right; `empty` when there are none."""
    rows = list(rows)
    if not rows:
        out(empty)
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = all(isinstance(row.get(column), int | float) for row in rows)
        drawn.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(row.get(column)) for column in columns))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 200
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
