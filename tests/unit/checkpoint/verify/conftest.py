"""Golden checkpoints for the tests of verify."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from support import checkpoints
from support.checkpoints import settled

pytest.register_assert_rewrite("support.verifying")


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Golden checkpoints, each unpacked once; not to be changed."""
    folder = tmp_path_factory.mktemp("golden")

    @cache
    def unpacked(kind: str, version: str = checkpoints.NEWEST) -> Path:
        return settled(checkpoints.unpack(folder / version, kind, version))

    return unpacked


@pytest.fixture
def copy(originals: Callable[[str, str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes a golden checkpoint that may be changed."""

    def made(kind: str, version: str = checkpoints.NEWEST) -> Path:
        target = tmp_path / "checkpoint"
        shutil.copytree(originals(kind, version), target)
        return settled(target)

    return made
