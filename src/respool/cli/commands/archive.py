"""`respool archive`: look after the table of all records."""

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.options import BootstrapServers, Commands, Home, Json, connect, load
from respool.cli.render.output import out_json, print_note, print_result, size, throttled
from respool.cli.render.output import table as print_table
from respool.errors import BrokerError, PipelineError
from respool.settings import Settings
from respool.text import plural

if TYPE_CHECKING:
    from respool.archive.contents import ArchiveContents
    from respool.archive.kafka_check import KafkaComparison
    from respool.findings import CheckResult
    from respool.kafka.cluster import KafkaCluster

app = typer.Typer(
    cls=Commands, help="Look after the archive of all records.", no_args_is_help=True, rich_markup_mode=None
)

Table = Annotated[
    str, typer.Option(metavar="PATH", help="The table; a relative path is one under the home's archive folder.")
]
_DEFAULT = "visits_table"
_MARKS = {"ok": "✓", "note": "•", "broken": "✗"}
_BROKEN = 3  # the exit code of `verify` when something is wrong, as that of `checkpoint verify`


@app.command()
def show(
    table: Table = _DEFAULT,
    hours: Annotated[bool, typer.Option("--hours", help="List the hours of event time, too.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show what an archive holds: records of each topic partition, gaps, doubled records, hours, files."""
    from respool.archive.contents import read_contents
    from respool.archive.table import locate
    from respool.cli.render import archive as text

    facts = read_contents(locate(table, load(home=home).home), throttled("files read"))
    if json:
        out_json(text.facts_json(facts, hours))
        return
    for one in text.head_lines(facts):
        print_result(one)
    print_result("")
    columns = ("topic", "partition", "offsets", "records", "rejected", "missing", "doubled")
    print_table(text.place_rows(facts), columns, "No record yet.")
    if hours:
        print_result("")
        print_table(text.hour_rows(facts), text.hour_columns(facts), "No hour yet.")


@app.command()
def verify(
    table: Table = _DEFAULT,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Refill what KafkaCluster has and the archive lacks, and remove doubled records."),
    ] = False,
    forget_lost_files: Annotated[
        bool,
        typer.Option(
            "--forget-lost-files", help="With --fix: take data files that are not there print_result of the table."
        ),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --fix: decode as this pipeline does, if the table does not print_note how."
        ),
    ] = None,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Look at the table alone.")] = False,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check that every record is there, once, and every file readable. Exit code 3 when something is wrong."""
    from respool.archive.table import locate
    from respool.archive.verify import verify as check_all

    settings = load(home=home, bootstrap_servers=bootstrap_servers)
    kafka, why_not = _kafka(settings, no_kafka)
    where = locate(table, settings.home)
    found = _look(where, kafka)
    done: list[str] = []
    if fix:
        if found.facts.damaged:
            found = _forget(found, where, kafka, forget_lost_files, done)
        done += _fix(found, kafka, settings, pipeline)
        found = _look(where, kafka) if done else found
    checks = check_all(found.facts, found.kafka, why_not, _command(table))
    broken = [one for one in checks if one.status == "broken"]
    if json:
        _print_json(found, checks, done, ok=not broken)
    else:
        _print(checks, done)
        wrong = f"{len(broken)} of {len(checks)} checks found something wrong."
        print_result(wrong if broken else f"All is well: {found.facts.records:,} records, each once.")
    if broken:
        raise typer.Exit(_BROKEN)


@app.command()
def optimize(table: Table = _DEFAULT, home: Home = None, json: Json = False) -> None:
    """Make few large files of the many small ones that small batches leave. Queries may run meanwhile.

    Every day of event time is a commit of its own. Whatever ends this early loses no record, and the same command goes
    on with the days that are left.
    """
    from respool.archive.files import data_files, days_to_compact, open_archive
    from respool.archive.repair import naming_failures
    from respool.archive.table import Size, locate
    from respool.archive.table import optimize as compact
    from respool.spark.session import spark_session

    settings = load(home=home)
    path = locate(table, settings.home)
    files = data_files(open_archive(path))
    days = days_to_compact(files)
    before = after = Size(len(files), sum(one.size for one in files))

    def on_day(number: int) -> None:
        name = days[number] or "the rejected records"
        print_note(f"Compacting {name} ({number + 1:,} of {len(days):,}) …")

    if days:
        print_note(f"Starting Spark ({settings.master}) to compact {path} …")
        with spark_session(settings) as spark, naming_failures(path):
            before, after = compact(spark, path, days, on_day)
    if json:
        out_json({"table": path, "before": asdict(before), "after": asdict(after)})
    elif days:
        print_result(f"Files: {before.files:,} → {after.files:,}  Bytes: {size(before.bytes)} → {size(after.bytes)}")
    else:
        print_result(
            f"Nothing to compact: {after.files:,} files, {size(after.bytes)}, none of which can be put together."
        )


@dataclass(frozen=True)
class _Found:
    """An archive, and what Kafka has of it."""

    facts: "ArchiveContents"
    kafka: "KafkaComparison | None"


def _command(table: str) -> str:
    named = "" if table == _DEFAULT else f" --table {shlex.quote(table)}"
    return f"respool archive verify{named} --fix"


def _look(where: str, kafka: "KafkaCluster | None") -> _Found:
    from respool.archive.contents import read_contents
    from respool.archive.kafka_check import compare_with_kafka

    facts = read_contents(where, throttled("files read"))
    return _Found(facts, compare_with_kafka(kafka, facts, throttled("offsets read from Kafka")) if kafka else None)


def _kafka(settings: Settings, no_kafka: bool) -> "tuple[KafkaCluster | None, str]":
    """Return Kafka, or None and why it cannot be asked."""
    if no_kafka:
        return None, ""
    try:
        return connect(settings), ""
    except BrokerError as error:
        return None, str(error)


def _forget(found: _Found, where: str, kafka: "KafkaCluster | None", wanted: bool, done: list[str]) -> _Found:
    from respool.archive.repair import forget_lost_files

    damaged = found.facts.damaged
    if not wanted or not all(one.missing for one in damaged):
        step = (
            "Bring them back from a copy. Without one, add --forget-lost-files: it takes them out of the table, and "
            "what Kafka still has of them is refilled."
            if all(one.missing for one in damaged)
            else "Bring them back from a copy. Without one, move those that cannot be read away, and add "
            "--forget-lost-files."
        )
        raise PipelineError(
            f"{len(damaged):,} data files of {where} are lost or cannot be read, such as {damaged[0].path}: it is not "
            f"known which records they had. {step} Nothing was changed."
        )
    forgotten = forget_lost_files(where)
    done.append(f"{plural(len(forgotten), 'lost file')} taken out of the table")
    return _look(where, kafka)


def _fix(found: _Found, kafka: "KafkaCluster | None", settings: Settings, name: str | None) -> list[str]:
    """Put an archive right, and return what was done."""
    from respool.archive.repair import decoder_of, held, refill, remove_doubles
    from respool.kafka.offsets import total
    from respool.pipeline.registry import find_pipeline, section_values
    from respool.spark.session import spark_session

    facts = found.facts
    lacking = found.kafka.lacking if found.kafka else {}
    doubles = {one.place: one.doubles for one in facts.places if one.doubles}
    if not lacking and not doubles:
        return []
    done: list[str] = []
    decoding = (
        decoder_of(facts, find_pipeline(name, section_values([name], settings.pipelines)[name]) if name else None)
        if lacking
        else None
    )
    with held(settings, facts.table, lacking):
        print_note(f"Starting Spark ({settings.master}) to put {facts.table} right …")
        with spark_session(settings) as spark:
            if doubles:
                print_note("Removing doubled records …")
                removed = remove_doubles(spark, facts.table, doubles, print_note)
                done.append(f"{plural(removed.records, 'doubled record')} removed")
                if removed.differing:
                    done.append(
                        f"{plural(removed.differing, 'offset')} left as found: the records there differ, so the topic "
                        "was made anew; give it an archive of its own"
                    )
            if lacking and decoding and found.kafka and kafka:
                count = plural(sum(total(ranges) for ranges in lacking.values()), "record")
                print_note(f"Refilling {count} from Kafka …")
                refill(spark, kafka, settings, found.kafka, decoding, facts.table)
                done.append(f"{count} refilled from Kafka")
    return done


def _print(checks: "tuple[CheckResult, ...]", done: list[str]) -> None:
    for one in done:
        print_result(f"Done: {one}.")
    for check in checks:
        print_result(f"{_MARKS[check.status]} {check.name}")
        for finding in check.findings:
            print_result(f"    {finding.what}")
            if finding.remedy:
                print_result(f"    → {finding.remedy}")


def _print_json(found: _Found, checks: "tuple[CheckResult, ...]", done: list[str], ok: bool) -> None:
    from respool.cli.render import archive as text

    facts = text.facts_json(found.facts, hours=False)
    told = {"ok": ok, "done": done, "checks": [check.to_json() for check in checks]}
    out_json({**facts, "kafka": text.kafka_json(found.kafka), **told})
