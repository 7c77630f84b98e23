"""The result of a comparison, as values, text and JSON."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from respool.comparing.model import ComparedOutput, Cutoff, DiffRequest, DiffSummary, RowDifference
from respool.comparing.rows import unequal
from respool.text import UNLIMITED, plural, table_lines
from respool.times import time_text
from respool.untrusted import parse_json

_WORDS = {"differ": "differs", "only_a": "only in A", "only_b": "only in B"}


@dataclass(frozen=True, repr=False)
class DiffReport:
    """The result of a comparison.

    >>> report = respool.diff("kafka:totals", "kafka:totals-v2")
    >>> report.summary.equal, report.different
    (6, 0)

    Attributes:
        request: What was compared.
        summary: The counts.
        differences: The first differences of each verdict, by key.
        output: The folder to which all differences were written; None for no folder.
    """

    request: DiffRequest
    summary: DiffSummary
    differences: tuple[RowDifference, ...]
    output: str | None = None

    @property
    def different(self) -> int:
        """The number of rows that are not equal."""
        return self.summary.different

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader needs in order to judge the differences."""
        a, b = self.request.a.position, self.request.b.position
        reason = unequal(a, b) if a is not None and b is not None else None
        return (f"{reason}: differences may come from that.",) if reason else ()

    def __repr__(self) -> str:
        """Return it in a line."""
        a, b = self.request.a.address, self.request.b.address
        return f"DiffReport({a!r}, {b!r}, equal={self.summary.equal}, different={self.different})"

    def __str__(self) -> str:
        """Return what `respool diff` prints."""
        return self.text()

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return what `respool diff` prints, in tables of at most this many characters a line."""
        request, summary = self.request, self.summary
        head = [("A", _side_text(request.a)), ("B", _side_text(request.b))]
        head += [("since", text) for text in [_since_text(request.since)] if text]
        head += [("note", note) for note in self.notes]
        lines = [*(f"{name:<7}{text}" for name, text in head), "", *self._rows(width)]
        if summary.columns:
            columns = [{"column": name, "rows that differ": count} for name, count in summary.columns.items()]
            lines += [*table_lines(columns, ("column", "rows that differ"), width), ""]
        equal = f"{plural(summary.equal, 'row')} equal"
        differ = f"{summary.differ:,} differ{'s' * (summary.differ == 1)}"
        lines.append(f"{equal}, {differ}, {summary.only_a:,} only in A, {summary.only_b:,} only in B.")
        if self.output is not None:
            lines.append(f"All differences are in {self.output}.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool diff --json` prints."""
        request, summary = self.request, self.summary
        since = {name: value for name, value in asdict(request.since).items() if value is not None}
        if request.since.time is not None:
            since["time"] = request.since.time.isoformat()
        return {
            "a": _side_json(request.a),
            "b": _side_json(request.b),
            "since": since,
            "notes": list(self.notes),
            "equal": summary.equal,
            "differ": summary.differ,
            "only_a": summary.only_a,
            "only_b": summary.only_b,
            "columns": dict(summary.columns),
            "differences": [_difference_json(row) for row in self.differences],
            "output": self.output,
        }

    def _rows(self, width: int) -> Iterator[str]:
        rows = [_row(self.request, difference) for difference in self.differences]
        if rows:
            several = any(difference.rows > 1 for difference in self.differences)
            names = ("verdict", *(["rows"] if several else []), "key", "columns")
            yield from table_lines(rows, [name for name in names if any(row[name] is not None for row in rows)], width)
        for verdict, words in _WORDS.items():
            shown = sum(difference.rows for difference in self.differences if difference.verdict == verdict)
            more = getattr(self.summary, verdict) - shown
            if more:
                yield f"… and {more:,} more {'that differ' if verdict == 'differ' else words}"
        if rows:
            yield ""


def _side_text(side: ComparedOutput) -> str:
    text = str(side)
    if side.pipeline:
        text += f", of the pipeline {side.pipeline}"
    position = side.position
    if position is not None:
        text += ": no batch yet" if position.batch is None else f": batch {position.batch:,}"
        text += f", watermark {time_text(position.watermark)}" if position.watermark else ""
    return text


def _since_text(since: Cutoff) -> str:
    texts = [
        since.batch is not None and f"batch {since.batch:,}",
        since.time is not None and time_text(since.time),
        since.version is not None and f"version {since.version:,} of {since.output or 'A'}",
    ]
    return ", ".join(text for text in texts if text)


def _row(request: DiffRequest, difference: RowDifference) -> dict[str, Any]:
    if difference.verdict == "differ":
        pairs = difference.columns.items()
        columns = ", ".join(f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in pairs)
    else:
        key = request.key_columns() or request.a.key or request.b.key
        columns = _words(difference.a or difference.b or {}, key if difference.key is not None else ())
    verdict = _WORDS[difference.verdict]
    return {"verdict": verdict, "rows": difference.rows, "key": _key(difference.key), "columns": columns}


def _key(text: str | None) -> str | None:
    """Return a key as text: the columns of a JSON object, any other key unchanged."""
    if text is None or not text.startswith("{"):
        return text
    try:
        key = parse_json(text)
    except ValueError:
        return text
    return _words({name: json.dumps(value, ensure_ascii=False) for name, value in key.items()}, ())


def _words(row: Mapping[str, str], without: Collection[str]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in row.items() if name not in without)


def _value(text: str | None) -> str:
    """Return a JSON value as text."""
    if text is None:
        return "–"
    return str(json.loads(text)) if text.startswith('"') else text


def _side_json(side: ComparedOutput) -> dict[str, Any]:
    position = side.position
    return {
        "output": side.address,
        "pipeline": side.pipeline or None,
        "batch": position and position.batch,
        "watermark": position and position.watermark and position.watermark.isoformat(),
        "offsets": position and {f"{topic}-{number}": end for (topic, number), end in sorted(position.ends.items())},
    }


def _difference_json(difference: RowDifference) -> dict[str, Any]:
    def read(text: str | None) -> Any:
        return None if text is None else json.loads(text, parse_float=_exact)

    def row(columns: Mapping[str, str] | None) -> dict[str, Any] | None:
        return None if columns is None else {name: read(value) for name, value in columns.items()}

    return {
        "verdict": difference.verdict,
        "key": difference.key,
        "rows": difference.rows,
        "a": row(difference.a),
        "b": row(difference.b),
        "columns": {name: [read(value) for value in pair] for name, pair in difference.columns.items()},
    }


def _exact(text: str) -> float | str:
    """Return a number, or its text when a float would round it."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text
