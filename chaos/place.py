"""The folder of a run, its home on a small disk, and the environment of its processes."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

# The names must not begin with RESPOOL_: respool rejects unknown variables with that prefix.
MARKER = "CHAOS_OF_RESPOOL"
GROUP = "CHAOS_GROUP"
_MIB = 2**20


@dataclass(frozen=True)
class Place:
    """The folder of a run.

    Attributes:
        folder: The folder of logs, temporary files and the report.
        home: The home of respool.
        marker: The value of a variable in the environment of every process of the run.
        port: The port of the broker: not the default port, which other programs may take while the broker is down.
        no_small_disk: Why the home is not on a separate disk; empty if it is.
    """

    folder: Path
    home: Path
    marker: str
    port: int
    no_small_disk: str

    @property
    def logs(self) -> Path:
        """The folder of the output of all commands."""
        return self.folder / "logs"

    @property
    def temporary(self) -> Path:
        """The folder that processes use for temporary files."""
        return self.folder / "tmp"

    def environment(self, group: str = "") -> dict[str, str]:
        """Return the environment of a process of the run; the caller's settings for respool are removed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RESPOOL_")}
        java = f"{kept.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={self.temporary}".strip()
        return {
            **kept,
            "PYTHONUNBUFFERED": "1",
            "JDK_JAVA_OPTIONS": java,
            "SPARK_LOCAL_DIRS": str(self.temporary),
            "TMPDIR": str(self.temporary),
            "RESPOOL_HOME": str(self.home),
            "RESPOOL_BROKER_PORT": str(self.port),
            MARKER: self.marker,
            **({GROUP: group} if group else {}),
        }

    def fill(self) -> int:
        """Fill the disk of the home, and return how many bytes that took."""
        written = 0
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            size = 16 * _MIB
            while size >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), written, size)
                    written += size
                except OSError:
                    size //= 2
        return written

    def free(self) -> None:
        """Delete what `fill` wrote."""
        with contextlib.suppress(FileNotFoundError):
            self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.home.parent / "filler"


def make(folder: Path | None, minutes: float) -> Place:
    """Create the folder of a run, and mount a small disk for its home if that is permitted."""
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="respool-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    disk = folder / "disk"
    for path in (disk, folder / "logs", folder / "tmp"):
        path.mkdir(exist_ok=True)
    why = _mount(disk, int(768 + 24 * minutes) * _MIB)
    home = disk / "home"
    home.mkdir()
    return Place(folder, home, uuid.uuid4().hex, _free_port(), why)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _mount(disk: Path, size: int) -> str:
    """Mount a small disk, and return why that failed; empty on success."""
    if sys.platform != "linux":
        return "a small disk is mounted on Linux only"
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(disk)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a small disk cannot be mounted: {error}"
    return "" if done.returncode == 0 else f"a small disk cannot be mounted: {done.stderr.strip()}"


def remove(place: Place, keep: bool) -> None:
    """Unmount the disk and delete the folder; to keep it, the home is copied to the folder first."""
    place.free()
    disk = place.home.parent
    if place.no_small_disk == "":
        if keep:
            shutil.copytree(disk, place.folder / "home-copy", symlinks=True, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, timeout=60)
        with contextlib.suppress(OSError):
            disk.rmdir()
    if not keep:
        shutil.rmtree(place.folder, ignore_errors=True)
