"""The targets of faults: the processes, the broker, the disk and the topics of a run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from chaos.broker import BrokerControl
from chaos.commands import Done, respool
from chaos.place import Place
from chaos.producer import Producer
from chaos.reading import Topics
from chaos.supervisor import Group
from chaos.timeline import Timeline

SESSIONS_TOPIC = "visit_sessions"
WINDOWS_TOPIC = "visits_counter"
Outcome = tuple[str, str]  # `done`, `refused`, `skipped` or `failed`, and the details


@dataclass(frozen=True)
class Rewind:
    """A rewind or a restore of the sessions: results published before it may remain.

    Attributes:
        ends: The end offsets of the topic of sessions at that time.
    """

    ends: dict[int, int]


@dataclass
class World:
    """A run.

    Attributes:
        place: Its folder.
        timeline: The events of the run.
        broker: The broker.
        groups: The `respool run` processes by name.
        producer: The thread that produces events.
        step: How far event time advances with every event.
        rewinds: The rewinds and restores of the sessions that were not undone.
        savepoints: The names of the savepoints by pipeline.
        forks: The suffixes of the outputs of forks, by the fork's checkpoint.
        outage: Set while a fault makes the broker or the disk unavailable, or pauses a process.
        stopping: Set at the end, when nothing is restarted.
    """

    place: Place
    timeline: Timeline
    broker: BrokerControl
    groups: dict[str, Group]
    producer: Producer
    step: timedelta
    rewinds: list[Rewind] = field(default_factory=list)
    savepoints: dict[str, list[str]] = field(default_factory=dict)
    forks: dict[str, tuple[str, str]] = field(default_factory=dict)
    outage: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    def respool(self, *words: str, limit: float = 120, kill_after: float | None = None) -> Done:
        """Run a respool command."""
        return respool(self.place, self.timeline, *words, limit=limit, kill_after=kill_after)

    @property
    def topics(self) -> Topics:
        """The topics of the broker."""
        return Topics(self.broker.address)

    @contextmanager
    def outage_noted(self) -> Iterator[None]:
        """Mark the duration of a `with` block as an outage, during which no progress is expected."""
        self.outage.set()
        try:
            yield
        finally:
            self.outage.clear()

    def supervise(self) -> list[threading.Thread]:
        """Start the threads that restart pipelines and the broker."""
        threads = [
            threading.Thread(target=self._keep_groups, name="supervisor", daemon=True),
            threading.Thread(target=self._keep_broker, name="broker-supervisor", daemon=True),
        ]
        for thread in threads:
            thread.start()
        return threads

    def _keep_groups(self) -> None:
        while not self.stopping.wait(0.5):
            for group in self.groups.values():
                if not self.stopping.is_set():
                    group.supervise(calm=not self.outage.is_set())

    def _keep_broker(self) -> None:
        while not self.stopping.wait(0.5):
            try:
                self.broker.revive()
            except TimeoutError:
                return
