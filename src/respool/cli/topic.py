"""`respool topic`: look at topics, create them, put records in by hand, read them back."""

import base64
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.options import BootstrapServers, Home, Json, connect, load
from respool.cli.render import json_text, out_json, say, table
from respool.cli.usage import Commands
from respool.errors import UsageError
from respool.printable import printable

if TYPE_CHECKING:
    from respool.topics import Message, Record

app = typer.Typer(cls=Commands, help="List, create, fill and read topics.", no_args_is_help=True, rich_markup_mode=None)

_TAIL = 10

_Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command("list")
def list_(home: Home = None, bootstrap_servers: BootstrapServers = None, json: Json = False) -> None:
    """List the topics, with their partitions and how many records they hold."""
    from respool import topics

    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    rows = [
        {"topic": one.name, "partitions": one.partitions, "records": one.records} for one in topics.list_topics(kafka)
    ]
    if json:
        out_json(rows)
    else:
        table(
            rows, ("topic", "partitions", "records"), empty="No topics yet. Create one with: respool topic create NAME"
        )


@app.command()
def create(
    name: _Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many.  [default: the broker's own]")] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the topic, by Kafka's name; repeatable.")
    ] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Create a topic."""
    from respool import topics

    settings = _pairs(config or [])
    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    topics.create(kafka, name, partitions, settings)
    count = len(topics.require(kafka, name))
    say(f"Created the topic {name} with {count} partition{'s' * (count != 1)}.")


@app.command()
def produce(
    name: _Name,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Lines to send; - or none for standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What stands between key and value; a line without it has no key."),
    ] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Send lines as records, each as it is and at once. Blank lines are skipped."""
    from respool import topics

    if key_separator == "":
        raise UsageError("is empty; expected some text.", "--key-separator")
    if file == Path("-"):
        file = None
    if file is not None and (file.is_dir() or not file.exists()):
        raise UsageError(f"{file} is not a file; expected one of lines to send.", "FILE")
    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    topics.require(kafka, name)
    if file is None:
        if sys.stdin.isatty():
            say("Type one record a line; Ctrl-D ends.")
        sent = topics.produce(kafka, name, _messages(sys.stdin.buffer, key_separator))
    else:
        with file.open("rb") as lines:
            sent = topics.produce(kafka, name, _messages(lines, key_separator))
    say(f"Sent {sent:,} record{'s' * (sent != 1)} to {name}.")


@app.command()
def read(
    name: _Name,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start with the first record.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")] = False,
    max_: Annotated[
        int | None,
        typer.Option("--max", "-n", min=1, help=f"Stop after this many records.  [default: {_TAIL}, or all]"),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Put the key and a tab before the value.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Put name:value,… and a tab first.")] = False,
    json: Json = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Print the newest records, one a line; control characters are escaped.

    With --from-beginning: all that are there now. With --follow: the new ones, as they arrive.
    """
    from respool import topics

    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    if from_beginning:
        records = topics.read(kafka, name, limit=max_, follow=follow)
    elif follow:
        records = topics.read(kafka, name, newest=0, limit=max_, follow=True)
    else:
        records = topics.read(kafka, name, newest=max_ or _TAIL)
    if follow:
        say(f"Waiting for records of {name}; Ctrl-C ends.")
    try:
        for record in records:
            line = _as_json(record) if json else _as_line(record, keys=keys, headers=headers)
            print(line, flush=follow)  # a flush a line is slow where nobody waits for the line
    except KeyboardInterrupt:
        if not follow:
            raise


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"'{text}' is not KEY=VALUE, such as retention.ms=60000.", "--config")
        pairs[key] = value
    return pairs


def _messages(lines: Iterable[bytes], separator: str | None) -> Iterator["Message"]:
    from respool.topics import Message

    try:
        for line in lines:
            text = line.rstrip(b"\r\n")
            if not text.strip():
                continue
            key, found, value = text.partition(separator.encode()) if separator else (b"", b"", b"")
            yield Message(key, value) if found else Message(None, text)
    except KeyboardInterrupt:
        # At the keyboard Ctrl-C ends the input, as Ctrl-D does: what was typed is sent and counted.
        return


def _as_line(record: "Record", *, keys: bool, headers: bool) -> str:
    parts = []
    if headers:
        parts.append(",".join(f"{printable(name, keep='')}:{_text(value)}" for name, value in record.headers))
    if keys:
        parts.append(_text(record.key))
    return "\t".join([*parts, _text(record.value)])


def _text(data: bytes | None) -> str:
    return "null" if data is None else printable(data.decode("utf-8", "backslashreplace"), keep="\t")


def _as_json(record: "Record") -> str:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z",
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": [{"name": name, "value": _json_value(value)} for name, value in record.headers],
    }
    return json_text(fields)


def _json_value(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
