"""`respool archive`: show, verify and compact the table of all records."""

from typing import Annotated

import typer

from respool.cli.options import BROKEN, BootstrapServers, Commands, Home, Json, Storage, configured_pipeline, load
from respool.cli.render.output import out_json, print_note, print_result, throttled, width

app = typer.Typer(
    cls=Commands,
    help="Inspect, verify, repair and compact an archive of records.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TableOption = Annotated[
    str, typer.Option(metavar="PATH", help="The table; a relative path is under the home's archive folder.")
]
_DEFAULT = "visits_table"  # as that of respool.Archive


@app.command()
def show(
    table: TableOption = _DEFAULT,
    hours: Annotated[bool, typer.Option("--hours", help="Also list the hours of event time.")] = False,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the records, gaps, duplicates and files of an archive."""
    from respool.operations.archive import Archive

    contents = Archive(table, settings=load(storage=storage, home=home)).contents(on_progress=throttled("files read"))
    if json:
        out_json(contents.to_json(hours=hours))
    else:
        print_result(contents.text(hours=hours, width=width()))


@app.command()
def verify(
    table: TableOption = _DEFAULT,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Copy missing records from Kafka, and remove duplicate records."),
    ] = False,
    forget_lost_files: Annotated[
        bool,
        typer.Option("--forget-lost-files", help="With --fix: remove lost data files from the table's log."),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --fix: decode as this pipeline does, if the table does not record its decoder."
        ),
    ] = None,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Do not compare the table with Kafka.")] = False,
    bootstrap_servers: BootstrapServers = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check that every record is present once and readable. Exit code 3 if something is wrong."""
    from respool.operations.archive import Archive

    settings = load(storage=storage, home=home, bootstrap_servers=bootstrap_servers)
    archive = Archive(table, settings=settings)
    if fix:
        decoding = configured_pipeline(pipeline, [], settings) if pipeline else None
        repaired = archive.repair(
            forget_lost_files=forget_lost_files,
            pipeline=decoding,
            compare_with_kafka=not no_kafka,
            on_note=print_note,
            on_progress=throttled("files or offsets read"),
        )
        fields, text, report = repaired.to_json(), str(repaired), repaired.report
    else:
        report = archive.verify(compare_with_kafka=not no_kafka, on_progress=throttled("files or offsets read"))
        fields, text = report.to_json(), str(report)
    if json:
        out_json(fields)
    else:
        print_result(text)
    if not report.ok:
        raise typer.Exit(BROKEN)


@app.command()
def optimize(table: TableOption = _DEFAULT, storage: Storage = None, home: Home = None, json: Json = False) -> None:
    """Merge small data files into large files.

    Queries may keep running. Every day of event time is a separate commit. An interruption loses no record; the same
    command compacts the days that remain.
    """
    from respool.operations.archive import Archive

    result = Archive(table, settings=load(storage=storage, home=home)).compact(on_note=print_note)
    if json:
        out_json(result.to_json())
    else:
        print_result(str(result))
