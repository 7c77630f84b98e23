"""The walk-throughs, played as `respool demo` plays them."""

from pathlib import Path

import pytest

from respool.demo.player import Player
from respool.demo.scenarios import SCENARIOS
from respool.settings import Settings


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_scenario_ends_as_its_walk_through_says(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown: list[str] = []
    Player(Settings(home=home), shown.append).play(SCENARIOS[name])
    assert shown[0].startswith(f"▶ {name}")
    assert not home.exists()  # nothing is left behind
