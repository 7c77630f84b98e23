"""Options that several commands share, and how a UsageError of the library becomes typer's, with exit code 2."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool import settings
from respool.errors import UsageError
from respool.kafka.connect import cluster as cluster
from respool.kafka.connect import connect as connect
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
