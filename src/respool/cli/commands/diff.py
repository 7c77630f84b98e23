"""`respool diff`: what two runs wrote, side by side."""

import json as json_
from collections.abc import Collection, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.commands.audit import DIFFERS
from respool.cli.options import BootstrapServers, Home, Json, Savepoints, load
from respool.cli.render.output import out_json, print_note, print_result, table
from respool.errors import DiffError, UsageError
from respool.operations.diff import OutputLocator, check_request, since_fork, since_of, since_savepoint
from respool.operations.reprocess import Master

if TYPE_CHECKING:
    from respool.diff.model import ComparedOutput, Cutoff, DiffReport, DiffRequest, RowDifference

_WORDS = {"differ": "differs", "only_a": "only in A", "only_b": "only in B"}


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A checkpoint (name, folder or URL), kafka:TOPIC, or delta:TABLE.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What it is compared with, named in the same way.")],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SAVEPOINT",
            help="Only what came after this savepoint.  [default: the one of the fork, when a checkpoint is named that "
            "is one]",
        ),
    ] = None,
    since_batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only what later batches have sent, by the headers of records."),
    ] = None,
    since_time: Annotated[
        str | None,
        typer.Option(metavar="T", help="Only what was written at this time or later, in ISO 8601."),
    ] = None,
    since_version: Annotated[
        int | None, typer.Option(metavar="V", min=0, help="Only what has changed since this version of the table A.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that identifies a row, in place of the known key; repeatable."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave print_result; repeatable.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many rows are told in full, of each kind of difference.")
    ] = 20,
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A new folder for all differences, as Parquet.")
    ] = None,
    master: Master = None,
    savepoints: Savepoints = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare what two runs wrote: the rows that differ, the rows that only one has, and a summary.

    Rows are compared by their keys, the newest of each; columns by their values. Exit code 3 when something differs.
    """
    from respool.diff.model import DiffRequest

    settings = load(home=home, bootstrap_servers=bootstrap_servers, master=master, savepoints=savepoints)
    finder = OutputLocator(settings)
    sides = (finder.find(a), finder.find(b))
    moments = (since_batch, since_time, since_version)
    if since is not None and any(one is not None for one in moments):
        raise UsageError("--since names a moment itself: leave the other --since options out")
    forked = since_fork((a, b), settings) if since is None and all(one is None for one in moments) else None
    if since is not None:
        counts = since_savepoint(since, settings)
    elif forked is not None:
        counts, name = forked
        print_note(f"Only what came after the savepoint {name}, which the fork is from, is compared.")
    else:
        counts = since_of(*sides, since_batch, since_time, since_version, settings)
    request = DiffRequest(*sides, counts, tuple(key or ()), tuple(ignore or ()))
    report = _compare(finder, request, limit, output)
    if json:
        out_json(_report_json(request, report, output))
    else:
        _show(request, report, output)
    if report.summary.different:
        raise typer.Exit(DIFFERS)


def _compare(finder: OutputLocator, request: "DiffRequest", limit: int, output: str | None) -> "DiffReport":
    from respool.diff.compare import compare
    from respool.spark.files import is_occupied, is_occupied_for, locate_output
    from respool.spark.session import spark_session

    check_request(request)
    kafka = finder.kafka if "kafka" in (request.a.kind, request.b.kind) else None
    place = None if output is None else locate_output(output)
    occupied = DiffError(f"{place} is there already. Name a new folder with --output.")
    if place is not None and is_occupied(place):
        raise occupied
    print_note(f"Starting Spark ({finder.settings.master}) …")
    with spark_session(finder.settings) as spark:
        if place is not None and is_occupied_for(spark, place):
            raise occupied
        return compare(spark, kafka, request, limit, place)


def notes(request: "DiffRequest") -> list[str]:
    """Return what a reader must know to judge the differences."""
    from respool.diff.versions import unequal

    if request.a.reach is None or request.b.reach is None:
        return []
    found = unequal(request.a.reach, request.b.reach)
    return [f"{found}: differences may come from that."] if found else []


def _show(request: "DiffRequest", report: "DiffReport", output: str | None) -> None:
    lines = [("A", _side_text(request.a)), ("B", _side_text(request.b))]
    lines += [("since", text) for text in [_since_text(request.since)] if text]
    lines += [("note", note) for note in notes(request)]
    print_result("\n".join(f"{name:<7}{text}" for name, text in lines) + "\n")
    rows = [_row(request, one) for one in report.differences]
    if rows:
        names = ("verdict", *(["rows"] if any(one.rows > 1 for one in report.differences) else []), "key", "columns")
        table(rows, [name for name in names if any(row[name] is not None for row in rows)], empty="")
    summary = report.summary
    for verdict, words in _WORDS.items():
        more = getattr(summary, verdict) - sum(one.rows for one in report.differences if one.verdict == verdict)
        if more:
            print_result(f"… and {more:,} more {'that differ' if verdict == 'differ' else words}")
    if rows:
        print_result("")
    if summary.columns:
        table(
            [{"column": name, "rows that differ": count} for name, count in summary.columns.items()],
            ("column", "rows that differ"),
            empty="",
        )
        print_result("")
    equal = f"{summary.equal:,} row{'s' * (summary.equal != 1)} equal"
    differ = f"{summary.differ:,} differ{'s' * (summary.differ == 1)}"
    print_result(f"{equal}, {differ}, {summary.only_a:,} only in A, {summary.only_b:,} only in B.")
    if output is not None:
        print_result(f"All differences are in {output}.")


def _side_text(side: "ComparedOutput") -> str:
    from respool.times import time_text

    text = str(side)
    if side.pipeline:
        text += f", of the pipeline {side.pipeline}"
    reach = side.reach
    if reach is not None:
        text += ": no batch yet" if reach.batch is None else f": batch {reach.batch:,}"
        text += f", watermark {time_text(reach.watermark)}" if reach.watermark else ""
    return text


def _since_text(since: "Cutoff") -> str:
    from respool.times import time_text

    told = [
        since.batch is not None and f"batch {since.batch:,}",
        since.time is not None and time_text(since.time),
        since.version is not None and f"version {since.version:,} of {since.output or 'A'}",
    ]
    return ", ".join(text for text in told if text)


def _row(request: "DiffRequest", one: "RowDifference") -> dict[str, Any]:
    if one.verdict == "differ":
        told = ", ".join(f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in one.columns.items())
    else:
        known = request.key_columns() or request.a.key or request.b.key
        told = _words(one.a or one.b or {}, known if one.key is not None else ())
    return {"verdict": _WORDS[one.verdict], "rows": one.rows, "key": _key(one.key), "columns": told}


def _key(text: str | None) -> str | None:
    """Return a key for people: the columns of a JSON object, any other key as it is."""
    if text is None or not text.startswith("{"):
        return text
    try:
        found = json_.loads(text)
    except ValueError:
        return text
    return _words({name: json_.dumps(value, ensure_ascii=False) for name, value in found.items()}, ())


def _words(row: Mapping[str, str], without: Collection[str]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in row.items() if name not in without)


def _value(text: str | None) -> str:
    """Return a value that is given as JSON for people."""
    if text is None:
        return "–"
    found = json_.loads(text) if text.startswith('"') else text
    return str(found)


def _report_json(request: "DiffRequest", report: "DiffReport", output: str | None) -> dict[str, Any]:
    since = {name: value for name, value in asdict(request.since).items() if value is not None}
    if request.since.time is not None:
        since["time"] = request.since.time.isoformat()
    summary = report.summary
    return {
        "a": _side_json(request.a),
        "b": _side_json(request.b),
        "since": since,
        "notes": notes(request),
        "equal": summary.equal,
        "differ": summary.differ,
        "only_a": summary.only_a,
        "only_b": summary.only_b,
        "columns": dict(summary.columns),
        "differences": [_difference_json(one) for one in report.differences],
        "output": output,
    }


def _side_json(side: "ComparedOutput") -> dict[str, Any]:
    reach = side.reach
    return {
        "output": side.address,
        "pipeline": side.pipeline or None,
        "batch": reach and reach.batch,
        "watermark": reach and reach.watermark and reach.watermark.isoformat(),
        "offsets": reach and {f"{topic}-{number}": end for (topic, number), end in sorted(reach.ends.items())},
    }


def _difference_json(one: "RowDifference") -> dict[str, Any]:
    def read(text: str | None) -> Any:
        return None if text is None else json_.loads(text, parse_float=_exact)

    def row(columns: Mapping[str, str] | None) -> dict[str, Any] | None:
        return None if columns is None else {name: read(value) for name, value in columns.items()}

    changed = {name: [read(value) for value in pair] for name, pair in one.columns.items()}
    return {
        "verdict": one.verdict,
        "key": one.key,
        "rows": one.rows,
        "a": row(one.a),
        "b": row(one.b),
        "columns": changed,
    }


def _exact(text: str) -> float | str:
    """Return a number, or its text when a float would round it."""
    found = float(text)
    return found if Decimal(repr(found)) == Decimal(text) else text
