"""`respool check`: mistakes in respool.toml and in pipelines, before anything is started."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from respool.cli.options import BootstrapServers, Home, Json, load
from respool.cli.render.output import out_json, print_result


def check(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PIPELINE]...",
            help="Names of `respool pipelines`, or module:object of your own.  [default: those in respool.toml]",
            show_default=False,
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check respool.toml and pipelines, without Spark, Kafka and Java. Exits with 1 if anything is wrong.

    Of a pipeline: its parameters, topics, schema, event time, output mode, watermark, durations, time zone and key.
    `run` and `reprocess` check the same before they start Spark. What a transform returns is known to Spark only.
    """
    from respool import settings
    from respool.errors import SettingsError
    from respool.operations.check import DefinitionFinding
    from respool.operations.check import check as check_all

    try:
        findings = check_all(
            *(pipelines or ()), settings=settings.load({"home": home, "bootstrap_servers": bootstrap_servers})
        )
    except SettingsError as error:
        findings = [DefinitionFinding(settings.CONFIG_FILE, "wrong", str(error))]
    if json:
        out_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            print_result(f"{finding.level:<8}  {finding.subject:<{width}}  {finding.message}".rstrip())
    if any(finding.level == "wrong" for finding in findings):
        raise typer.Exit(1)


def doctor(home: Home = None, bootstrap_servers: BootstrapServers = None, json: Json = False) -> None:
    """Check this machine: Java, Python, packages, jars, disk, broker. Exits with 1 if anything is broken."""
    from respool.operations.doctor import examine

    checks = examine(load(home=home, bootstrap_servers=bootstrap_servers))
    if json:
        out_json([check.to_json() for check in checks])
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print_result(f"{check.state:<6}  {check.name:<{width}}  {check.detail}")
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def jars(
    extra: Annotated[
        Literal["s3"] | None,
        typer.Option("--with", help="Add the jars for addresses of this kind.", show_default=False),
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print the jars that Spark needs, for: spark-submit --jars "$(respool jars)". Downloads missing jars first.

    They are Spark's Kafka connector, Delta Lake and respool's own classes; with `--with s3` also Hadoop's s3a.
    """
    from respool.local.jars import s3_jars, spark_jars
    from respool.spark.jvm_classes import JAR

    settings = load(home=home)
    paths = [*spark_jars(settings), JAR, *(s3_jars(settings) if extra else ())]
    if json:
        out_json([str(path) for path in paths])
    else:
        print_result(",".join(map(str, paths)))
