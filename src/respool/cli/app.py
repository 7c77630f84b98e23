"""The `respool` command: its subcommands, and the one place where errors become messages."""

import errno
import os
import sys
from typing import Annotated

import typer

from respool import __version__
from respool.cli import (
    archive,
    audit,
    broker,
    checkpoint,
    demo,
    diff,
    doctor,
    generate,
    jars,
    pipelines,
    promote,
    reprocess,
    run,
    savepoint,
    state,
    topic,
)
from respool.cli.render import say
from respool.errors import RespoolError

app = typer.Typer(
    name="respool",
    help="Run a Spark Structured Streaming pipeline, and run it again: from any micro-batch, for any span of time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"respool {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error. [RESPOOL_DEBUG]")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if debug:
        os.environ["RESPOOL_DEBUG"] = "1"


app.command()(doctor.doctor)
app.add_typer(broker.app, name="broker")
app.add_typer(topic.app, name="topic")
app.command()(generate.generate)
app.command()(pipelines.pipelines)
app.command()(run.run)
app.command()(reprocess.reprocess)
app.command()(audit.audit)
app.command()(diff.diff)
app.command()(demo.demo)
app.add_typer(checkpoint.app, name="checkpoint")
app.command()(state.state)
app.add_typer(savepoint.app, name="savepoint")
app.command()(promote.promote)
app.add_typer(archive.app, name="archive")
app.command()(jars.jars)


def main() -> None:
    """Run the command line; errors become one message and exit code 1."""
    try:
        app()
    except RespoolError as error:
        _fail(str(error))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail(f"The disk that holds {error.filename or 'the home'} is full. Free some space and run this again.")
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR) and error.filename:
            _fail(f"{error.filename} cannot be written: {error.strerror}. Choose another folder with --home.")
        else:
            raise


def _fail(message: str) -> None:
    if os.environ.get("RESPOOL_DEBUG"):
        import traceback

        traceback.print_exc()
    say(f"error: {message}")
    sys.exit(1)
