"""`respool doctor`: whether this machine has what respool needs, and what to do where it has not."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from respool.errors import RespoolError
from respool.kafka.topics import connect
from respool.settings import Settings
from respool.text import size

_LITTLE_SPACE = 500 * 2**20


@dataclass(frozen=True)
class MachineCheck:
    """The result of checking one part of the machine.

    Attributes:
        name: The part.
        state: `ok`; `later`: it does not exist yet, which is in order; `broken`.
        detail: What was found, and the next step if one is needed.
    """

    name: str
    state: Literal["ok", "later", "broken"]
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return it as `respool doctor --json` prints it."""
        return {"name": self.name, "state": self.state, "found": self.detail}


def examine(settings: Settings) -> list[MachineCheck]:
    """Return every check of a machine, in the order they are needed."""
    from respool.local import jars

    return [
        _java(),
        _python(),
        _packages(),
        *(_jars(name) for name in jars.SETS),
        _disk("home", settings.home, "--home"),
        _disk("cache", jars.cache(), "XDG_CACHE_HOME"),
        _kafka(settings),
    ]


def _java() -> MachineCheck:
    from respool.local.java import find_java

    try:
        java = find_java()
    except RespoolError as error:
        return MachineCheck("Java", "broken", str(error))
    return MachineCheck("Java", "ok", f"{java.version} ({java.path})")


def _python() -> MachineCheck:
    # Too old a Python cannot even read this file.
    return MachineCheck("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def _packages() -> MachineCheck:
    try:
        missing_or_wrong, installed = _compare_packages()
    except ModuleNotFoundError as error:  # packaging itself is a dependency that may be missing
        missing_or_wrong, installed = [f"{error.name} is missing"], []
    if missing_or_wrong:
        problems = "; ".join(missing_or_wrong)
        return MachineCheck("packages", "broken", f"{problems}. Install respool again: pip install --force respool.")
    if not _runs_pipelines():
        installed.append("no pyspark: pip install 'respool[spark]' adds what runs pipelines")
    return MachineCheck("packages", "ok", ", ".join(installed))


def _runs_pipelines() -> bool:
    """Return whether pyspark is installed: without it, respool inspects and changes checkpoints."""
    try:
        metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return False
    return True


def _compare_packages() -> tuple[list[str], list[str]]:
    """Return a text for each required package that is missing or of another version, and one for each of the others."""
    from packaging.requirements import Requirement  # 20 ms, which no other command should pay

    problems: list[str] = []
    installed: list[str] = []
    extras = ("", "spark") if _runs_pipelines() else ("",)
    for line in metadata.requires("respool") or []:
        requirement = Requirement(line)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = requirement.name
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is missing")
            continue
        if satisfies(version, str(requirement.specifier)):
            installed.append(f"{name} {version}")
        else:
            problems.append(f"{name} is {version}, expected {requirement.specifier}")
    return problems, installed


def satisfies(version: str, specifier: str) -> bool:
    """Return whether a version such as 2.3.1 satisfies a specifier such as `>=2.2,<3`; pre-releases are accepted."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _jars(set_name: str) -> MachineCheck:
    from respool.local import jars

    name = f"{set_name} jars"
    if jars.present(set_name):
        return MachineCheck(name, "ok", str(jars.folder(set_name)))
    return MachineCheck(name, "later", f"will be downloaded at first use ({size(jars.size(set_name))})")


def _disk(name: str, folder: Path, choice: str) -> MachineCheck:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return MachineCheck(
            name, "broken", f"{existing} cannot be written. Make it writable, or choose another with {choice}."
        )
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_SPACE:
        return MachineCheck(
            name,
            "broken",
            f"{folder} has {size(free)} free; expected {size(_LITTLE_SPACE)} at least. Free some space, or choose a "
            f"folder on another disk with {choice}.",
        )
    return MachineCheck(name, "ok", f"{folder}, {size(free)} free")


def _kafka(settings: Settings) -> MachineCheck:
    from respool.local import broker

    if settings.bootstrap_servers or "bootstrap.servers" in settings.kafka:
        try:
            return MachineCheck("Kafka", "ok", f"answers at {connect(settings).bootstrap_servers}")
        except RespoolError as error:
            return MachineCheck("Kafka", "broken", str(error))
    status = broker.status(settings.home)
    match status.state:
        case "running":
            return MachineCheck("broker", "ok", f"runs at {status.address}")
        case "silent":
            step = "Stop it and start it again: respool broker stop, respool broker start."
            return MachineCheck("broker", "broken", f"process {status.pid} runs but does not answer. {step}")
        case "died":
            return MachineCheck("broker", "later", "ended without being stopped. Start it again: respool broker start.")
        case "stopped":
            return MachineCheck("broker", "later", "not running. Start it with: respool broker start.")
