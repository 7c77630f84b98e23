"""The command line: `respool`, and the scripts in `jobs/`. The only place that catches errors."""

import errno
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from respool._version import __version__
from respool.cli.commands import archive, broker, checkpoint, demo, diff, doctor, run, savepoint, state
from respool.cli.commands import reprocess as commands_reprocess
from respool.cli.commands import topic as commands_topic
from respool.cli.options import Commands
from respool.cli.render import log_lines
from respool.cli.render.output import DownloadHandler, print_error
from respool.errors import ChangeRefusedError, RespoolError


def run_job(pipeline: str, *words: str) -> None:
    """Run a pipeline with these words, and the options after the script's name."""
    sys.argv = ["respool", "run", pipeline, *words, *sys.argv[1:]]
    main()


def rewind_job(pipeline: str) -> None:
    """Rewind a pipeline to the batch after the script's name, without asking."""
    script, *words = sys.argv
    if not words or (words[0].startswith("-") and "--help" not in words):
        raise SystemExit(f"Usage: {script} N [options of: respool checkpoint rewind]")
    batch = () if "--help" in words else ("--to-batch", words.pop(0), "--yes")
    sys.argv = ["respool", "checkpoint", "rewind", pipeline, *batch, *words]
    main()


def reprocess_job(pipeline: str) -> None:
    """Reprocess the span after the script's name."""
    sys.argv = ["respool", "reprocess", pipeline, *sys.argv[1:]]
    main()


_FAULT = 70  # EX_SOFTWARE of sysexits.h
_LONGEST = 300  # characters of an unexpected error's own message

app = typer.Typer(
    cls=Commands,
    name="respool",
    help="Run Spark Structured Streaming pipelines, and replay them: from any micro-batch, or any span of event time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)

_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT)


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
app.add_typer(commands_topic.app, name="topic")
app.command()(commands_topic.generate)
app.command()(doctor.pipelines)
app.command()(doctor.check)
app.command()(run.run)
app.command()(commands_reprocess.reprocess)
app.command()(commands_reprocess.audit)
app.command()(diff.diff)
app.command()(demo.demo)
app.add_typer(checkpoint.app, name="checkpoint")
app.command()(state.state)
app.add_typer(savepoint.app, name="savepoint")
app.command()(savepoint.promote)
app.add_typer(archive.app, name="archive")
app.command()(doctor.jars)


def main() -> None:
    """Run the command line; errors become one message and exit code 1, faults of respool itself exit code 70.

    SIGTERM, and SIGHUP of a terminal that is closed, interrupt a command as Ctrl-C does.
    """
    # Records, state and logs are for their owner only. The JVM, its workers and the broker inherit this.
    os.umask(0o077)
    if log_lines.wanted(sys.argv[1:], os.environ):
        log_lines.use_json_lines()
    with _shown_downloads():
        _run()


@contextmanager
def _shown_downloads() -> Iterator[None]:
    """Show downloads of jars, which the library logs, for the length of a `with` block."""
    logger, handler = logging.getLogger("respool.jars"), DownloadHandler()
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _run() -> None:
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        if len(received) == 1:  # a further signal must not interrupt the shutdown
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, interrupt)
    try:
        app()
    except SystemExit as end:
        if received and end.code == 128 + signal.SIGINT:
            sys.exit(128 + received[0])
        raise
    except ChangeRefusedError as error:
        # The plan was printed with the reasons.
        _fail(f"Refused, for the {'reason' if len(error.refusals) == 1 else 'reasons'} above. Nothing was changed.")
    except RespoolError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        from respool.spark import installed

        if error.name is None or error.name.partition(".")[0] not in installed.PACKAGES:
            _fault(error)
        _fail(str(installed.missing("This command")))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail(f"The disk that holds {error.filename or 'the home'} is full. Free some space and run this again.")
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR) and error.filename:
            _fail(f"{error.filename} cannot be written: {error.strerror}. Choose another folder with --home.")
        elif error.filename:
            _fail(f"{error.filename} cannot be used: {error.strerror}. Check it, or choose another folder with --home.")
        else:
            _fault(error)
    except Exception as error:
        _fault(error)


def _fail(message: str, code: int = 1) -> None:
    if os.environ.get("RESPOOL_DEBUG"):
        import traceback

        traceback.print_exc()
    print_error(message)
    sys.exit(code)


def _fault(error: Exception) -> None:
    """Report what should not have happened: in a line, and with the stack trace in a file."""
    kept = _keep_trace()
    where = f"Its stack trace is in {kept}" if kept else "Run this again with respool --debug for its stack trace"
    what = str(error).strip().split("\n", 1)[0][:_LONGEST]
    _fail(
        f"This is a fault of respool: {type(error).__name__}{': ' * bool(what)}{what}. {where}; please report it with "
        "the command that you ran.",
        _FAULT,
    )


def _keep_trace() -> str | None:
    """Write the stack trace to a file that only its owner can read, as it may contain data; None if it cannot be."""
    import tempfile
    import traceback

    try:
        number, path = tempfile.mkstemp(prefix="respool-fault-", suffix=".log")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
    except OSError:
        return None
    return path
