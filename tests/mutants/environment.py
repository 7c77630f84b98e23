"""The environment of mutmut, apart from .venv: `.mutants/venv`, from requirements/mutants.txt."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from mutants.model import Mutant
from mutants.scope import FOLDER, ROOT

_REQUIREMENTS = ROOT / "requirements" / "mutants.txt"
_UV = str(Path(sys.executable).parent / "uv")


def generate(files: list[str]) -> list[Mutant]:
    """Return the mutants of modules, as mutmut makes them."""
    words = [_python(), str(Path(__file__).parent / "generate.py"), *files]
    result = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Mutant(**json.loads(line)) for line in result.stdout.splitlines()]


def _python() -> str:
    """Return the Python that has mutmut; make its environment unless the packages are the same."""
    venv = FOLDER / "venv"
    mark = venv / "requirements.sha256"
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    python = str(venv / "bin" / "python")
    if not (mark.exists() and mark.read_text() == wanted):
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
        install = [_UV, "pip", "install", "--quiet", "--require-hashes", "-r", str(_REQUIREMENTS), "--python", python]
        subprocess.run(install, check=True)
        mark.write_text(wanted)
    return python
