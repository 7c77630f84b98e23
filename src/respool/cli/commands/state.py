"""`respool state`: what a query remembers, as a table."""

import json as json_
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from respool.cli.options import Home, Json, load
from respool.cli.render.output import out_json, print_note, print_result, table
from respool.errors import UsageError
from respool.operations.context import locate

if TYPE_CHECKING:
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.checkpoint.state.reader import StateRows
    from respool.checkpoint.state.selection import StateReading
    from respool.format.model import InclusiveRange
    from respool.settings import Settings

_SHOWN = 100


def state(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A pipeline's name, a folder, or a URL such as s3://…")],
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The state after this batch.  [default: the newest finished]")
    ] = None,
    operator: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The stateful operator.  [default: the only one]")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="NAME", help="A store; of a join also left or right: the rows of that side.")
    ] = None,
    var: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A variable of transformWithState.  [default: the only one]"),
    ] = None,
    timers: Annotated[bool, typer.Option("--timers", help="The registered timers of transformWithState.")] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only rows with this value, as window.start=2024-01-01T01:00Z."),
    ] = None,
    changes: Annotated[
        str | None, typer.Option(metavar="FROM..TO", help="What these batches changed, the last one included.")
    ] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="N|all", help="How many rows to show.  [default: 100; of an output, all]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to a new .parquet, .json, .jsonl or .csv file.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Zone of times, shown and given.  [default: the pipeline's]")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]; RESPOOL_MASTER]")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the state of a query as a table, at any kept batch; the query may run meanwhile.

    When there is more than one thing to read and none is named, what there is is listed.
    """
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.checkpoint.state.selection import StateSelection, select_state
    from respool.storage.open import open_reader

    settings = load(home=home, master=master)
    shown = _limit(limit, output)
    only = _keys(key or [])
    wanted = StateSelection(batch, operator, store, var, timers, _changes(changes))
    where = locate(path, settings)
    checkpoint = CheckpointSnapshot(open_reader(where))
    alone = wanted == StateSelection() and not only and output is None
    if alone and _list_choices(checkpoint, json):
        return
    reading = select_state(checkpoint, wanted)
    zone = ZoneInfo(_zone(checkpoint, timezone or settings.timezone))
    if output is not None:
        _write(settings, reading, only, zone, output, json)
    else:
        _show(settings, reading, only, zone, shown, json)


def _show(
    settings: "Settings",
    reading: "StateReading",
    only: dict[str, str],
    zone: tzinfo,
    limit: int | None,
    json: bool,
) -> None:
    from respool.checkpoint.state.reader import rows
    from respool.spark.session import spark_session

    print_note(f"Starting Spark ({settings.master}) …")
    with spark_session(settings) as spark:
        found = rows(spark, reading, only, zone, limit)
    if json:
        plain = [{name: _plain(value, zone) for name, value in row.items()} for row in found.rows]
        out_json({**_facts(reading), "total": found.total, "columns": found.columns, "rows": plain})
        return
    print_result(_title(reading))
    print_result("")
    cells = [{name: _text(value, zone) for name, value in row.items()} for row in found.rows]
    table(cells, found.columns, _nothing(reading, only))
    _tell_rest(found)


def _write(
    settings: "Settings", reading: "StateReading", only: dict[str, str], zone: tzinfo, output: Path, json: bool
) -> None:
    from respool.checkpoint.state.reader import check_output, write
    from respool.spark.session import spark_session

    check_output(output)
    print_note(f"Starting Spark ({settings.master}) …")
    with spark_session(settings) as spark:
        count = write(spark, reading, only, zone, output)
    if json:
        out_json({**_facts(reading), "total": count, "output": str(output)})
    else:
        print_result(f"{_title(reading)}: {count:,} row{'s' * (count != 1)} written to {output}")


def _list_choices(checkpoint: "CheckpointSnapshot", json: bool) -> bool:
    """List what can be read when it is more than one thing; return whether it was."""
    from respool.checkpoint.state.operators import choices, operators, readable
    from respool.checkpoint.state.selection import newest
    from respool.format.model import spans_text

    there = operators(checkpoint, newest(checkpoint))
    found = choices(there)
    plain = [one for one in found if one.option != "--timers"]
    if len(plain) < 2:
        return False
    rows = [
        {
            "operator": one.operator.number,
            "kind": one.operator.kind,
            "read it with": (f"--operator {one.operator.number} " * (len(there) > 1) + one.option).strip(),
            "holds": one.holds,
        }
        for one in found
    ]
    batches = readable(checkpoint)
    if json:
        keys = ("operator", "kind", "options", "holds")
        out_json(
            {
                "checkpoint": checkpoint.root,
                "batches": [[one.first, one.last] for one in batches],
                "choices": [dict(zip(keys, row.values(), strict=True)) for row in rows],
            }
        )
        return True
    print_result(f"There is more than one thing to read in {checkpoint.root}:")
    print_result("")
    table(rows, ("operator", "kind", "read it with", "holds"), "")
    print_result("")
    print_result(f"Batches that can be read: {spans_text(batches) or 'none'}")
    return True


def _limit(text: str | None, output: Path | None) -> int | None:
    if text is None:
        return _SHOWN
    if output is not None:
        raise UsageError("--limit is for what is shown; an output has all rows")
    if text == "all" or text == "0":
        return None
    if not text.isdecimal():
        raise UsageError(f"--limit {text}: expected a number, or all")
    return int(text)


def _keys(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--key {word}: expected NAME=VALUE")
        if name in found:
            raise UsageError(f"--key names {name} twice")
        found[name] = value
    return found


def _changes(text: str | None) -> "InclusiveRange | None":
    from respool.format.model import InclusiveRange

    if text is None:
        return None
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not last.isdecimal()):
        raise UsageError(f"--changes {text}: expected two batches, as 5..8, or one")
    return InclusiveRange(int(first), int(last if dots else first))


def _zone(checkpoint: "CheckpointSnapshot", asked: str | None) -> str:
    from respool.checkpoint.ownership import read_run_record
    from respool.settings import check_timezone

    if asked is not None:
        return check_timezone(asked)
    run = read_run_record(checkpoint.files)
    return check_timezone(run.timezone) if run and run.timezone else "UTC"


def _title(reading: "StateReading") -> str:
    what = f", {reading.what}" if reading.what else ""
    if reading.changes is None:
        when = f"State after batch {reading.batch:,}"
    elif reading.changes.first == reading.changes.last:
        when = f"Changes by batch {reading.batch:,}"
    else:
        when = f"Changes by batches {reading.changes.first:,} to {reading.changes.last:,}"
    return f"{when}, {reading.operator.place}{what}"


def _facts(reading: "StateReading") -> dict[str, Any]:
    changes = reading.changes
    return {
        "checkpoint": reading.root,
        "batch": reading.batch,
        "changes": None if changes is None else [changes.first, changes.last],
        "operator": reading.operator.number,
        "kind": reading.operator.kind,
        "of": reading.what or None,
    }


def _nothing(reading: "StateReading", only: dict[str, str]) -> str:
    if only:
        return "No row has these values."
    return "The state is empty." if reading.changes is None else "Nothing was changed."


def _tell_rest(found: "StateRows") -> None:
    more = found.total - len(found.rows)
    if more:
        print_result("")
        print_result(f"… and {more:,} more of {found.total:,} rows; --limit all shows them, --output FILE writes them.")


def _text(value: Any, zone: tzinfo) -> Any:
    """Return a value as a cell of a table."""
    from respool.times import time_text

    if isinstance(value, datetime):
        return time_text(value.astimezone(zone)) if value.tzinfo else value.isoformat(" ")
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
        return {name: _plain(one, zone) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, zone) for one in value]
    return value
