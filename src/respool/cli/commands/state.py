"""`respool state`: the state of a query as a table."""

from pathlib import Path
from typing import Annotated

import typer

from respool.cli.options import Home, Json, Master, Storage, Where, load
from respool.cli.render.output import print_note
from respool.errors import UsageError
from respool.untrusted import is_decimal

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
    """Show the state of a query as a table, at any kept batch; the query may run meanwhile.

    When the state has several tables and none is named, they are listed.
    """
    from respool.cli.render import state as render
    from respool.operations.checkpoint import Checkpoint

    shown, where, span = _limit(limit, output), _keys(key or []), _changes(changes)
    checkpoint = Checkpoint(path, settings=load(storage=storage, home=home, master=master))
    named = (option is not None for option in (batch, operator, store, var, changes, output))
    if not (any(named) or timers or key):
        choices = checkpoint.state_choices()
        if choices.is_ambiguous:
            render.print_choices(choices, json)
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
        render.print_written(query, output, query.write(output, on_note=print_note), json)
    else:
        render.print_rows(query, query.rows(shown, on_note=print_note), json)


def _limit(text: str | None, output: Path | None) -> int | None:
    if text is None:
        return _SHOWN
    if output is not None:
        raise UsageError("--limit is for what is shown; an output has all rows")
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
