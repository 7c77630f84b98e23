"""`respool doctor`: whether this machine has what respool needs, and what to do where it has not."""

import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer

from respool.cli.options import BootstrapServers, Home, Json, connect, load
from respool.cli.render import out, out_json, size
from respool.errors import RespoolError
from respool.settings import Settings

_LITTLE_SPACE = 500 * 2**20


@dataclass(frozen=True)
class Check:
    """What was found of one thing.

    Attributes:
        name: The thing.
        state: `ok`; `later`: not there yet, and nothing is wrong with that; `broken`.
        found: What was found, and the next step where one is needed.
    """

    name: str
    state: Literal["ok", "later", "broken"]
    found: str


def doctor(home: Home = None, bootstrap_servers: BootstrapServers = None, json: Json = False) -> None:
    """Check this machine: Java, Python, packages, jars, disk, broker. Exits with 1 if anything is broken."""
    checks = examine(load(home=home, bootstrap_servers=bootstrap_servers))
    if json:
        out_json([asdict(check) for check in checks])
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            out(f"{check.state:<6}  {check.name:<{width}}  {check.found}")
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def examine(settings: Settings) -> list[Check]:
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


def _java() -> Check:
    from respool.local.java import find_java

    try:
        java = find_java()
    except RespoolError as error:
        return Check("Java", "broken", str(error))
    return Check("Java", "ok", f"{java.version} ({java.path})")


def _python() -> Check:
    # Too old a Python cannot even read this file.
    return Check("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def _packages() -> Check:
    try:
        missing_or_wrong, installed = _compare_packages()
    except ModuleNotFoundError as error:  # packaging itself is a dependency that may be missing
        missing_or_wrong, installed = [f"{error.name} is missing"], []
    if missing_or_wrong:
        problems = "; ".join(missing_or_wrong)
        return Check("packages", "broken", f"{problems}. Install respool again: pip install --force respool.")
    return Check("packages", "ok", ", ".join(installed))


def _compare_packages() -> tuple[list[str], list[str]]:
    """Return a text for each required package that is missing or of another version, and one for each of the others."""
    from packaging.requirements import Requirement  # 20 ms, which no other command should pay

    problems: list[str] = []
    installed: list[str] = []
    for line in metadata.requires("respool") or []:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
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


def _jars(set_name: str) -> Check:
    from respool.local import jars

    name = f"{set_name} jars"
    if jars.present(set_name):
        return Check(name, "ok", str(jars.folder(set_name)))
    return Check(name, "later", f"will be downloaded at first use ({size(jars.size(set_name))})")


def _disk(name: str, folder: Path, choice: str) -> Check:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK):
        return Check(name, "broken", f"{there} cannot be written. Make it writable, or choose another with {choice}.")
    free = shutil.disk_usage(there).free
    if free < _LITTLE_SPACE:
        return Check(
            name,
            "broken",
            f"{folder} has {size(free)} free; expected {size(_LITTLE_SPACE)} at least. Free some space, or choose a "
            f"folder on another disk with {choice}.",
        )
    return Check(name, "ok", f"{folder}, {size(free)} free")


def _kafka(settings: Settings) -> Check:
    from respool.local import broker

    if settings.bootstrap_servers or "bootstrap.servers" in settings.kafka:
        try:
            return Check("Kafka", "ok", f"answers at {connect(settings).bootstrap_servers}")
        except RespoolError as error:
            return Check("Kafka", "broken", str(error))
    found = broker.status(settings.home)
    match found.state:
        case "running":
            return Check("broker", "ok", f"runs at {found.address}")
        case "silent":
            step = "Stop it and start it again: respool broker stop, respool broker start."
            return Check("broker", "broken", f"process {found.pid} lives but does not answer. {step}")
        case "died":
            return Check("broker", "later", "ended without being stopped. Start it again: respool broker start.")
        case "stopped":
            return Check("broker", "later", "not running. Start it with: respool broker start.")
