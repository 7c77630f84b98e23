"""Environments of the peers, each in a folder of its own under the bench's: Python packages by uv, jars by Maven.

Packages are pinned by hash in `peers/<name>/requirements.txt`. Nothing is installed twice: a folder with the mark of
the same requirements is taken as it is. `python -m benchmarks.environments` pins them again.
"""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
_MINUTES = 15


class NotHere(Exception):
    """What an engine needs cannot be had, and why."""


@dataclass(frozen=True)
class Place:
    """Where the bench keeps what it makes.

    Attributes:
        folder: The folder, with an absolute path.
        offline: Nothing is downloaded.
    """

    folder: Path
    offline: bool = False


def python(place: Place, name: str) -> str:
    """Return the Python of a peer; without an environment of its own, the one that runs the bench."""
    own = _folder(place, name) / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def ready(place: Place, name: str, *, optional: bool = False) -> str:
    """Make the environment of a peer, and return what is in it.

    Args:
        place: Where.
        name: The peer.
        optional: Without it the peer runs on the Python that runs the bench.

    Raises:
        NotHere: It cannot be made.
    """
    requirements = PEERS / name / "requirements.txt"
    folder = _folder(place, name)
    mark = folder / "requirements.sha256"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (mark.exists() and mark.read_text() == wanted):
        if place.offline:
            if optional:
                return "the environment of the bench"
            raise NotHere("its packages are not here, and --offline forbids to download them")
        shutil.rmtree(folder, ignore_errors=True)
        run([_uv(), "venv", "--quiet", "--python", sys.executable, str(folder)])
        own = str(folder / "bin" / "python")
        run([_uv(), "pip", "install", "--quiet", "--require-hashes", "-r", str(requirements), "--python", own])
        mark.write_text(wanted)
    return ", ".join(_wanted(PEERS / name, requirements))


def maven(place: Place, project: Path, jar: Path, *goals: str) -> None:
    """Build a Maven project unless its jar is there and newer than its sources.

    Raises:
        NotHere: Maven is not here, or fails.
    """
    sources = [one for one in project.rglob("*") if one.is_file()]
    if jar.exists() and jar.stat().st_mtime >= max(one.stat().st_mtime for one in sources):
        return
    found = shutil.which("mvn")
    if found is None:
        raise NotHere("mvn is not on this machine")
    offline = ["--offline"] if place.offline else []
    run([found, "--batch-mode", "--quiet", *offline, "-f", str(project / "pom.xml"), f"-Dtarget={jar.parent}", *goals])
    if not jar.exists():
        raise NotHere(f"Maven made no {jar.name}")
    jar.touch()


def run(words: list[str]) -> None:
    """Run a command that makes something.

    Raises:
        NotHere: It failed.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60 * _MINUTES, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{Path(words[0]).name}: {error}") from error
    if done.returncode:
        lines = [one.strip() for one in (done.stderr + done.stdout).splitlines() if one.strip()]
        telling = [one for one in lines if "rror" in one or "×" in one]
        raise NotHere(f"{Path(words[0]).name}: {(telling or lines or ['failed'])[0][:200]}")


def lock() -> None:
    """Write the pinned packages of all peers again, from what is asked for."""
    for asked in sorted(PEERS.glob("*/requirements.in")):
        words = ["--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--upgrade", "--quiet"]
        words += ["--custom-compile-command", "python -m benchmarks.environments"]
        run([_uv(), "pip", "compile", *words, str(asked), "-o", str(asked.with_suffix(".txt"))])


def _uv() -> str:
    return str(Path(sys.executable).parent / "uv")


def _folder(place: Place, name: str) -> Path:
    return place.folder / "envs" / name


def _wanted(folder: Path, requirements: Path) -> list[str]:
    """Return the packages that were asked for, with their versions."""
    asked = {one.partition("==")[0].strip() for one in (folder / "requirements.in").read_text().split()}
    pins = [line.split()[0] for line in requirements.read_text().splitlines() if "==" in line]
    return [one.replace("==", " ") for one in pins if one.partition("==")[0] in asked]


if __name__ == "__main__":
    lock()
