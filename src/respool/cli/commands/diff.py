"""`respool diff`: compare what two runs wrote."""

from typing import Annotated

import typer

from respool.cli.options import BROKEN, BootstrapServers, Home, Json, Master, SavepointsOption, Storage, load
from respool.cli.render.output import out_json, print_note, print_result, width


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A checkpoint (name, folder or URL), kafka:TOPIC, or delta:TABLE.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with, named in the same way.")],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SAVEPOINT",
            help="Only results written after this savepoint.  [default: that of the fork, if A or B is a fork]",
        ),
    ] = None,
    since_batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only results of later batches, according to the records' headers."),
    ] = None,
    since_time: Annotated[
        str | None,
        typer.Option(metavar="T", help="Only results written at or after this time, in ISO 8601."),
    ] = None,
    since_version: Annotated[
        int | None, typer.Option(metavar="V", min=0, help="Only rows that have changed since this version of table A.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that identifies a row, instead of the recorded key; repeatable."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; repeatable.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many rows of each kind of difference to print.")
    ] = 20,
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write all differences to this new folder, as Parquet.")
    ] = None,
    master: Master = None,
    savepoints: SavepointsOption = None,
    bootstrap_servers: BootstrapServers = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare what two runs wrote, by key.

    Prints the rows that differ, the rows that only one side has, and a summary. Rows are compared by their keys, the
    newest of each; columns by their values. Exit code 3 if something differs.
    """
    from respool.operations.diff import diff as compare

    report = compare(
        a,
        b,
        since=since,
        since_batch=since_batch,
        since_time=since_time,
        since_version=since_version,
        key=key or (),
        ignore=ignore or (),
        limit=limit,
        output=output,
        settings=load(
            storage=storage, home=home, bootstrap_servers=bootstrap_servers, master=master, savepoints=savepoints
        ),
        on_note=print_note,
    )
    if json:
        out_json(report.to_json())
    else:
        print_result(report.text(width=width()))
    if report.different:
        raise typer.Exit(BROKEN)
