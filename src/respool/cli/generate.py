"""`respool generate`: visits into a topic, or onto standard output."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import typer

from respool.cli.options import BootstrapServers, Home, connect, load
from respool.cli.render import say
from respool.errors import SettingsError, UsageError

if TYPE_CHECKING:
    from respool.kafka import Kafka
    from respool.visits.generator import VisitsPlan

_RATE = 10.0
_Read = TypeVar("_Read")


def generate(
    topic: Annotated[str, typer.Option(help="Where to; created when it is missing.")] = "visits",
    count: Annotated[int | None, typer.Option(min=0, help="How many events.  [default: no end]")] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help=f"Records a second.  [default: as fast as it goes with --count, {_RATE:.0f} without]",
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="TIME", help="Event time of the first events, in ISO 8601.")
    ] = "2024-01-01T01:00:00",
    visits: Annotated[int, typer.Option(min=1, help="How many visits go on at the same time.")] = 10,
    pages: Annotated[int, typer.Option(min=1, help="How many pages a visit has, more or less.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same visits, byte for byte.")] = 0,
    late: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Events held back while the others go on, 0 to 1.")
    ] = 0,
    lateness: Annotated[
        str, typer.Option(metavar="DURATION", help="The longest that they are held back, in event time.")
    ] = "30m",
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Events that come a second time, 0 to 1.")
    ] = 0,
    malformed: Annotated[
        float, typer.Option(min=0, max=1, metavar="FRACTION", help="Unreadable records added for each event, 0 to 1.")
    ] = 0,
    partitions: Annotated[int | None, typer.Option(min=1, help="Partitions of the topic if it is created.")] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the values in place of sending them.")] = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> None:
    """Generate visits to a web site: seeded, so that two runs agree."""
    from respool.span import parse_duration, parse_time
    from respool.visits.generator import VisitsPlan

    found = load(home=home, bootstrap_servers=bootstrap_servers)
    zone = ZoneInfo(found.timezone or "UTC")
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
    kafka = connect(found)
    _prepare(kafka, topic, partitions)
    _send(kafka, topic, plan, rate)


def _usage(option: str, parse: Callable[[], _Read]) -> _Read:
    try:
        return parse()
    except SettingsError as error:
        raise UsageError(str(error), option) from None


def _prepare(kafka: "Kafka", topic: str, partitions: int | None) -> None:
    from respool import topics

    created = topics.ensure(kafka, topic, partitions)
    there = len(topics.require(kafka, topic))
    if created:
        say(f"Created the topic {topic} with {there} partition{'s' * (there != 1)}.")
    elif partitions is not None and partitions != there:
        say(f"The topic {topic} was there already, with {there} partitions; --partitions {partitions} changes nothing.")


def _send(kafka: "Kafka", topic: str, plan: "VisitsPlan", rate: float | None) -> None:
    from respool import topics
    from respool.visits.generator import generate as records

    begin = time.monotonic()
    with _interruptible() as stopped, _progress(plan) as progress:
        sent = topics.produce(kafka, topic, records(plan), rate=rate, progress=progress, stopped=stopped)
        seconds = time.monotonic() - begin
    _tell(f"Sent {{}} to {topic}", sent, seconds, interrupted=stopped())


def _print(plan: "VisitsPlan", rate: float | None) -> None:
    from respool import topics
    from respool.visits.generator import generate as records

    begin = time.monotonic()
    printed = 0
    stream = sys.stdout.buffer
    with _interruptible() as stopped:
        for message in topics.paced(records(plan), rate, stopped):
            stream.write((b"null" if message.value is None else message.value) + b"\n")
            printed += 1
            if rate:
                stream.flush()
        stream.flush()
    _tell("Printed {}", printed, time.monotonic() - begin, interrupted=stopped())


def _tell(sentence: str, count: int, seconds: float, *, interrupted: bool) -> None:
    what = sentence.format(f"{count:,} record{'s' * (count != 1)}")
    say(f"{'Interrupted. ' * interrupted}{what} in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f} a second).")


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
