"""Environments of the peers, each in a separate folder: Python packages are installed by uv, jars by Maven.

Packages are pinned by hash in `peers/<name>/requirements.txt`. Nothing is installed twice: a folder that records the
hash of the same requirements is reused. `python -m benchmarks.environments` updates the pins.
"""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
_MINUTES = 15


class NotAvailable(Exception):
    """An engine cannot be installed; the message has the reason."""


@dataclass(frozen=True)
class Place:
    """The folder of the benchmark's environments, data and broker.

    Attributes:
        folder: The absolute path.
        offline: Whether downloads are forbidden.
    """

    folder: Path
    offline: bool = False


def python(place: Place, name: str) -> str:
    """Return the Python of a peer; without a separate environment, the Python that runs the benchmark."""
    own = _folder(place, name) / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def ready(place: Place, name: str, *, optional: bool = False) -> str:
    """Create the environment of a peer, and return the versions of its packages.

    Args:
        place: The folder of the benchmark.
        name: The peer.
        optional: Without it the peer runs on the Python that runs the benchmark.

    Raises:
        NotAvailable: It cannot be created.
    """
    requirements = PEERS / name / "requirements.txt"
    folder = _folder(place, name)
    mark = folder / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (mark.exists() and mark.read_text() == digest):
        if place.offline:
            if optional:
                return "the environment of the benchmark"
            raise NotAvailable("its packages are not installed, and --offline forbids downloading them")
        shutil.rmtree(folder, ignore_errors=True)
        run([_uv(), "venv", "--quiet", "--python", sys.executable, str(folder)])
        own = str(folder / "bin" / "python")
        run([_uv(), "pip", "install", "--quiet", "--require-hashes", "-r", str(requirements), "--python", own])
        mark.write_text(digest)
    return ", ".join(_pinned(PEERS / name, requirements))


def maven(place: Place, project: Path, jar: Path, *goals: str) -> None:
    """Build a Maven project unless its jar exists and is newer than its sources.

    Raises:
        NotAvailable: Maven is not installed, or fails.
    """
    sources = [path for path in project.rglob("*") if path.is_file()]
    if jar.exists() and jar.stat().st_mtime >= max(path.stat().st_mtime for path in sources):
        return
    program = shutil.which("mvn")
    if program is None:
        raise NotAvailable("mvn is not installed on this machine")
    offline = ["--offline"] if place.offline else []
    run(
        [program, "--batch-mode", "--quiet", *offline, "-f", str(project / "pom.xml"), f"-Dtarget={jar.parent}", *goals]
    )
    if not jar.exists():
        raise NotAvailable(f"Maven did not build {jar.name}")
    jar.touch()


def run(command: list[str]) -> None:
    """Run a command to its end.

    Raises:
        NotAvailable: It failed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * _MINUTES, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"{Path(command[0]).name}: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line or "×" in line]
        raise NotAvailable(f"{Path(command[0]).name}: {(errors or lines or ['failed'])[0][:200]}")


def lock() -> None:
    """Update the pinned packages of all peers from their requirements.in."""
    for source in sorted(PEERS.glob("*/requirements.in")):
        options = ["--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--upgrade", "--quiet"]
        options += ["--custom-compile-command", "python -m benchmarks.environments"]
        run([_uv(), "pip", "compile", *options, str(source), "-o", str(source.with_suffix(".txt"))])


def _uv() -> str:
    return str(Path(sys.executable).parent / "uv")


def _folder(place: Place, name: str) -> Path:
    return place.folder / "envs" / name


def _pinned(folder: Path, requirements: Path) -> list[str]:
    """Return the packages of requirements.in, with their pinned versions."""
    names = {name.partition("==")[0].strip() for name in (folder / "requirements.in").read_text().split()}
    pins = [line.split()[0] for line in requirements.read_text().splitlines() if "==" in line]
    return [pin.replace("==", " ") for pin in pins if pin.partition("==")[0] in names]


if __name__ == "__main__":
    lock()
