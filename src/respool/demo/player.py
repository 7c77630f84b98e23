"""Plays a scenario: shows each step, does it for real, and checks what comes of it."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from typing_extensions import assert_never

from respool import topics
from respool.demo.process import Running
from respool.demo.steps import (
    AwaitAllPrinted,
    AwaitBatches,
    Command,
    ExpectEachPrintedOnce,
    Scenario,
    Start,
    Step,
    Stop,
    Tell,
)
from respool.errors import RespoolError
from respool.kafka import Kafka
from respool.local import broker
from respool.settings import Settings

_VISIT = re.compile(
    r"Partition\[\d+\] > Printing visit=Row\(visit_id='(?P<visit>[^']*)', "
    r"event_time=datetime\.datetime\((?P<time>[\d, ]+)\), page='(?P<page>[^']*)'\)"
)
_BATCH = re.compile(r"^\S+ batch \d+  (?P<rows>[\d,]+) rows")
_SHOWN = 2  # visits of a batch that the audience sees
_PATIENCE = 180.0

Visit = tuple[str, str, str]


class Different(RespoolError):
    """What came out is not what the scenario expects."""


class Player:
    """One performance, in a home of its own with a broker of its own."""

    def __init__(self, settings: Settings, show: Callable[[str], None]) -> None:
        """Prepare a performance.

        Args:
            settings: Where it takes place: everything goes under the settings' home.
            show: Called with every line for the audience.
        """
        self._settings = settings
        self._show = show
        self._kafka: Kafka | None = None
        self._runs: list[Running] = []
        self._unshown = 0

    def play(self, scenario: Scenario, keep: bool = False) -> None:
        """Play all steps; raise RespoolError when one fails. No process is left behind, unless `keep` keeps the broker.

        Args:
            scenario: What to play.
            keep: Leave the broker, its topics and the checkpoints for a look around.
        """
        self._show(f"▶ {scenario.name}: {scenario.title}")
        with ExitStack() as stack:
            if keep:
                started = broker.start(self._settings)
            else:
                stack.callback(shutil.rmtree, self._settings.home, ignore_errors=True)
                started = stack.enter_context(broker.running(self._settings))
            stack.callback(self._end_runs)
            self._kafka = Kafka(started.address)
            for step in scenario.steps:
                self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case Tell(text):
                self._show(f"\n● {text}")
            case Command(words):
                self._command(words)
            case Start(words):
                self._show(f"  $ respool run {' '.join(words)}")
                self._runs.append(Running(("run", *words), self._settings.home, self._show_line))
            case AwaitBatches(count):
                self._runs[-1].wait_for(lambda lines: _batches(lines) >= count, _PATIENCE)
            case AwaitAllPrinted(topic):
                wanted = len(sent_visits(self._broker(), topic))
                others = sum(len(printed_visits(run.lines)) for run in self._runs[:-1])
                self._runs[-1].wait_for(lambda lines: others + len(printed_visits(lines)) >= wanted, _PATIENCE)
            case Stop():
                self._show("  ^C")
                code = self._runs[-1].stop()
                if code != 0:
                    raise Different(f"{self._runs[-1]} ended with exit code {code}; expected 0.")
            case ExpectEachPrintedOnce(topic):
                self._expect_each_printed_once(topic)
            case _:
                assert_never(step)

    def _command(self, words: tuple[str, ...]) -> None:
        self._show(f"  $ respool {' '.join(words)}")
        run = Running(words, self._settings.home, self._show_line)
        self._runs.append(run)
        code = run.finish(_PATIENCE)
        self._runs.remove(run)
        if code != 0:
            raise Different(f"{run} ended with exit code {code}; expected 0.")

    def _expect_each_printed_once(self, topic: str) -> None:
        sent = Counter(sent_visits(self._broker(), topic))
        printed = [printed_visits(run.lines) for run in self._runs]
        together = Counter(visit for visits in printed for visit in visits)
        self._show("")
        for number, visits in enumerate(printed, 1):
            self._show(f"  run {number} printed {len(visits)} visits")
        self._show(f"  sent {sent.total()}, missed {(sent - together).total()}, twice {(together - sent).total()}")
        if together != sent:
            missing, extra = list(sent - together)[:3], list(together - sent)[:3]
            raise Different(f"Not every visit was printed exactly once: missed {missing}, printed too often {extra}.")
        if not all(printed):
            raise Different("A run printed nothing; expected the visits to be shared between all runs.")

    def _broker(self) -> Kafka:
        assert self._kafka is not None
        return self._kafka

    def _show_line(self, line: str) -> None:
        if _VISIT.match(line):
            self._unshown += 1
            if self._unshown > _SHOWN:
                return
        elif self._unshown:
            if self._unshown > _SHOWN:
                self._show(f"  │ … and {self._unshown - _SHOWN} more")
            self._unshown = 0
        self._show(f"  │ {line}")

    def _end_runs(self) -> None:
        for run in self._runs:
            run.kill()


def settings_for(settings: Settings, scenario: str) -> Settings:
    """Return the settings of a performance: a folder of its own under the home, no other Kafka."""
    folder = settings.home / "demo" / scenario
    return replace(settings, home=folder, bootstrap_servers=None, kafka={})


def clear(folder: Path) -> None:
    """Stop the broker and remove the folder that an earlier performance has left."""
    broker.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _batches(lines: list[str]) -> int:
    found = (_BATCH.match(line) for line in lines)
    return sum(one is not None and one["rows"] != "0" for one in found)


def sent_visits(kafka: Kafka, topic: str) -> list[Visit]:
    """Return the visits that a topic holds."""
    values = [json.loads(record.value or b"{}") for record in topics.read(kafka, topic)]
    return [(one["visit_id"], datetime.fromisoformat(one["event_time"]).isoformat(), one["page"]) for one in values]


def printed_visits(lines: list[str]) -> list[Visit]:
    """Return the visits that the micro-batch consumer has printed."""
    found: list[Visit] = []
    for line in lines:
        one = _VISIT.match(line)
        if one:
            year, month, day, hour, minute, second = [*(int(part) for part in one["time"].split(",")), 0][:6]
            time = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
            found.append((one["visit"], time, one["page"]))
    return found
