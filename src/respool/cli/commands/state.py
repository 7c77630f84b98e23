"""`respool state`: the state of a query as a table."""

import json as json_
from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.options import Home, Json, Master, Storage, Where, load
from respool.cli.render.output import out_json, print_note, print_result, table
from respool.errors import UsageError
from respool.text import plural
from respool.untrusted import is_decimal

if TYPE_CHECKING:
    from respool.checkpoint.state.reader import StateRows
    from respool.checkpoint.state.selection import StateReading
    from respool.operations.checkpoint_results import StateChoices, StateQuery


_SHOWN = 100


def state(
    path: Where,
    batch: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The state after this batch.  [default: the newest finished batch]"),
    ] = None,
    operator: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The number of the stateful operator.  [default: the only operator]"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A state store. For a join also left or right: the rows of that side."),
    ] = None,
    var: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A state variable of transformWithState.  [default: the only variable]"),
    ] = None,
    timers: Annotated[bool, typer.Option("--timers", help="The registered timers of transformWithState.")] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only rows with this value, such as window.start=2024-01-01T01:00Z."),
    ] = None,
    changes: Annotated[
        str | None, typer.Option(metavar="FROM..TO", help="What these batches changed, both included.")
    ] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="N|all", help="How many rows to print.  [default: 100; with --output, all]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to a new .parquet, .json, .jsonl or .csv file.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of printed and given times.  [default: the pipeline's]"),
    ] = None,
    master: Master = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the state of a query as a table.

    After any kept batch; the query may run meanwhile. When the state has several tables and none is named, they are
    listed.
    """
    from respool.operations.checkpoint import Checkpoint

    shown, where, span = _limit(limit, output), _keys(key or []), _changes(changes)
    checkpoint = Checkpoint(path, settings=load(storage=storage, home=home, master=master))
    named = (option is not None for option in (batch, operator, store, var, changes, output))
    if not (any(named) or timers or key):
        choices = checkpoint.state_choices()
        if choices.is_ambiguous:
            print_choices(choices, json)
            return
    query = checkpoint.state_query(
        batch=batch,
        operator=operator,
        store=store,
        variable=var,
        timers=timers,
        changes=span,
        where=where,
        timezone=timezone,
    )
    if output is not None:
        print_written(query, output, query.write(output, on_note=print_note), json)
    else:
        print_rows(query, query.rows(shown, on_note=print_note), json)


def _limit(text: str | None, output: Path | None) -> int | None:
    if text is None:
        return _SHOWN
    if output is not None:
        raise UsageError("--limit limits what is shown; --output writes all rows")
    if text == "all" or text == "0":
        return None
    if not is_decimal(text):
        raise UsageError(f"--limit {text}: expected a number, or all")
    return int(text)


def _keys(words: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--key {word}: expected NAME=VALUE")
        if name in values:
            raise UsageError(f"--key names {name} twice")
        values[name] = value
    return values


def _changes(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not last.isdecimal()):
        raise UsageError(f"--changes {text}: expected two batches, as 5..8, or one")
    return int(first), int(last if dots else first)


def print_choices(choices: "StateChoices", json: bool) -> None:
    """Print what can be read when it is more than one table."""
    from respool.format.model import spans_text

    rows = choices.rows()
    if json:
        batches = [[span.first, span.last] for span in choices.batches]
        out_json({"checkpoint": choices.location, "batches": batches, "choices": rows})
        return
    print_result(f"The state of {choices.location} has several tables:")
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
        print_result(
            f"… and {more:,} more of {plural(rows.total, 'row')}; --limit all shows them, --output FILE writes them."
        )


def print_written(query: "StateQuery", output: Path, count: int, json: bool) -> None:
    """Print how many rows were written to a file."""
    if json:
        out_json({**_reading_json(query.reading), "total": count, "output": str(output)})
    else:
        print_result(f"{_title(query.reading)}: {plural(count, 'row')} written to {output}")


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
