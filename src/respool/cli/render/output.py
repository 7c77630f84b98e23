"""How commands print: results to standard output as tables, text or JSON; messages to standard error."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from shutil import get_terminal_size
from typing import Any, TextIO

from respool.cli.render.log_lines import json_lines
from respool.text import UNLIMITED, printable, printable_json, table_lines
from respool.text import size as size


def width() -> int:
    """Return how wide a line can be: the terminal's width; unlimited without a terminal."""
    return get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def note_width() -> int:
    """Return how wide a line on standard error can be: the terminal's width; unlimited without a terminal."""
    if not sys.stderr.isatty():
        return UNLIMITED
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns
    return get_terminal_size().columns


def print_note(message: str) -> None:
    """Print a note to standard error: standard output is for results."""
    if (lines := json_lines()) is not None:
        lines.emit("info", "respool", message)
    else:
        _print(printable(message), sys.stderr)


def print_error(message: str) -> None:
    """Print why a command fails."""
    if (lines := json_lines()) is not None:
        lines.emit("error", "respool", message)
    else:
        print_note(f"error: {message}")


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

    On a terminal that is too narrow, the widest columns are folded, or each row becomes a block of lines.
    """
    rows = list(rows)
    if not rows:
        print_result(empty)
        return
    start, end = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    # The cells are safe; the title may be bold.
    _print("\n".join(table_lines(rows, columns, width(), lambda line: f"{start}{line}{end}")), sys.stdout)


def throttled(what: str) -> Callable[[int, int], None]:
    """Return a progress callback that prints at most every two seconds."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 2:
            last = time.monotonic()
            print_note(f"{done:,} of {total:,} {what} …")

    return report


def print_plan(plan: object) -> None:
    """Print a plan."""
    print_result(str(plan))


@contextmanager
def slices() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows how many slices are done, when there are several.

    On a terminal it draws a bar; elsewhere it prints at most twenty lines.
    """
    with ExitStack() as stack:
        move: Callable[[int], None] | None = None

        def report(done: int, total: int) -> None:
            nonlocal move
            if total == 1:
                return
            if sys.stderr.isatty():
                move = move or bar(stack, total)
                move(done)
            elif done % max(total // 20, 1) == 0 or done == total:
                print_note(f"slice {done:,} of {total:,}")

        yield report


class DownloadHandler(logging.Handler):
    """Shows the download of jars, which is logged: a bar on a terminal, elsewhere a line for every tenth jar."""

    def __init__(self) -> None:
        """Show nothing yet."""
        super().__init__(logging.INFO)
        self._stack = ExitStack()
        self._move: Callable[[int], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show how many jars have been downloaded."""
        if json_lines() is not None:  # which have all records
            return
        done, total = getattr(record, "done", None), getattr(record, "total", 0)
        if done is None:
            print_note(record.getMessage())
        elif sys.stderr.isatty():
            self._move = self._move or bar(self._stack, total, "jars", remaining=False)
            self._move(done)
            if done == total:
                self.close()
        elif done % 10 == 0 and done < total:
            print_note(record.getMessage())

    def close(self) -> None:
        """Remove the bar."""
        self._move = None
        self._stack.close()
        super().close()


def bar(stack: ExitStack, total: int | None, label: str = "", *, remaining: bool = True) -> Callable[[int], None]:
    """Draw a progress bar on standard error until the stack closes, and return a callback for how many are done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[str | ProgressColumn] = [
        BarColumn(),
        MofNCompleteColumn(),
        *([label] if label else []),
        TimeElapsedColumn(),
    ]
    if remaining:
        columns.append(TimeRemainingColumn())
    drawn = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = drawn.add_task("", total=total)
    return lambda done: drawn.update(task, completed=done)
