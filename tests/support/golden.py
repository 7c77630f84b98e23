"""The golden checkpoints that `tests/golden/record.py` recorded."""

import json
import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "golden"
NEWEST = "4.2.0"


def kinds(version: str = NEWEST) -> list[str]:
    """Return the kinds that were recorded with a version of Spark."""
    return sorted(file.name.removesuffix(".tar.xz") for file in (FOLDER / version).glob("*.tar.xz"))


def versions() -> list[str]:
    """Return the versions of Spark that golden checkpoints were recorded with."""
    return sorted(folder.name for folder in FOLDER.iterdir() if folder.name[0].isdigit())


def unpack(folder: Path, kind: str, version: str = NEWEST) -> Path:
    """Unpack a golden checkpoint into a new folder in `folder`, and return it."""
    target = folder / kind
    with tarfile.open(FOLDER / version / f"{kind}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target


def recorded(kind: str, version: str = NEWEST) -> dict[str, Any]:
    """Return what was recorded beside a checkpoint."""
    record: dict[str, Any] = json.loads((FOLDER / version / f"{kind}.json").read_text(encoding="utf-8"))
    return record
