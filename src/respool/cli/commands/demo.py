"""`respool demo`: walk-throughs played live and checked."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli.options import Home, Json, load
from respool.cli.render.output import out_json, print_result, table
from respool.errors import PipelineError, RespoolError
from respool.text import did_you_mean

if TYPE_CHECKING:
    from respool.settings import Settings


def demo(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Scenarios to play.  [default: the main scenario]")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the broker, topics and checkpoints, to inspect them.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Play scenarios on a separate broker, and check the results.

    Exit code 1 if anything differs from the expected transcript.
    """
    from respool.demo.scenarios import SCENARIOS

    if list_:
        rows = [{"scenario": scenario.name, "shows": scenario.title} for scenario in SCENARIOS.values()]
        if json:
            out_json(rows)
        else:
            table(rows, ("scenario", "shows"), "There are no scenarios.")
        return
    wanted = names or [next(iter(SCENARIOS))]
    for name in wanted:
        if name not in SCENARIOS:
            raise PipelineError(
                f"There is no scenario '{name}'.{did_you_mean(name, list(SCENARIOS))} See: respool demo --list."
            )
    settings = load(home=home)
    with _ended_by_signals():
        for name in wanted:
            _play(settings, name, keep)


def _play(settings: "Settings", name: str, keep: bool) -> None:
    from respool.demo.player import Player, clear, settings_for
    from respool.demo.scenarios import SCENARIOS

    stage = settings_for(settings, name)
    clear(stage.home)
    begin = time.monotonic()
    try:
        Player(stage, print_result).play(SCENARIOS[name], keep)
    except RespoolError:
        print_result(f"✘ {name}: not as expected, after {time.monotonic() - begin:.0f} s")
        raise
    print_result(f"✔ {name}: all as expected, in {time.monotonic() - begin:.0f} s")
    if keep:
        print_result(f"Kept: {stage.home}. Stop its broker with: respool broker stop --home {stage.home}")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise SystemExit, so that a scenario ends the processes that it has started.

    Ctrl-C reaches the commands of a scenario, too: a later failure counts as the interruption.
    """
    seen: list[int] = []

    def end(number: int, frame: object) -> None:
        seen.append(number)
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        yield
    except Exception:
        if seen:
            sys.exit(128 + seen[0])
        raise
