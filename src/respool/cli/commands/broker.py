"""`respool broker`: the embedded Kafka of a home."""

import os
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated

import typer

from respool.cli.options import Commands, Home, Json, Yes, load
from respool.cli.render.output import out_json, print_note, print_result, size
from respool.errors import BrokerError
from respool.text import printable

app = typer.Typer(
    cls=Commands,
    name="broker",
    help="Run the embedded Kafka broker, for this machine only.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def start(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The port; an error if it is in use.  [default: 9092, or a free port]"),
    ] = None,
    home: Home = None,
) -> None:
    """Start the broker, and return once it answers."""
    from respool.local import broker

    settings = load(home=home)
    if broker.address(settings.home) is None:
        print_note(f"Starting the embedded broker of {settings.home} …")
    started = broker.start(settings, port)
    if started.taken_port is not None:
        print_note(f"Port {started.taken_port} is in use by another program: the broker now uses port {started.port}.")
    if started.already_running:
        print_result(f"The broker already runs at {started.address} (process {started.pid}).")
    else:
        print_result(f"The broker runs at {started.address} (process {started.pid}).")


@app.command()
def stop(home: Home = None) -> None:
    """Stop the broker; its topics are kept."""
    from respool.local import broker

    settings = load(home=home)
    if broker.stop(settings.home):
        print_result("The broker is stopped. Its topics are kept.")
    else:
        print_result(f"No broker runs for the home {settings.home}.")


@app.command()
def status(home: Home = None, json: Json = False) -> None:
    """Show whether the broker runs, and where."""
    from respool.local import broker

    settings = load(home=home)
    current = broker.status(settings.home)
    if json:
        out_json(asdict(current))
        return
    match current.state:
        case "running":
            print_result(f"The broker runs at {current.address} (process {current.pid}).")
        case "silent":
            print_result(f"The broker's process {current.pid} runs, but does not answer at {current.address}.")
            print_result("If this persists, stop it and start it again: respool broker stop, respool broker start.")
        case "died":
            print_result("The broker ended without being stopped. Start it again: respool broker start.")
        case "stopped":
            print_result(f"No broker runs for the home {settings.home}. Start one with: respool broker start.")
    if current.data_bytes:
        print_result(f"Its topics take {size(current.data_bytes)}.")
    if current.log.exists():
        print_result(f"Its log is {current.log}.")


@app.command()
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines to print.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new lines, until Ctrl-C.")] = False,
    home: Home = None,
) -> None:
    """Show the end of the broker's log."""
    from respool.local import broker

    file = broker.log_file(load(home=home).home)
    try:
        stream = file.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise BrokerError(
            f"There is no log at {file}: no broker was started for this home. Check --home, or start one with: "
            "respool broker start."
        ) from None
    with stream:
        for line in deque(stream, maxlen=lines):
            print_result(line.rstrip("\n"))
        if not follow:
            return
    _follow(file)


def _follow(file: Path) -> None:
    stream = file.open(encoding="utf-8", errors="replace")
    try:
        stream.seek(0, os.SEEK_END)
        while True:
            line = stream.readline()
            if line:
                print(printable(line), end="", flush=True)
            elif _replaced(file, stream):
                stream.close()
                stream = file.open(encoding="utf-8", errors="replace")
            else:
                time.sleep(0.2)
    finally:
        stream.close()


def _replaced(file: Path, stream: IO[str]) -> bool:
    """Return whether the log was replaced: it was full, or the broker was restarted."""
    try:
        return file.stat().st_ino != os.fstat(stream.fileno()).st_ino
    except FileNotFoundError:
        return False


@app.command()
def reset(home: Home = None, yes: Yes = False) -> None:
    """Stop the broker and delete all its topics."""
    from respool.local import broker

    settings = load(home=home)
    current = broker.status(settings.home)
    if not yes:
        typer.confirm(
            f"Delete all topics of the broker of {settings.home} ({size(current.data_bytes)})?",
            abort=True,
            err=True,
        )
    if broker.reset(settings.home):
        print_result("The broker's topics are deleted.")
        from respool.storage.open import new_writer

        store = settings.checkpoint_store
        if new_writer(store).folders(""):
            print_result(f"The checkpoints in {store} are of topics that are gone: move them away to start over.")
    else:
        print_result(f"There is no broker in the home {settings.home}: nothing to delete.")
