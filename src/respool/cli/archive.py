"""`respool archive`: look after the table of all records."""

from dataclasses import asdict
from typing import Annotated

import typer

from respool.cli.options import Home, Json, load
from respool.cli.render import out, out_json, say, size

app = typer.Typer(help="Look after the archive of all records.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _archive() -> None:
    """Keep `optimize` a subcommand, though it is the only one."""


@app.command()
def optimize(
    table: Annotated[
        str, typer.Option(metavar="PATH", help="The table; a relative path is one under the home's archive folder.")
    ] = "visits_table",
    home: Home = None,
    json: Json = False,
) -> None:
    """Make few large files of the many small ones that small batches leave. Queries may run meanwhile."""
    from respool.archive.table import locate, require
    from respool.archive.table import optimize as compact
    from respool.local.session import spark_session

    settings = load(home=home)
    path = locate(table, settings.home)
    require(path)
    say(f"Starting Spark ({settings.master}) to compact {path} …")
    with spark_session(settings) as spark:
        before, after = compact(spark, path)
    if json:
        out_json({"table": path, "before": asdict(before), "after": asdict(after)})
    else:
        out(f"Files: {before.files:,} → {after.files:,}  Bytes: {size(before.bytes)} → {size(after.bytes)}")
