"""`respool audit`: what was published, beside what the archive says."""

import json as json_
from collections.abc import Collection
from dataclasses import asdict
from datetime import timezone as timezone_
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli.options import BootstrapServers, Home, Json, load
from respool.cli.render.output import out_json, print_note, print_result, table
from respool.operations.reprocess import (
    AllowPartial,
    ArchiveOption,
    CheckpointOption,
    EndArgument,
    Inputs,
    Master,
    PipelineArgument,
    Set,
    Slice,
    StartArgument,
    Timezone,
    find_inputs,
    plan_json,
    show_plan,
    slices_bar,
)

if TYPE_CHECKING:
    from respool.reprocess.audit import AuditDifference, AuditReport
    from respool.reprocess.plan import Plan

DIFFERS = 3  # the exit code when something differs


def audit(
    pipeline: PipelineArgument,
    start: StartArgument,
    end: EndArgument,
    fix: Annotated[bool, typer.Option("--fix", help="Publish exactly what differs anew, as the archive says.")] = False,
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open", help="The span may reach beyond what is closed; what is open is left print_result."
        ),
    ] = False,
    allow_partial: AllowPartial = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="How many differences are told in full.")] = 100,
    slice_: Slice = "1d",
    archive: ArchiveOption = None,
    checkpoint: CheckpointOption = None,
    set_: Set = None,
    timezone: Timezone = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Compare what was published of a span with what the archive says, and name what differs.

    A result can be wrong, missing, or published though nothing is there; the late records behind each are told. Exit
    code 3 when something differs and is not fixed.
    """
    settings = load(home=home, bootstrap_servers=bootstrap_servers, timezone=timezone, master=master)
    inputs = find_inputs(
        settings,
        pipeline,
        (start, end),
        values=set_ or [],
        archive=archive,
        checkpoint=checkpoint,
        slice_=slice_,
        allow_open=allow_open,
        allow_partial=allow_partial,
        needs_kafka=True,
    )
    plan, report = _audit(inputs, limit, fix, json)
    if json:
        out_json({"plan": plan_json(plan), **_report_json(report)})
    else:
        _show(plan, report)
    if report.different and not fix:
        raise typer.Exit(DIFFERS)


def _audit(inputs: Inputs, limit: int, fix: bool, json: bool) -> "tuple[Plan, AuditReport]":
    from respool.reprocess.audit import audit as compare
    from respool.reprocess.job import ReprocessJob
    from respool.spark.session import spark_session

    print_note(f"Starting Spark ({inputs.settings.master}) …")
    with spark_session(inputs.settings) as spark:
        plan, reader = inputs.settled(spark)
        job = ReprocessJob(spark, inputs.kafka, inputs.settings, plan, reader)
        if not json:
            show_plan(plan, job.to if fix else None)
        asked = (f"{one.astimezone(timezone_.utc):%Y%m%dT%H%M%SZ}" for one in (plan.computed.start, plan.computed.end))
        run = f"audit-{plan.pipeline.name}-{'-'.join(asked)}-v{plan.version}" if fix else None
        with slices_bar(len(plan.slices)) as on_slice:
            return plan, compare(job, limit, run, on_slice)


def _show(plan: "Plan", report: "AuditReport") -> None:
    from respool.pipeline.results import Windows

    print_result("")
    columns = ("verdict", "window" if isinstance(plan.pipeline.results, Windows) else "session", "key")
    rows = [_row(plan, one) for one in report.differences]
    if rows:
        keyed = [name for name in columns if any(row.get(name) for row in rows)]
        table(rows, (*keyed, "published", "archived", "late", "records"), empty="")
    if report.different > len(rows):
        print_result(f"… and {report.different - len(rows):,} more")
    what = columns[1]
    total = report.counts.total()
    counts = report.counts
    print_result(
        f"{total:,} {what}{'s' * (total != 1)} compared, {report.different:,} differ{'s' * (report.different == 1)}: "
        f"{counts['wrong']:,} wrong, {counts['missing']:,} missing, {counts['extra']:,} published though nothing is "
        f"there; {report.late:,} late record{'s' * (report.late != 1)}."
    )
    if report.fixed:
        print_result(f"{report.fixed:,} put right.")


def _row(plan: "Plan", one: "AuditDifference") -> dict[str, Any]:
    from respool.pipeline.results import Windows
    from respool.reprocess.plan import results_of
    from respool.times import Span

    results = results_of(plan.pipeline)
    is_window = isinstance(results, Windows)
    sink_key: tuple[str, ...] = getattr(plan.pipeline.sink, "key", ())
    whose = [name for name in sink_key if name != results.column] if isinstance(results, Windows) else results.key
    published, archived = (_fields(text) for text in (one.published, one.archived))
    either = archived or published or {}
    return {
        "verdict": one.verdict,
        "window" if is_window else "session": Span(one.start, one.end).text(plan.zone),
        "key": _words({name: either[name] for name in whose if name in either}, ()),
        "published": _words(published, sink_key),
        "archived": _words(archived, sink_key),
        "late": one.late,
        "records": ", ".join(one.records) + (" …" if one.late and one.late > len(one.records) else ""),
    }


def _fields(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    found = json_.loads(text)
    return found if isinstance(found, dict) else {"value": found}


def _words(fields: dict[str, Any] | None, without: Collection[str]) -> str | None:
    if fields is None:
        return None
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if name not in without)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json_.dumps(value)


def _report_json(report: "AuditReport") -> dict[str, Any]:
    differences = [
        {**asdict(one), "start": one.start.isoformat(), "end": one.end.isoformat()} for one in report.differences
    ]
    return {
        "compared": report.counts.total(),
        **{verdict: report.counts[verdict] for verdict in ("same", "wrong", "missing", "extra")},
        "late": report.late,
        "fixed": report.fixed,
        "differences": differences,
    }
