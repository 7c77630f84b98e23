"""The Java that runs Spark, the embedded broker and the download of jars."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from respool.errors import MachineError

OLDEST = 17
_NEXT = (
    f"Install a JDK {OLDEST} or newer (Debian: apt-get install openjdk-{OLDEST}-jre-headless), "
    "or set JAVA_HOME to the folder of one."
)
_VERSION = re.compile(r'version "(\d[^"]*)"')


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that is new enough.

    Attributes:
        path: The java program.
        version: As Java reports it, for example 17.0.15.
        home: The folder to pass on as JAVA_HOME.
    """

    path: Path
    version: str
    home: Path


def find_java() -> JavaRuntime:
    """Return the Java of JAVA_HOME, or else the first on the PATH; raise MachineError when it is missing or too old."""
    path = program()
    version = _version(path)
    if _major(version) < OLDEST:
        raise MachineError(f"{path} is Java {version}; respool needs Java {OLDEST} or newer. {_NEXT}")
    return JavaRuntime(path, version, path.resolve().parent.parent)


def program() -> Path:
    """Return the java program to use, whatever its version."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise MachineError(f"JAVA_HOME is {home}, which holds no bin/java. Correct it, or unset it. {_NEXT}")
        return path
    executable = shutil.which("java")
    if executable is None:
        raise MachineError(f"No Java was found: JAVA_HOME is not set, and no java is on the PATH. {_NEXT}")
    return Path(executable)


def _version(path: Path) -> str:
    try:
        ran = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{path} does not run: {error}. {_NEXT}") from error
    output = ran.stderr + ran.stdout
    match = _VERSION.search(output)
    if ran.returncode != 0 or match is None:
        # macOS has a java on the PATH that only reports that Java is missing.
        line = next((line for line in output.splitlines() if line.strip()), "nothing").strip()
        raise MachineError(f"{path} -version reported no version of Java, but: {line}. {_NEXT}")
    return match[1]


def _major(version: str) -> int:
    """Return 17 for 17.0.15 and for 17-ea, and 8 for 1.8.0_392."""
    numbers = [int(digits) for digits in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
