"""Play a scenario: show each step, carry it out, and check the result."""

import json
import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from typing_extensions import assert_never

from respool.demo.process import RunningCommand, Visit, is_visit, printed_visits, reported_batches, tables
from respool.demo.steps import (
    AwaitAllPrinted,
    AwaitBatch,
    AwaitBatches,
    AwaitWatermark,
    Command,
    ExpectCommand,
    ExpectCommits,
    ExpectEachPrintedOnce,
    ExpectNoBatch,
    ExpectNothingNew,
    ExpectRecords,
    ExpectTables,
    Narrate,
    Scenario,
    ScenarioStep,
    Send,
    Start,
    Stop,
)
from respool.errors import RespoolError
from respool.kafka import consumer, producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.local import broker
from respool.running.progress import BatchProgress
from respool.settings import Settings
from respool.times import parse_time

_SHOWN = 2  # visits of a batch that the audience sees
_PATIENCE = 180.0


class ScenarioMismatch(RespoolError):
    """The result is not what the scenario expects."""


class Player:
    """A performance, in a separate home with its own broker."""

    def __init__(self, settings: Settings, show: Callable[[str], None]) -> None:
        """Prepare a performance.

        Args:
            settings: The settings; everything is created under their home.
            show: Called with every line for the audience.
        """
        self._settings = settings
        self._show = show
        self._runs: list[RunningCommand] = []
        self._seen: Counter[str] = Counter()  # records of each output topic that are already checked
        self._unshown = 0

    def play(self, scenario: Scenario, keep: bool = False) -> None:
        """Play all steps; raise RespoolError when a step fails. No process is left running, but the broker with `keep`.

        Args:
            scenario: What to play.
            keep: Leave the broker, its topics and the checkpoints for inspection.
        """
        self._show(f"▶ {scenario.name}: {scenario.title}")
        with ExitStack() as stack:
            if not keep:
                stack.callback(shutil.rmtree, self._settings.home, ignore_errors=True)
                stack.callback(broker.stop, self._settings.home)
            broker.start(self._settings)
            stack.callback(self._end_runs)
            for step in scenario.steps:
                self._do(step)

    def _do(self, step: ScenarioStep) -> None:
        match step:
            case Narrate(text):
                self._show(f"\n● {text}")
            case Command(words):
                self._command(words, 0)
            case ExpectCommand(words, code, output):
                self._expect_command(words, code, output)
            case Start(words):
                self._show(f"  $ respool run {shlex.join(words)}")
                # As JSON, from which the batches are read; the audience sees the same lines as text.
                words = ("run", *words, "--json")
                self._runs.append(RunningCommand(words, self._settings.home, self._show_line))
            case Stop():
                self._stop()
            case Send(topic, lines):
                self._send(topic, lines)
            case AwaitBatch(pipeline, batch):
                self._await(
                    lambda lines: (pipeline, batch) in [(done.pipeline, done.batch) for done in reported_batches(lines)]
                )
            case AwaitWatermark(pipeline, watermark):
                moment = parse_time(watermark, timezone.utc)
                self._await(
                    lambda lines: (
                        (pipeline, moment) in [(batch.pipeline, batch.watermark) for batch in reported_batches(lines)]
                    )
                )
            case AwaitBatches(count):
                self._await(lambda lines: sum(batch.rows > 0 for batch in reported_batches(lines)) >= count)
            case ExpectRecords(topic, values):
                self._expect_records(topic, values)
            case ExpectNothingNew(topic, pipeline):
                self._await_read(pipeline)
                self._expect_count(topic, self._seen[topic])
                self._show(f"  ← {topic}: nothing new, as expected")
            case ExpectTables(text):
                self._expect_tables(text)
            case ExpectNoBatch():
                self._expect_no_batch()
            case ExpectCommits(table, version):
                self._expect_commits(table, version)
            case AwaitAllPrinted(topic):
                wanted = len(sent_visits(self._kafka(), topic))
                others = sum(len(printed_visits(run.lines)) for run in self._runs[:-1])
                self._await(lambda lines: others + len(printed_visits(lines)) >= wanted)
            case ExpectEachPrintedOnce(topic):
                self._expect_each_printed_once(topic)
            case _:
                assert_never(step)

    def _command(self, words: tuple[str, ...], expected: int) -> list[str]:
        words = tuple(word.replace("{home}", os.path.relpath(self._settings.home)) for word in words)
        self._show(f"  $ respool {shlex.join(words)}")
        run = RunningCommand(words, self._settings.home, self._show_line)
        self._runs.append(run)
        code = run.finish(_PATIENCE)
        self._runs.remove(run)
        if code != expected:
            raise ScenarioMismatch(f"{run} ended with exit code {code}; expected {expected}.")
        return run.lines

    def _expect_command(self, words: tuple[str, ...], code: int, output: tuple[str, ...]) -> None:
        lines = self._command(words, code)
        rest = " ".join(word for line in lines for word in line.split())
        for part in output:
            _, separator, rest = rest.partition(part)
            if not separator:
                raise ScenarioMismatch(f"{shlex.join(words)} did not show '{part}' where it was expected.")
        self._show(f"  ✓ exit code {code}, and what was expected")

    def _stop(self) -> None:
        self._show("  ^C")
        code = self._runs[-1].stop()
        if code != 0:
            raise ScenarioMismatch(f"{self._runs[-1]} ended with exit code {code}; expected 0.")

    def _send(self, topic: str, lines: tuple[str, ...]) -> None:
        for line in lines:
            self._show(f"  → {topic}: {line}")
        producer.produce_together(self._kafka(), topic, [line.encode() for line in lines])

    def _await(self, happened: Callable[[list[str]], bool]) -> None:
        self._runs[-1].wait_for(happened, _PATIENCE)

    def _await_read(self, pipeline: str) -> None:
        """Wait until the running command has reported every record of its topic."""
        from respool.pipeline.registry import find_pipeline

        sent = sum(topics.end_offsets(self._kafka(), find_pipeline(pipeline).reads).values())
        self._await(
            lambda lines: sum(batch.rows for batch in reported_batches(lines) if batch.pipeline == pipeline) >= sent
        )

    def _expect_records(self, topic: str, values: tuple[str, ...]) -> None:
        before = self._seen[topic]
        self._expect_count(topic, before + len(values))
        new = [(record.value or b"null").decode() for record in consumer.read(self._kafka(), topic)][before:]
        for value in new:
            self._show(f"  ← {topic}: {value}")
        if sorted(new) != sorted(values):
            raise ScenarioMismatch(f"{topic} contains {new}; expected {list(values)}.")
        self._seen[topic] += len(values)

    def _expect_count(self, topic: str, count: int) -> None:
        """Wait until a topic contains so many records; raise ScenarioMismatch if it contains more."""
        end = time.monotonic() + _PATIENCE
        while (actual := self._count(topic)) < count:
            if time.monotonic() > end:
                raise ScenarioMismatch(f"{topic} contains {actual} records; expected {count}.")
            time.sleep(0.1)
        if actual > count:
            newest = [(record.value or b"null").decode() for record in consumer.read(self._kafka(), topic, newest=3)]
            raise ScenarioMismatch(f"{topic} contains {actual} records; expected {count}. The newest: {newest}.")

    def _count(self, topic: str) -> int:
        kafka = self._kafka()
        if topic not in [listed.name for listed in topics.list_topics(kafka)]:
            return 0
        return sum(topics.end_offsets(kafka, topic).values())

    def _expect_tables(self, text: str) -> None:
        expected = tables([line.strip() for line in text.splitlines()])
        batches = [table.batch for table in expected]
        self._await(lambda lines: batches[-1] in [table.batch for table in tables(lines)])
        shown = [table for table in tables(self._runs[-1].lines) if table.batch in batches]
        if shown != expected:
            raise ScenarioMismatch(f"The console shows {shown}; expected {expected}.")
        self._show(f"  ✓ batch{'es' * (len(batches) > 1)} {', '.join(map(str, batches))} as expected")

    def _expect_no_batch(self) -> None:
        run = self._runs[-1]
        code = run.finish(_PATIENCE)
        batches = [table.batch for table in tables(run.lines)]
        if code != 0 or batches:
            raise ScenarioMismatch(
                f"{run} ran the batches {batches} and ended with exit code {code}; expected no batch, and exit code 0."
            )
        self._show("  ✓ no batch, as expected")

    def _expect_commits(self, table: str, version: int) -> None:
        log = self._settings.home / "archive" / table / "_delta_log"
        wanted = log / f"{version:020}.json"
        self._await(lambda lines: wanted.is_file())
        newest = max(commit.stem for commit in log.glob("*.json"))
        if int(newest) != version:
            raise ScenarioMismatch(f"The newest commit of {table} is {newest}; expected {version:020}.")
        self._show(f"  ✓ {table}/_delta_log/{wanted.name}")

    def _expect_each_printed_once(self, topic: str) -> None:
        sent = Counter(sent_visits(self._kafka(), topic))
        printed = [printed_visits(run.lines) for run in self._runs]
        together = Counter(visit for visits in printed for visit in visits)
        self._show("")
        for number, visits in enumerate(printed, 1):
            self._show(f"  run {number} printed {len(visits)} visits")
        self._show(f"  sent {sent.total()}, missed {(sent - together).total()}, twice {(together - sent).total()}")
        if together != sent:
            missing, extra = list(sent - together)[:3], list(together - sent)[:3]
            raise ScenarioMismatch(
                f"Not every visit was printed exactly once: missed {missing}, printed too often {extra}."
            )
        if not all(printed):
            raise ScenarioMismatch("A run printed nothing; expected the visits to be shared between all runs.")

    def _kafka(self) -> KafkaCluster:
        address = broker.address(self._settings.home)
        if address is None:
            raise RespoolError("The broker of the demo no longer runs. Play it again.")
        return KafkaCluster(address)

    def _show_line(self, line: str) -> None:
        if (batch := BatchProgress.from_json(line)) is not None:
            if batch.is_of_companion:
                return
            line = str(batch)
        if is_visit(line):
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
    """Return the settings of a performance: a separate folder under the home, and only its own broker."""
    folder = settings.home / "demo" / scenario
    return replace(settings, home=folder, bootstrap_servers=None, kafka={})


def clear(folder: Path) -> None:
    """Stop the broker of an earlier performance and remove its folder."""
    broker.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sent_visits(kafka: KafkaCluster, topic: str) -> list[Visit]:
    """Return the visits in a topic."""
    values = [json.loads(record.value or b"{}") for record in consumer.read(kafka, topic)]
    return [
        (visit["visit_id"], datetime.fromisoformat(visit["event_time"]).isoformat(), visit["page"]) for visit in values
    ]
