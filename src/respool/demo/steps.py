"""What a scenario is made of: steps, as plain data. `player.py` plays them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tell:
    """Tell the audience what comes next, and why."""

    text: str


@dataclass(frozen=True)
class Command:
    """Run a respool command to its end; it must succeed."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Start `respool run` with these words, and leave it running."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class AwaitBatches:
    """Wait until the running command has told of this many batches with records."""

    count: int


@dataclass(frozen=True)
class AwaitAllPrinted:
    """Wait until the visits printed so far are as many as the topic holds."""

    topic: str


@dataclass(frozen=True)
class Stop:
    """Press Ctrl-C, and wait for the running command to end."""


@dataclass(frozen=True)
class ExpectEachPrintedOnce:
    """Check that all runs together printed every visit of the topic exactly once, and some before the last run."""

    topic: str


Step = Tell | Command | Start | AwaitBatches | AwaitAllPrinted | Stop | ExpectEachPrintedOnce


@dataclass(frozen=True)
class Scenario:
    """A walk-through, played live and checked.

    Attributes:
        name: What the command line calls it.
        title: What it shows.
        steps: What happens, in order.
    """

    name: str
    title: str
    steps: tuple[Step, ...]
