"""Turns the library's UsageError into what typer prints for wrong usage, with exit code 2."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool import settings
from respool.errors import BrokerError, UsageError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.settings import Settings


class Commands(TyperGroup):
    """A group of commands that reports a UsageError of any of them as wrong usage of that command."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer vendors the base class
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name else None
            where = ctx if command is None else typer.Context(command, parent=ctx, info_name=name)
            raise typer.BadParameter(error.message, where, param_hint=error.option) from error


Home = Annotated[
    Path | None,
    typer.Option(help="Folder of broker data, checkpoints and logs.  [default: .respool; RESPOOL_HOME]"),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="A Kafka that is already there, in place of the embedded broker."),
]
Savepoints = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Folder or URL of the savepoints.  [default: savepoints in the home; RESPOOL_SAVEPOINTS]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs in place of text for people.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def load(**flags: Any) -> Settings:
    """Return the settings of a command from its flags, the environment and respool.toml."""
    return settings.load(flags)


def require_answer(json: bool, yes: bool, dry_run: bool) -> None:
    """Refuse to ask a program for its consent."""
    if json and not (yes or dry_run):
        raise UsageError("--json cannot ask: add --yes or --dry-run")


def connect(found: Settings) -> KafkaCluster:
    """Return the Kafka of these settings, once a broker answers there."""
    from respool.kafka import topics

    kafka = cluster(found)
    if not topics.is_reachable(kafka):
        embedded = not (found.bootstrap_servers or found.kafka.get("bootstrap.servers"))
        step = (
            "See: respool broker status, respool broker logs."
            if embedded
            else "Check the address, and the [kafka] table of respool.toml."
        )
        raise BrokerError(f"No Kafka broker answers at {kafka.bootstrap_servers}. {step}")
    return kafka


def cluster(found: Settings) -> KafkaCluster:
    """Return the Kafka of these settings; it is not asked for an answer, but the embedded broker must run."""
    from respool.local import broker

    servers = found.bootstrap_servers or found.kafka.get("bootstrap.servers")
    options = {name: value for name, value in found.kafka.items() if name != "bootstrap.servers"}
    if servers:
        return KafkaCluster(servers, options)
    check_embedded(options)
    address = broker.address(found.home)
    if address is None:
        raise BrokerError(
            f"No broker runs for the home {found.home}. Start one with: respool broker start, "
            "or name another Kafka with --bootstrap-servers."
        )
    return KafkaCluster(address, options)
