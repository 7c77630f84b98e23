"""`respool check`: mistakes in respool.toml and in pipelines, before anything is started."""

from dataclasses import asdict
from typing import Annotated

import typer

from respool.cli.options import BootstrapServers, Home, Json
from respool.cli.render import out, out_json


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
    from respool.checking import Finding
    from respool.checking import check as check_all
    from respool.errors import SettingsError

    try:
        findings = check_all(
            *(pipelines or ()), settings_=settings.load({"home": home, "bootstrap_servers": bootstrap_servers})
        )
    except SettingsError as error:
        findings = [Finding(settings.CONFIG_FILE, "wrong", str(error))]
    if json:
        out_json([asdict(one) for one in findings])
    else:
        width = max(len(one.subject) for one in findings)
        for one in findings:
            out(f"{one.level:<8}  {one.subject:<{width}}  {one.message}".rstrip())
    if any(one.level == "wrong" for one in findings):
        raise typer.Exit(1)
