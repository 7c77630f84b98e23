"""The steps of a scenario, as plain data. `player.py` plays them.

`{home}` in a word of a command stands for the folder in which the scenario is played.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Narrate:
    """Explain to the audience what comes next, and why."""

    text: str


@dataclass(frozen=True)
class Command:
    """Run a respool command to its end; it must succeed."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class ExpectCommand:
    """Run a respool command to its end; check its exit code, and that its output contains these words in this order."""

    words: tuple[str, ...]
    code: int
    output: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Start `respool run` with these words, and leave it running."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """Press Ctrl-C, and wait for the running command to end."""


@dataclass(frozen=True)
class Send:
    """Send lines to a topic, all to one partition and together, so that one batch reads them all."""

    topic: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class AwaitBatch:
    """Wait until the running command has reported this batch of a pipeline."""

    pipeline: str
    batch: int


@dataclass(frozen=True)
class AwaitWatermark:
    """Wait until the running command has reported a batch of a pipeline at this watermark."""

    pipeline: str
    watermark: str


@dataclass(frozen=True)
class AwaitBatches:
    """Wait until the running command has reported this many batches with records."""

    count: int


@dataclass(frozen=True)
class ExpectRecords:
    """Wait for new records of a topic, and check that their values are these, in any order."""

    topic: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class ExpectNothingNew:
    """Wait until a pipeline has read all that was sent, and check that a topic has no new record."""

    topic: str
    pipeline: str


@dataclass(frozen=True)
class ExpectTables:
    """Wait for batches on the console, and check that they are these, rows of a table in any order."""

    text: str


@dataclass(frozen=True)
class ExpectNoBatch:
    """Wait for the running command to end on its own, and check that it ran no batch."""


@dataclass(frozen=True)
class ExpectCommits:
    """Wait for this version of a Delta table of the archive, and check that it is the newest."""

    table: str
    version: int


@dataclass(frozen=True)
class AwaitAllPrinted:
    """Wait until as many visits are printed as the topic contains."""

    topic: str


@dataclass(frozen=True)
class ExpectEachPrintedOnce:
    """Check that all runs together printed every visit of the topic exactly once, and each run some of them."""

    topic: str


ScenarioStep = (
    Narrate
    | Command
    | ExpectCommand
    | Start
    | Stop
    | Send
    | AwaitBatch
    | AwaitBatches
    | AwaitWatermark
    | ExpectRecords
    | ExpectNothingNew
    | ExpectTables
    | ExpectNoBatch
    | ExpectCommits
    | AwaitAllPrinted
    | ExpectEachPrintedOnce
)


@dataclass(frozen=True)
class Scenario:
    """A walk-through, played live and checked.

    Attributes:
        name: Its name on the command line.
        title: A line that describes it.
        steps: Its steps, in order.
    """

    name: str
    title: str
    steps: tuple[ScenarioStep, ...]
