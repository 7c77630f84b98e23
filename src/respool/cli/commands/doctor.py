"""`respool doctor`, `jars`, `check` and `pipelines`: what is installed, configured and defined, before a start."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from respool.cli.options import BootstrapServers, Home, Json, Storage, load
from respool.cli.render.output import out_json, print_result, table, width
from respool.settings import Settings
from respool.text import labelled


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
    """Check respool.toml and pipelines without Spark, Kafka or Java. Exit code 1 if anything is wrong.

    Of a pipeline: its parameters, topics, schema, event time, output mode, watermark, durations, time zone and key.
    `run` and `reprocess` check the same before they start Spark. What a transform returns is checked by Spark when the
    pipeline starts.
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
    """Check this machine: Java, packages, jars, disk, broker. Exit code 1 if anything is broken."""
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
    """Print the jars that Spark needs; missing jars are downloaded.

    For example: spark-submit --jars "$(respool jars)". They are Spark's Kafka connector, Delta Lake and respool's own
    classes; with `--with s3` also Hadoop's s3a.
    """
    from respool.local.jars import s3_jars, spark_jars
    from respool.spark.jvm_classes import JAR, S3_JAR

    settings = load(home=home)
    paths = [*spark_jars(settings), JAR, *((*s3_jars(settings), S3_JAR) if extra else ())]
    if json:
        out_json([str(path) for path in paths])
    else:
        print_result(",".join(map(str, paths)))


def pipelines(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this pipeline with its parameters; module:object for yours."),
    ] = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the pipelines, or show a pipeline with its parameters."""
    from respool.pipeline import registry

    settings = load(storage=storage, home=home)
    names = [name] if name is not None else list(registry.BUILT_IN)
    values = registry.section_values(names, settings.pipelines)
    if name is None:
        rows = [_summary(pipeline, values[pipeline], settings) for pipeline in names]
        if json:
            out_json(rows)
        else:
            table(rows, ("pipeline", "reads", "does", "writes", "has run"), "There are no pipelines.")
        return
    summary = _summary(name, values[name], settings)
    parameters = _parameters(name, values[name])
    if json:
        out_json({**summary, "parameters": parameters})
        return
    for key, value in summary.items():
        print_result(labelled(f"{key}:", "yes" if value is True else "no" if value is False else str(value), width()))
    print_result("")
    table(parameters, ("parameter", "value", "default"), "It has no parameters.")


def _summary(name: str, values: dict[str, object], settings: Settings) -> dict[str, Any]:
    from respool.pipeline import registry
    from respool.storage.open import new_writer

    pipeline = registry.find_pipeline(name, values)
    checkpoint = settings.checkpoint_of(pipeline.name)
    has_run = bool(new_writer(checkpoint).names("offsets"))
    return {**pipeline.describe(), "has run": has_run, "checkpoint": checkpoint}


def _parameters(name: str, values: dict[str, object]) -> list[dict[str, Any]]:
    from respool.pipeline import registry

    return [
        {"parameter": item.name, "value": values.get(item.name, item.default), "default": item.default}
        for item in registry.parameters(name)
    ]
