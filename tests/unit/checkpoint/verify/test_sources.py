"""Verify checks the sources' logs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkpoints import cut, gone, written
from support.verifying import Damage, assert_named_and_mended

SOURCES = [
    Damage("a log entry lost", "hdfs", lambda c: gone(c / "sources/0/12"), "sources/0/12 is missing", to=12),
    Damage("the newest log entry lost", "hdfs", lambda c: gone(c / "sources/0/13"), "offsets/13 names 13", to=13),
    Damage(
        "the compact log lost",
        "hdfs",
        lambda c: gone(c / "sources/0/9.compact"),
        "sources/0/9 is missing, and so is 9.compact",
        to=9,
    ),
    Damage(
        "the compact log damaged",
        "stateless",
        lambda c: cut(c / "sources/0/9.compact"),
        "sources/0/9.compact is damaged",
        to=9,
    ),
    Damage("an empty log entry", "ids", lambda c: written(c / "sources/0/13", ""), "sources/0/13 is damaged", to=13),
    Damage(
        "Kafka's beginning lost",
        "kafka",
        lambda c: gone(c / "sources/0/0"),
        "sources/0/0, which holds the source's initial position, is missing",
        "startingOffsets",
        status="note",
    ),
]


@pytest.mark.parametrize("damage", SOURCES, ids=lambda damage: damage.name)
def test_damage_to_a_sources_log_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)
