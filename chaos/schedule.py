"""Which faults are injected, in which order, on which target, after which delay: a function of the seed alone.

Choices that depend on the state at that moment, such as the batches that a checkpoint has, are made by the numbers in a
fault, so that the same seed makes the same choices among the available items.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GROUPS: dict[str, tuple[str, ...]] = {
    "counts": ("visits-archive", "visit-counts"),
    "sessions": ("sessions",),
}
ONE_GROUP: dict[str, tuple[str, ...]] = {"all": ("visits-archive", "visit-counts", "sessions")}
PROCESS = ("kill-python", "term-python", "term-group", "pause-python", "kill-jvm", "pause-jvm", "kill-worker")
BROKER = ("stop-broker", "kill-broker", "pause-broker")
DISK = ("fill-disk",)
OPERATIONS = ("rewind", "undo", "savepoint", "restore", "fork", "reprocess", "purge", "cut-rewind", "cut-restore")
KINDS = (*PROCESS, *BROKER, *DISK, *OPERATIONS)
STOPS = ("term", "int", "kill")
_SETTLED = 0.7  # the fraction of faults that wait for running pipelines
_STATEFUL = ("visit-counts", "sessions")


@dataclass(frozen=True)
class Fault:
    """A fault to inject.

    Attributes:
        number: Its position in the schedule, starting at 1.
        kind: Its kind, from KINDS.
        group: The process that it hits; empty for the broker and the disk.
        pipeline: The pipeline of an operation; empty for the others.
        delay: Seconds after the end of the previous fault.
        seconds: How long a pause or an outage lasts.
        settled: Wait until every pipeline has committed a batch since its start; otherwise it may still be starting.
        stop: How an operation stops the process first: a name from STOPS.
        chances: Numbers from 0 to 1, for choices among the items available at that moment.
    """

    number: int
    kind: str
    group: str
    pipeline: str
    delay: float
    seconds: float
    settled: bool
    stop: str
    chances: tuple[float, float, float]


def schedule(seed: int, kinds: Sequence[str], groups: dict[str, tuple[str, ...]], pace: float = 1.0) -> Iterator[Fault]:
    """Yield the faults of a seed, without end. Every kind occurs once before any kind occurs a second time.

    Args:
        seed: Another seed gives another schedule.
        kinds: The kinds to choose from; the order does not matter.
        groups: The pipelines of every process.
        pace: A factor for the delays between faults.
    """
    chance = random.Random(f"faults {seed}")
    names = sorted(groups)
    number = 0
    while True:
        turn = sorted(set(kinds), key=KINDS.index)
        chance.shuffle(turn)
        for kind in turn:
            number += 1
            pipeline = _pipeline(kind, chance, [pipeline for name in names for pipeline in groups[name]])
            group = next((name for name in names if pipeline in groups[name]), "")
            if kind in PROCESS:
                group = chance.choice(names)
            if kind == "kill-worker":  # no other pipeline has Python workers
                group = next(name for name in names if "sessions" in groups[name])
            yield Fault(
                number=number,
                kind=kind,
                group=group,
                pipeline=pipeline,
                delay=round(pace * chance.uniform(3, 15), 2),
                seconds=round(chance.uniform(2, 12), 2),
                settled=chance.random() < _SETTLED,
                stop=chance.choice(STOPS),
                chances=(chance.random(), chance.random(), chance.random()),
            )


def _pipeline(kind: str, chance: random.Random, pipelines: Sequence[str]) -> str:
    drawn = chance.random()  # always drawn, so that the numbers of later faults do not depend on the kind
    if kind not in OPERATIONS:
        return ""
    able = [name for name in pipelines if kind not in ("fork", "reprocess") or name in _STATEFUL]
    return able[int(drawn * len(able))]
