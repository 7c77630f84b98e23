"""Which Java is used, and what is reported when it is missing or too old."""

import re
from pathlib import Path

import pytest

from respool.errors import MachineError
from respool.local.java import find_java


def fake_java(folder: Path, output: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java; java is on the PATH once it stands in bin/ of this folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setattr(
        "shutil.which", lambda name: str(program) if (program := tmp_path / "bin" / name).exists() else None
    )
    return tmp_path


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', "17.0.15"),
        ('openjdk version "21" 2023-09-19', "21"),
        ('openjdk version "25-ea" 2025-09-16', "25-ea"),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "18.0.1" 2022-04-19', "18.0.1"),
    ],
)
def test_java_on_the_path_is_found(machine: Path, output: str, version: str) -> None:
    program = fake_java(machine, output)
    java = find_java()
    assert (java.path, java.version, java.home) == (program, version, machine.resolve())


def test_java_home_wins_over_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine, 'openjdk version "17.0.1"')
    program = fake_java(machine / "jdk", 'openjdk version "21.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "jdk"))
    assert (find_java().path, find_java().version) == (program, "21.0.2")


def test_no_java(machine: Path) -> None:
    with pytest.raises(MachineError, match=r"No Java was found.*openjdk-17-jre-headless.*JAVA_HOME"):
        find_java()


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392"])
def test_an_old_java_is_named(machine: Path, version: str) -> None:
    program = fake_java(machine, f'openjdk version "{version}" 2024-01-16')
    with pytest.raises(MachineError, match=rf"{program} is Java {re.escape(version)}.* 17 or newer.*Install a JDK"):
        find_java()


def test_java_home_without_java(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(MachineError, match=r"JAVA_HOME is /nowhere, which holds no bin/java"):
        find_java()


def test_a_stub_that_only_says_that_java_is_missing_is_not_a_java(machine: Path) -> None:
    fake_java(machine, "The operation couldn’t be completed. Unable to locate a Java Runtime.", code=1)
    with pytest.raises(MachineError, match=r"Unable to locate a Java Runtime.*Install a JDK"):
        find_java()


def test_a_java_that_does_not_run(machine: Path) -> None:
    fake_java(machine, "").write_bytes(b"\x7fELF not for this machine")
    with pytest.raises(MachineError, match="does not run"):
        find_java()
