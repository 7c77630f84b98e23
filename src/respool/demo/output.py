"""What a running pipeline printed, read back from its lines."""

import re
from dataclasses import dataclass

_VISIT = re.compile(
    r"Partition\[\d+\] > Printing visit=Row\(visit_id='(?P<visit>[^']*)', "
    r"event_time=datetime\.datetime\((?P<time>[\d, ]+)\), page='(?P<page>[^']*)'\)"
)
_BATCH = re.compile(
    r"^(?P<pipeline>\S+) batch (?P<batch>\d+)  (?P<rows>[\d,]+) rows(?:.*  watermark (?P<watermark>\S+ \S+))?"
)
_RULE = "-" * 43

Visit = tuple[str, str, str]


@dataclass(frozen=True)
class BatchLine:
    """A batch that `respool run` told of."""

    pipeline: str
    batch: int
    rows: int
    watermark: str | None


@dataclass(frozen=True)
class Table:
    """A batch on the console: its id, its columns, its rows sorted."""

    batch: int
    columns: str
    rows: tuple[str, ...]


def batch_lines(lines: list[str]) -> list[BatchLine]:
    """Return the batches that a command told of."""
    found = [one for line in lines if (one := _BATCH.match(line))]
    return [
        BatchLine(one["pipeline"], int(one["batch"]), int(one["rows"].replace(",", "")), one["watermark"])
        for one in found
    ]


def tables(lines: list[str]) -> list[Table]:
    """Return the batches on the console that are complete."""
    found: list[Table] = []
    for number, line in enumerate(lines):
        if line.startswith("Batch: ") and number and lines[number - 1].strip() == _RULE:
            # Batch lines of other pipelines may come in between; a table's own lines are framed.
            framed = [one.rstrip() for one in lines[number + 2 :] if one.startswith(("+", "|"))]
            borders = [place for place, one in enumerate(framed) if one.startswith("+")]
            if len(borders) >= 3:
                first, _, last = borders[:3]
                rows = [one for one in framed[first:last] if one.startswith("|")]
                found.append(Table(int(line.removeprefix("Batch: ")), rows[0], tuple(sorted(rows[1:]))))
    return found


def draw(batch: int, head: str, *rows: str) -> str:
    """Return a batch as the console shows it; `head` and rows are lines such as `|window|count|`."""
    border = "+" + "+".join("-" * len(column) for column in head.strip("|").split("|")) + "+"
    return "\n".join([_RULE, f"Batch: {batch}", _RULE, border, head, border, *rows, border, ""])


def is_visit(line: str) -> bool:
    """Return whether the micro-batch consumer printed this line for a visit."""
    return _VISIT.match(line) is not None


def printed_visits(lines: list[str]) -> list[Visit]:
    """Return the visits that the micro-batch consumer has printed."""
    found: list[Visit] = []
    for line in lines:
        one = _VISIT.match(line)
        if one:
            year, month, day, hour, minute, second = [*(int(part) for part in one["time"].split(",")), 0][:6]
            time = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
            found.append((one["visit"], time, one["page"]))
    return found
