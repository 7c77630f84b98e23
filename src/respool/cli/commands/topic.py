"""`respool topic`: list and create topics, send records by hand, read them; `respool generate`."""

import base64
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import typer

from respool.cli.options import BootstrapServers, Commands, Home, Json, connect, load
from respool.cli.render.output import json_text, out_json, print_note, table
from respool.errors import SettingsError, UsageError
from respool.text import plural, printable

if TYPE_CHECKING:
    from respool.kafka.cluster import KafkaCluster
    from respool.kafka.consumer import Record
    from respool.kafka.producer import Message
    from respool.visits.generator import VisitsPlan


app = typer.Typer(
    cls=Commands, help="List and create topics, produce and read records.", no_args_is_help=True, rich_markup_mode=None
)

_TAIL = 10

_Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command("list")
def list_(home: Home = None, bootstrap_servers: BootstrapServers = None, json: Json = False) -> None:
    """List the topics, with their partitions and records."""
    from respool.kafka import topics

    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    rows = [
        {"topic": topic.name, "partitions": topic.partitions, "records": topic.records}
        for topic in topics.list_topics(kafka)
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
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions.  [default: the broker's setting]")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A topic setting, by Kafka's name; repeatable."),
    ] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Create a topic."""
    from respool.kafka import topics

    settings = _pairs(config or [])
    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    topics.create(kafka, name, partitions, settings)
    count = len(topics.require_topic(kafka, name))
    print_note(f"Created the topic {name} with {plural(count, 'partition')}.")


@app.command()
def produce(
    name: _Name,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Lines to send; - or none for standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Separator of key and value; a line without it has no key."),
    ] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Send each line as a record as soon as it is read, unchanged. Blank lines are skipped."""
    from respool.kafka import producer, topics

    if key_separator == "":
        raise UsageError("is empty; expected some text.", "--key-separator")
    if file == Path("-"):
        file = None
    if file is not None and (file.is_dir() or not file.exists()):
        raise UsageError(f"{file} is not a file; expected a file of lines to send.", "FILE")
    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    topics.require_topic(kafka, name)
    if file is None:
        if sys.stdin.isatty():
            print_note("Type one record per line; Ctrl-D ends the input.")
        sent = producer.produce(kafka, name, _messages(sys.stdin.buffer, key_separator))
    else:
        with file.open("rb") as lines:
            sent = producer.produce(kafka, name, _messages(lines, key_separator))
    print_note(f"Sent {plural(sent, 'record')} to {name}.")


@app.command()
def read(
    name: _Name,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start with the first record.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new records, until Ctrl-C.")] = False,
    max_: Annotated[
        int | None,
        typer.Option("--max", "-n", min=1, help=f"Stop after this many records.  [default: {_TAIL}, or all]"),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Print the key and a tab before the value.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers as name:value,… and a tab first.")] = False,
    json: Json = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Print the newest records, one per line.

    Control characters are escaped.

    With --from-beginning: all existing records. With --follow: new records, too, as they arrive.
    """
    from respool.kafka import consumer

    kafka = connect(load(home=home, bootstrap_servers=bootstrap_servers))
    if from_beginning:
        records = consumer.read(kafka, name, limit=max_, follow=follow)
    elif follow:
        records = consumer.read(kafka, name, newest=0, limit=max_, follow=True)
    else:
        records = consumer.read(kafka, name, newest=max_ or _TAIL)
    if follow:
        print_note(f"Waiting for records of {name}; Ctrl-C ends.")
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
    from respool.kafka.producer import Message

    try:
        for line in lines:
            text = line.rstrip(b"\r\n")
            if not text.strip():
                continue
            key, separated, value = text.partition(separator.encode()) if separator else (b"", b"", b"")
            yield Message(key, value) if separated else Message(None, text)
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


_RATE = 10.0
_Read = TypeVar("_Read")


def generate(
    topic: Annotated[str, typer.Option(help="The topic; created if it is missing.")] = "visits",
    count: Annotated[int | None, typer.Option(min=0, help="Number of events.  [default: unlimited]")] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help=f"Records per second.  [default: unlimited with --count, {_RATE:.0f} without]",
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="TIME", help="Event time of the first events, in ISO 8601.")
    ] = "2024-01-01T01:00:00",
    visits: Annotated[int, typer.Option(min=1, help="Number of concurrent visits.")] = 10,
    pages: Annotated[int, typer.Option(min=1, help="Average number of pages of a visit.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same visits, byte for byte.")] = 0,
    late: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Share of events that are sent late, 0 to 1.")
    ] = 0,
    lateness: Annotated[
        str, typer.Option(metavar="DURATION", help="How late they are at most, in event time.")
    ] = "30m",
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Share of events that are sent twice, 0 to 1.")
    ] = 0,
    malformed: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Malformed records added per event, 0 to 1.")
    ] = 0,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions, if the topic is created.")
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the values instead of sending them.")] = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Generate visits to a website. The same seed gives the same visits."""
    from respool.times import parse_duration, parse_time
    from respool.visits.generator import VisitsPlan

    settings = load(home=home, bootstrap_servers=bootstrap_servers)
    zone = ZoneInfo(settings.timezone or "UTC")
    plan = VisitsPlan(
        count=count,
        visits=visits,
        pages_per_visit=pages,
        start=_usage("--start", lambda: parse_time(start, zone)),
        seed=seed,
        late=late,
        lateness=_usage("--lateness", lambda: parse_duration(lateness)),
        duplicates=duplicates,
        malformed=malformed,
    )
    rate = rate or (_RATE if count is None else None)
    if stdout:
        _print(plan, rate)
        return
    kafka = connect(settings)
    _prepare(kafka, topic, partitions)
    _send(kafka, topic, plan, rate)


def _usage(option: str, parse: Callable[[], _Read]) -> _Read:
    try:
        return parse()
    except SettingsError as error:
        raise UsageError(str(error), option) from None


def _prepare(kafka: "KafkaCluster", topic: str, partitions: int | None) -> None:
    from respool.kafka import topics

    created = topics.ensure_topic(kafka, topic, partitions)
    existing = len(topics.require_topic(kafka, topic))
    if created:
        print_note(f"Created the topic {topic} with {plural(existing, 'partition')}.")
    elif partitions is not None and partitions != existing:
        print_note(
            f"The topic {topic} exists already, with {plural(existing, 'partition')}; --partitions {partitions} "
            "changes nothing."
        )


def _send(kafka: "KafkaCluster", topic: str, plan: "VisitsPlan", rate: float | None) -> None:
    from respool.kafka import producer
    from respool.visits.generator import generate as records

    begin = time.monotonic()
    with _interruptible() as stopped, _progress(plan) as progress:
        sent = producer.produce(kafka, topic, records(plan), rate=rate, progress=progress, stopped=stopped)
        seconds = time.monotonic() - begin
    _report(f"Sent {{}} to {topic}", sent, seconds, interrupted=stopped())


def _print(plan: "VisitsPlan", rate: float | None) -> None:
    from respool.kafka import producer
    from respool.visits.generator import generate as records

    begin = time.monotonic()
    printed = 0
    stream = sys.stdout.buffer
    with _interruptible() as stopped:
        for message in producer.paced(records(plan), rate, stopped):
            stream.write((b"null" if message.value is None else message.value) + b"\n")
            printed += 1
            if rate:
                stream.flush()
        stream.flush()
    _report("Printed {}", printed, time.monotonic() - begin, interrupted=stopped())


def _report(sentence: str, count: int, seconds: float, *, interrupted: bool) -> None:
    what = sentence.format(plural(count, "record"))
    print_note(
        f"{'Interrupted. ' * interrupted}{what} in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f} per second)."
    )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed; a second Ctrl-C interrupts as usual.

    The first one only raises a flag, so that the record at hand is sent and the count is right.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def first(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        pressed.set()

    usual = signal.signal(signal.SIGINT, first)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def _progress(plan: "VisitsPlan") -> Iterator[Callable[[int], None] | None]:
    """Show a bar on standard error when that is a terminal, and yield how to move it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    total = None if plan.count is None else round(plan.count * (1 + plan.duplicates + plan.malformed))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        due = 0.0

        def move(sent: int) -> None:
            nonlocal due
            now = time.monotonic()
            if now >= due:
                bar.update(task, completed=sent)
                due = now + 0.1

        yield move
