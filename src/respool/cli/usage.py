"""Turns the library's UsageError into what typer prints for wrong usage, with exit code 2."""

from typing import Any

import typer
from typer.core import TyperGroup

from respool.errors import UsageError


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
