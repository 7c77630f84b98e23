"""What `respool state` prints: tables, and JSON for programs."""

import json as json_
from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.cli.render.output import out_json, print_result, table

if TYPE_CHECKING:
    from respool.checkpoint.state.reader import StateRows
    from respool.checkpoint.state.selection import StateReading
    from respool.operations.state import StateChoices, StateQuery


def print_choices(choices: "StateChoices", json: bool) -> None:
    """Print what can be read when it is more than one table."""
    from respool.format.model import spans_text

    rows = choices.rows()
    if json:
        batches = [[span.first, span.last] for span in choices.batches]
        out_json({"checkpoint": choices.location, "batches": batches, "choices": rows})
        return
    print_result(f"There is more than one thing to read in {choices.location}:")
    print_result("")
    columns = ("operator", "kind", "read it with", "holds")
    table([{**row, "read it with": row["options"]} for row in rows], columns, "")
    print_result("")
    print_result(f"Batches that can be read: {spans_text(choices.batches) or 'none'}")


def print_rows(query: "StateQuery", rows: "StateRows", json: bool) -> None:
    """Print rows of the state, and how many more there are."""
    reading, zone = query.reading, query.zone
    if json:
        plain = [{name: _plain(value, zone) for name, value in row.items()} for row in rows.rows]
        out_json({**_reading_json(reading), "total": rows.total, "columns": rows.columns, "rows": plain})
        return
    print_result(_title(reading))
    print_result("")
    cells = [{name: _text(value, zone) for name, value in row.items()} for row in rows.rows]
    table(cells, rows.columns, _nothing(reading, query.where))
    more = rows.total - len(rows.rows)
    if more:
        print_result("")
        print_result(f"… and {more:,} more of {rows.total:,} rows; --limit all shows them, --output FILE writes them.")


def print_written(query: "StateQuery", output: Path, count: int, json: bool) -> None:
    """Print how many rows were written to a file."""
    if json:
        out_json({**_reading_json(query.reading), "total": count, "output": str(output)})
    else:
        print_result(f"{_title(query.reading)}: {count:,} row{'s' * (count != 1)} written to {output}")


def _title(reading: "StateReading") -> str:
    what = f", {reading.what}" if reading.what else ""
    if reading.changes is None:
        when = f"State after batch {reading.batch:,}"
    elif reading.changes.first == reading.changes.last:
        when = f"Changes by batch {reading.batch:,}"
    else:
        when = f"Changes by batches {reading.changes.first:,} to {reading.changes.last:,}"
    return f"{when}, {reading.operator.place}{what}"


def _reading_json(reading: "StateReading") -> dict[str, Any]:
    changes = reading.changes
    return {
        "checkpoint": reading.root,
        "batch": reading.batch,
        "changes": None if changes is None else [changes.first, changes.last],
        "operator": reading.operator.number,
        "kind": reading.operator.kind,
        "of": reading.what or None,
    }


def _nothing(reading: "StateReading", only: Mapping[str, str]) -> str:
    if only:
        return "No row has these values."
    return "The state is empty." if reading.changes is None else "Nothing was changed."


def _text(value: Any, zone: tzinfo) -> Any:
    """Return a value as a cell of a table."""
    from respool.times import time_text

    if isinstance(value, datetime):
        return time_text(value.astimezone(zone)) if value.tzinfo else value.isoformat()
    if isinstance(value, list | dict):
        return json_.dumps(_plain(value, zone), default=str, ensure_ascii=False)
    return _plain(value, zone)


def _plain(value: Any, zone: tzinfo) -> Any:
    """Return a value as JSON has it."""
    import base64

    if isinstance(value, datetime):
        aware = value.astimezone(zone) if value.tzinfo else value
        return aware.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(item, zone) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, zone) for item in value]
    return value
