"""A command parses its options, calls an operation and renders the result: what it does is in `respool.operations`."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from respool.cli.app import app

LONGEST = 30


def commands(group: typer.Typer) -> Iterator[Callable[..., Any]]:
    """Yield the functions of all commands, also of those in groups."""
    yield from (command.callback for command in group.registered_commands if command.callback is not None)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from commands(inner.typer_instance)


def body_lines(command: Callable[..., Any]) -> int:
    """Return the number of lines of a function after its parameters and its docstring."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(command))).body
    assert isinstance(function, ast.FunctionDef)
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1


COMMANDS = {f"{command.__module__}.{command.__name__}": command for command in commands(app)}


def test_all_commands_are_here() -> None:
    assert len(COMMANDS) > 30
    assert {"respool.cli.commands.checkpoint.rewind", "respool.cli.commands.run.run"} < set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_short(name: str) -> None:
    assert body_lines(COMMANDS[name]) <= LONGEST


def test_only_the_body_counts() -> None:
    def command(
        name: str,
        other: str,
    ) -> None:
        """Describe it.

        In several lines.
        """
        print(name)

        print(other)

    assert body_lines(command) == 3
