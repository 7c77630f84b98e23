"""`respool demo`: walk-throughs played live and checked."""

import signal
import sys
import time
from typing import Annotated

import typer

from respool.cli.options import Home, Json, load
from respool.cli.render import out, out_json, table
from respool.errors import PipelineError, RespoolError, did_you_mean


def demo(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Scenarios to play.  [default: the main one]")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker, topics and checkpoints for a look around.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Play a walk-through live on a broker of its own, and check what comes out.

    Exits with 1 when anything differs from what the walk-through promises.
    """
    from respool.demo.scenarios import SCENARIOS

    if list_:
        rows = [{"scenario": one.name, "shows": one.title} for one in SCENARIOS.values()]
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
    # What a scenario has started is ended on the way out; without this, SIGTERM would leave no way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from respool.demo.player import Player, clear, settings_for

    for name in wanted:
        stage = settings_for(settings, name)
        clear(stage.home)
        begin = time.monotonic()
        try:
            Player(stage, out).play(SCENARIOS[name], keep)
        except RespoolError:
            out(f"✘ {name}: not as expected, after {time.monotonic() - begin:.0f} s")
            raise
        out(f"✔ {name}: all as expected, in {time.monotonic() - begin:.0f} s")
        if keep:
            out(f"Kept for a look around: {stage.home}. Stop its broker with: respool broker stop --home {stage.home}")
