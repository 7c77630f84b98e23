"""The jars that pyspark lacks: Spark's Kafka connector and Delta Lake, Hadoop's s3a, and the embedded Kafka broker.

Three sets, `spark`, `s3` and `broker`, each downloaded once into the user's cache by the Ivy that ships inside pyspark:

    $XDG_CACHE_HOME/respool/jars/<set>-<hash of the set's lock>/*.jar

`ivy.xml` names every jar by its exact version and `jars.lock.json` holds its size and SHA-256. A folder of the cache is
complete or does not exist: jars are downloaded next to it, checked against the lock, and moved into place by one
rename. Afterwards, neither the network nor Java is used.

After a change of `ivy.xml`, `python -m respool.local.jars lock [IVYSETTINGS]` writes the lock again.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from respool.errors import MachineError, SettingsError
from respool.local.java import find_java
from respool.locations import expand_user
from respool.settings import Settings

SETS = ("spark", "s3", "broker")
_HERE = Path(__file__).parent
# What happens is logged; a record about a download has the attributes `done` and `total`, in jars. Jars are provided
# deep inside the start of Spark and of the broker: a logger reaches whoever shows progress without an argument of each.
_LOGGER = logging.getLogger("respool.jars")
_LOCK = _HERE / "jars.lock.json"
# Lines of Ivy that state why it failed, the most specific first.
_REASONS = (
    "No space left",
    "not found. url=",
    "Server access error",
    "[FAILED",
    "unknown resolver",
    "module not found:",
    "Exception",
    "not found",
)
_MIRROR = (
    "Check the network. Behind a mirror, name an ivysettings.xml with ivy_settings in respool.toml (or "
    "RESPOOL_IVY_SETTINGS); behind a proxy, set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…'."
)


@dataclass(frozen=True)
class Jar:
    """A jar as recorded in the lock."""

    sha256: str
    size: int


def spark_jars(settings: Settings) -> list[Path]:
    """Return the jars to hand to Spark, downloaded if they are not in the cache yet."""
    return _jars("spark", settings)


def s3_jars(settings: Settings) -> list[Path]:
    """Return the jars that Spark needs for s3a addresses, downloaded if they are not in the cache yet."""
    return _jars("s3", settings)


def broker_jars(settings: Settings) -> list[Path]:
    """Return the class path of the embedded broker, downloaded if it is not in the cache yet."""
    return _jars("broker", settings)


def present(set_name: str) -> bool:
    """Return whether every jar of a set is in the cache; fast, without the network and without Java."""
    try:
        there = {entry.name for entry in os.scandir(folder(set_name))}
    except OSError:
        return False
    return there >= locked(set_name).keys()


def spark_version() -> str:
    """Return the version of Spark that the jars are for."""
    connector = next(name for name in locked("spark") if name.startswith("spark-sql-kafka"))
    return connector.removesuffix(".jar").rpartition("-")[2]


def size(set_name: str) -> int:
    """Return how many bytes the jars of a set have."""
    return sum(jar.size for jar in locked(set_name).values())


def cache() -> Path:
    """Return the folder of the user's cache that holds the sets."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    # A relative XDG_CACHE_HOME is to be ignored, by its specification.
    base = Path(root) if os.path.isabs(root) else expand_user(Path("~/.cache"))
    return base / "respool" / "jars"


def folder(set_name: str) -> Path:
    """Return the folder of a set, which need not exist; its name changes with the lock: an old set is never used."""
    lines = "".join(f"{name} {jar.sha256}\n" for name, jar in sorted(locked(set_name).items()))
    return cache() / f"{set_name}-{hashlib.sha256(lines.encode()).hexdigest()[:12]}"


@lru_cache
def locked(set_name: str) -> Mapping[str, Jar]:
    """Return the jars of a set by their file names."""
    lock = json.loads(_LOCK.read_text(encoding="ascii"))
    return {name: Jar(jar["sha256"], jar["size"]) for name, jar in lock[set_name].items()}


def _jars(set_name: str, settings: Settings) -> list[Path]:
    where = folder(set_name)
    if not present(set_name):
        try:
            _provide(set_name, where, settings.ivy_settings)
        except OSError as error:
            raise _cache_error(where, error) from error
    return [where / name for name in sorted(locked(set_name))]


def _cache_error(where: Path, error: OSError) -> MachineError:
    if error.errno == errno.ENOSPC:
        return MachineError(
            f"The disk that holds {where.parent} is full. Free some space, or set XDG_CACHE_HOME to a folder on "
            "another disk, and run this again."
        )
    return MachineError(
        f"The cache {where.parent} cannot be written: {error.strerror or error}. Make it writable, or set "
        "XDG_CACHE_HOME to another folder."
    )


def _provide(set_name: str, where: Path, ivy_settings: Path | None) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    with _turn(set_name, where.parent) as turn:
        if present(set_name):  # Another respool has downloaded it while this one waited.
            return
        for old in where.parent.glob(f".{set_name}-*"):  # Left by a respool that was killed.
            shutil.rmtree(old, ignore_errors=True)
        _check_space(set_name, where.parent)
        part = Path(tempfile.mkdtemp(prefix=f".{set_name}-", dir=where.parent))
        try:
            _ivy(set_name, part, ivy_settings, turn)
            _verify(part / "jars", locked(set_name))
            # respool never leaves an incomplete set: download all of it again.
            shutil.rmtree(where, ignore_errors=True)
            os.rename(part / "jars", where)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _turn(set_name: str, parent: Path) -> Iterator[IO[str]]:
    """Let only one respool at a time download a set; the lock ends with the processes that hold it."""
    with open(parent / f"{set_name}.lock", "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _LOGGER.info("Another respool is downloading the %s jars: waiting for it …", set_name)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _check_space(set_name: str, parent: Path) -> None:
    needed = 2 * size(set_name)  # Ivy keeps its own copy until the end.
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise MachineError(
            f"The disk that holds {parent} has {free // 2**20} MiB left; the {set_name} jars need {needed // 2**20} "
            "MiB. Free some space, or set XDG_CACHE_HOME to a folder on another disk."
        )


def _ivy(set_name: str, part: Path, ivy_settings: Path | None, turn: IO[str]) -> None:
    """Download a set into part/jars."""
    command = _ivy_command(set_name, part, ivy_settings)
    # Ivy inherits the lock: if this respool is killed, the next waits until that Ivy has ended, too.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[turn.fileno()],
    ) as process:
        try:
            assert process.stdout is not None
            lines = _follow(process.stdout, set_name)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(set_name, lines)


def _ivy_command(set_name: str, part: Path, ivy_settings: Path | None) -> list[str]:
    if ivy_settings is not None and not ivy_settings.is_file():
        raise SettingsError(f"ivy_settings names {ivy_settings}, which does not exist. Correct or remove it.")
    return [
        *(str(find_java().path), "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", str(ivy_settings or _HERE / "ivysettings.xml")),
        *("-ivy", str(_HERE / "ivy.xml")),
        *("-cache", str(part / "cache")),
        *("-confs", set_name),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{part / 'jars'}/[artifact]-[revision].[ext]"),
    ]


def _ivy_jar() -> Path:
    # find_spec does not import pyspark, which takes its time.
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or []
    ivy_jars = [jar for place in places for jar in Path(place).glob("jars/ivy-*.jar")]
    if not ivy_jars:
        raise MachineError(
            "Jars are downloaded by the Ivy of pyspark, whose jars/ivy-*.jar is missing. Install it with: "
            "pip install 'respool[spark]'"
        )
    return ivy_jars[0]


def _follow(output: IO[str], set_name: str) -> list[str]:
    """Log how many jars Ivy has downloaded, and return what it printed."""
    total, mib = len(locked(set_name)), size(set_name) / 2**20
    _LOGGER.info("Downloading the %s jars, once: %d jars, %.0f MiB …", set_name, total, mib)
    lines: list[str] = []
    done = 0
    for line in output:
        lines.append(line.rstrip())
        if "[SUCCESSFUL" in line:
            done += 1
            _LOGGER.info("  %d of %d jars", done, total, extra={"done": done, "total": total})
    return lines


def _failure(set_name: str, lines: list[str]) -> MachineError:
    if any("No space left" in line for line in lines):
        return _cache_error(folder(set_name), OSError(errno.ENOSPC, ""))
    reasons = (line.strip() for reason in _REASONS for line in lines if reason in line)
    why = next(reasons, lines[-1].strip() if lines else "Ivy printed nothing")
    return MachineError(f"The {set_name} jars could not be downloaded: {why.rstrip('.')}. {_MIRROR}")


def _verify(downloaded: Path, jars: Mapping[str, Jar]) -> None:
    for name, jar in jars.items():
        file = downloaded / name
        if not file.is_file():
            raise MachineError(f"The download ended without {name}. Try again. {_MIRROR}")
        digest = _sha256(file)
        if digest != jar.sha256:
            raise MachineError(
                f"{name} was downloaded with the SHA-256 {digest}; the lock expects {jar.sha256}. Nothing was kept. "
                "Try again; if this persists, the repository serves another file than the one that was locked."
            )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_lock(ivy_settings: Path | None = None) -> None:
    """Download all sets as ivy.xml names them now, and write their sizes and checksums into jars.lock.json."""
    lock: dict[str, dict[str, dict[str, str | int]]] = {}
    with tempfile.TemporaryDirectory() as folder_name, open(os.devnull, "w") as nothing:
        for set_name in SETS:
            part = Path(folder_name) / set_name
            _ivy(set_name, part, ivy_settings, nothing)
            files = sorted((part / "jars").iterdir(), key=lambda file: file.name)
            lock[set_name] = {file.name: {"sha256": _sha256(file), "size": file.stat().st_size} for file in files}
    _LOCK.write_text(json.dumps(lock, indent=2) + "\n", encoding="ascii")


if __name__ == "__main__":
    if sys.argv[1:2] != ["lock"] or len(sys.argv) > 3:
        sys.exit("usage: python -m respool.local.jars lock [IVYSETTINGS]")
    write_lock(Path(sys.argv[2]) if len(sys.argv) == 3 else None)
