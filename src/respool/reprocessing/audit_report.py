"""The result of an audit, as values, text and JSON."""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from respool.pipeline.results import Events, Sessions, Windows
from respool.reprocessing.comparison import DIFFERENT, AuditVerdict
from respool.reprocessing.plan import ReprocessPlan, results_of
from respool.text import UNLIMITED, plural, table_lines
from respool.times import Span, time_text
from respool.untrusted import Malformed, parse_json


@dataclass(frozen=True)
class AuditDifference:
    """A published result that differs from the result computed from the archive.

    Attributes:
        verdict: `wrong`; `missing`, not published; `extra`, published though the archive has no such result.
        start: The start of its window or session.
        end: The end of its window or session.
        key: Its key, as text.
        published: The published result, as text.
        archived: The result computed from the archive, as text.
        late: The number of its records that were read after it was published; None when that is not known. All records
            of a result that was not published.
        records: The first of these records, as topic-partition:offset.
    """

    verdict: AuditVerdict
    start: datetime
    end: datetime
    key: str
    published: str | None
    archived: str | None
    late: int | None
    records: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class AuditReport:
    """The result of an audit.

    >>> respool.audit(plan)
    AuditReport('visit-counts', compared=6, different=0, fixed=0)

    Attributes:
        plan: The plan of the audited span.
        counts: The number of results of each verdict.
        late: The number of late records of the differences, as far as it is known.
        differences: The first differences, by time.
        fixed: The number of corrected results.
    """

    plan: ReprocessPlan
    counts: Counter[AuditVerdict] = field(default_factory=Counter)
    late: int = 0
    differences: tuple[AuditDifference, ...] = ()
    fixed: int = 0

    @property
    def different(self) -> int:
        """The number of results that differ."""
        return sum(self.counts[verdict] for verdict in DIFFERENT)

    @property
    def compared(self) -> int:
        """The number of compared results."""
        return self.counts.total()

    def __repr__(self) -> str:
        """Return it in a line."""
        return (
            f"AuditReport({self.plan.pipeline.name!r}, compared={self.compared}, different={self.different}, "
            f"fixed={self.fixed})"
        )

    def __str__(self) -> str:
        """Return what `respool audit` prints after the plan."""
        return self.text()

    def text(self, *, width: int = UNLIMITED) -> str:
        """Return what `respool audit` prints after the plan, in lines of at most this many characters."""
        result = _name_of(self.plan.pipeline.results)
        rows = [_row(self.plan, difference) for difference in self.differences]
        lines: list[str] = []
        if rows:
            columns = [name for name in ("verdict", result, "key") if any(row.get(name) for row in rows)]
            lines += table_lines(rows, (*columns, "published", "archived", "late", "records"), width)
        if self.different > len(rows):
            lines.append(f"… and {self.different - len(rows):,} more")
        counts = self.counts
        lines.append(
            f"{plural(self.compared, result)} compared: {counts['wrong']:,} wrong, {counts['missing']:,} missing, "
            f"{counts['extra']:,} unexpected; {plural(self.late, 'late record')}."
        )
        if self.fixed:
            lines.append(f"{plural(self.fixed, 'result')} corrected.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool audit --json` prints."""
        differences = [
            {**asdict(row), "start": row.start.isoformat(), "end": row.end.isoformat()} for row in self.differences
        ]
        return {
            "plan": self.plan.to_json(),
            "compared": self.compared,
            **{verdict: self.counts[verdict] for verdict in ("same", "wrong", "missing", "extra")},
            "late": self.late,
            "fixed": self.fixed,
            "differences": differences,
        }


def _row(plan: ReprocessPlan, difference: AuditDifference) -> dict[str, Any]:
    results = results_of(plan.pipeline)
    sink_key: tuple[str, ...] = getattr(plan.pipeline.sink, "key", ())
    whose = (
        list(results.key) if isinstance(results, Sessions) else [name for name in sink_key if name != results.column]
    )
    published, archived = (_fields(text) for text in (difference.published, difference.archived))
    either = archived or published or {}
    late = difference.late
    return {
        "verdict": difference.verdict,
        _name_of(results): _time_of(difference, plan),
        "key": _words({name: either[name] for name in whose if name in either}, ()),
        "published": _words(published, sink_key),
        "archived": _words(archived, sink_key),
        "late": late,
        "records": ", ".join(difference.records) + (" …" if late and late > len(difference.records) else ""),
    }


def _name_of(results: object) -> str:
    """Return what a result is called."""
    return "window" if isinstance(results, Windows) else "event" if isinstance(results, Events) else "session"


def _time_of(difference: AuditDifference, plan: ReprocessPlan) -> str:
    if isinstance(plan.pipeline.results, Events):
        return time_text(difference.start.astimezone(plan.zone))
    return Span(difference.start, difference.end).text(plan.zone)


def _fields(text: str | None) -> dict[str, Any] | None:
    """Return the fields of a result; `value` when it is not a JSON object: others can write to its topic, too."""
    if text is None:
        return None
    try:
        value = parse_json(text)
    except Malformed:
        value = text
    return value if isinstance(value, dict) else {"value": value}


def _words(fields: dict[str, Any] | None, without: Collection[str]) -> str | None:
    if fields is None:
        return None
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if name not in without)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
