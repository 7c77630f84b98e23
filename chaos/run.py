"""`python -m chaos`: produce events, inject faults, check the results."""

import argparse
import contextlib
import json
import os
import platform
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from chaos import place as places
from chaos import processes
from chaos.broker import BrokerControl
from chaos.checks import Figures, check_all, check_leftovers
from chaos.events import events
from chaos.faults import inject
from chaos.producer import TOPIC, Producer
from chaos.report import Report, publish
from chaos.schedule import GROUPS, KINDS, ONE_GROUP, schedule
from chaos.supervisor import Group, wait_for_batches
from chaos.timeline import Timeline
from chaos.world import World

_CALM = 10.0  # seconds without a fault before the end
_SETTLE = 90.0
_DRAIN = 300.0
_DRAINS = 3


class Stopped(BaseException):
    """Raised by SIGINT or SIGTERM: everything is stopped and removed."""


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long events are produced (default 5)")
    parser.add_argument("--seed", type=int, help="seed of the events and the faults (default: random)")
    parser.add_argument(
        "--faults", type=_kinds, default=list(KINDS), metavar="A,B", help=f"kinds of faults: {', '.join(KINDS)}"
    )
    parser.add_argument("--max-faults", type=int, metavar="N", help="end the run after N faults")
    parser.add_argument("--rate", type=float, default=150.0, help="events per second (default 150)")
    parser.add_argument("--pace", type=float, default=1.0, help="factor for the delays between faults (default 1)")
    parser.add_argument("--settled", action="store_true", help="inject faults into running pipelines only")
    parser.add_argument("--one-process", action="store_true", help="run all pipelines in one process")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep logs and data in this folder")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with the whole timeline")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the report as JSON to a file")
    parser.add_argument("--publish", action="store_true", help="write the figures to docs/reliability.md")
    asked = parser.parse_args(words)
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(10**6)
    return asked


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown kind {unknown[0]!r}; expected any of {', '.join(KINDS)}")
    return kinds


def arguments(asked: argparse.Namespace) -> str:
    """Return the arguments that replay a run."""
    words = ["--seed", str(asked.seed), "--minutes", f"{asked.minutes:g}"]
    if asked.faults != list(KINDS):
        words += ["--faults", ",".join(asked.faults)]
    for name, default in (("max_faults", None), ("rate", 150.0), ("pace", 1.0)):
        if getattr(asked, name) != default:
            words += [f"--{name.replace('_', '-')}", f"{getattr(asked, name):g}"]
    return shlex.join(
        [*words, *(f"--{name}" for name in ("settled", "one-process") if vars(asked)[name.replace("-", "_")])]
    )


def run(asked: argparse.Namespace, place: places.Place, timeline: Timeline) -> Report:
    """Run the pipelines, inject the faults, check the results, and return the report."""
    figures = Figures()
    # A second of production is a minute of event time, whatever the rate.
    step = timedelta(seconds=60 / asked.rate)
    broker = BrokerControl(place, timeline)
    layout = ONE_GROUP if asked.one_process else GROUPS
    groups = {name: Group(name, pipelines, place, timeline) for name, pipelines in layout.items()}
    world: World | None = None
    try:
        broker.start(seconds=0)
        world = World(
            place, timeline, broker, groups, Producer(broker.address, events(asked.seed, step), asked.rate, step), step
        )
        created = world.respool("topic", "create", TOPIC, "--partitions", "2")
        if not created.ok:
            raise RuntimeError(created.reason)
        world.producer.start()
        watchers = world.supervise()
        wait_for_batches(groups)
        timeline.add("started", text="every pipeline has committed a batch")
        _inject_all(world, asked, layout)
        world.stopping.set()
        for thread in watchers:
            thread.join(400)
        _drain(world)
        check_all(world, figures)
        stopped = broker.stop()
        if not stopped.ok:
            timeline.violate(f"the broker did not stop: {stopped.reason}")
        for leftover in check_leftovers(place, figures):
            timeline.violate(leftover)
    except Exception as error:
        timeline.violate(f"the run was aborted: {type(error).__name__}: {error}")
    return Report(
        seed=asked.seed,
        minutes=asked.minutes,
        arguments=arguments(asked),
        timeline=timeline,
        figures=figures,
        seconds=world.producer.seconds if world else 0.0,
        starts=sum(group.starts for group in groups.values()),
        unforced=sum(group.unforced for group in groups.values()),
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
    )


def _inject_all(world: World, asked: argparse.Namespace, layout: dict[str, tuple[str, ...]]) -> None:
    """Inject the faults of the schedule until the end of the run."""
    end = time.monotonic() + asked.minutes * 60
    for fault in schedule(asked.seed, asked.faults, layout, asked.pace):
        if time.monotonic() + fault.delay + _CALM > end or (asked.max_faults and fault.number > asked.max_faults):
            break
        time.sleep(fault.delay)
        if fault.settled or asked.settled:
            _settle(world)
        try:
            inject(world, fault)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            world.timeline.add(fault.kind, fault.pipeline or fault.group, text, outcome="failed", number=fault.number)
            world.timeline.violate(f"fault {fault.number} ({fault.kind}) could not be injected: {text}")
            if isinstance(error, TimeoutError):
                raise
        if world.producer.failure:
            raise RuntimeError(f"the producer failed: {world.producer.failure}")
    if not asked.max_faults:
        time.sleep(max(end - time.monotonic(), 0))


def _settle(world: World) -> None:
    """Wait for some time until every pipeline has committed a batch since its start."""
    deadline = time.monotonic() + _SETTLE
    while not all(group.is_settled for group in world.groups.values()) and time.monotonic() < deadline:
        time.sleep(0.2)


def _drain(world: World) -> None:
    """Stop production and let every pipeline process the remaining records."""
    if not world.producer.stop(120):
        raise TimeoutError("the producer did not stop")
    for group in world.groups.values():
        with group.held():
            group.stop("term")
    if not world.producer.close_event_time(60):
        raise TimeoutError("the last events were not acknowledged")
    clients = f"; the client was replaced {world.producer.replaced} times" if world.producer.replaced else ""
    world.timeline.add("draining", text=f"{len(world.producer.sent):,} events were produced{clients}")
    waiting = list(world.groups.values())
    for _ in range(_DRAINS):
        for group in waiting:
            group.start("--available-now")
        waiting = [group for group in waiting if not group.finish(_DRAIN)]
        if not waiting:
            return
    names = ", ".join(group.name for group in waiting)
    world.timeline.violate(f"run {names} --available-now failed {_DRAINS} times")


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(words: Sequence[str] | None = None) -> None:
    """Run, print the report, and exit with 1 if a guarantee did not hold."""
    asked = options(words)
    print(f"Seed {asked.seed}; replay with: python -m chaos {arguments(asked)}", file=sys.stderr, flush=True)
    timeline = Timeline(show=lambda text: print(text, file=sys.stderr, flush=True))
    with _stopping_on_signals():
        place = places.make(asked.keep, asked.minutes)
        report: Report | None = None
        try:
            report = run(asked, place, timeline)
            _write(report, place.folder / "report.json")
        except Stopped:
            print("Stopped; everything is removed.", file=sys.stderr, flush=True)
        finally:
            _clean_up(place, keep=asked.keep is not None or bool(timeline.violations))
    if report is None:
        sys.exit(130)
    if asked.out:
        _write(report, asked.out)
    if asked.publish:
        publish(report, Path(__file__).parents[1] / "docs" / "reliability.md")
    print(json.dumps(report.as_json(), indent=1) if asked.json else report.text())
    if timeline.violations:
        print(f"Logs and data are in {place.folder}", file=sys.stderr)
        sys.exit(1)


def _clean_up(place: places.Place, keep: bool) -> None:
    """End all processes and unmount the disk; a second signal does not interrupt this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    processes.kill_all(place.marker)
    with contextlib.suppress(OSError):
        places.remove(place, keep)


def _write(report: Report, file: Path) -> None:
    facts: dict[str, Any] = report.as_json()
    file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
