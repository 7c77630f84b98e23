"""The golden checkpoints that `tests/golden/record.py` recorded, and ways to damage a checkpoint."""

import json
import shutil
import tarfile
import zipfile
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
    """Return what was recorded with a checkpoint."""
    record: dict[str, Any] = json.loads((FOLDER / version / f"{kind}.json").read_text(encoding="utf-8"))
    return record


def crc_of(path: Path) -> Path:
    """Return Hadoop's hidden checksum file of a file."""
    return path.parent / f".{path.name}.crc"


def gone(path: Path) -> None:
    """Delete a file with its checksum, or a whole folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        crc_of(path).unlink(missing_ok=True)


def written(path: Path, data: bytes | str) -> None:
    """Write other bytes, as a program that knows no checksums."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    crc_of(path).unlink(missing_ok=True)


def cut(path: Path, keep: float = 0.5) -> None:
    """Truncate a file, as an interrupted upload does."""
    data = path.read_bytes()
    written(path, data[: int(len(data) * keep)])


def flipped(path: Path, at: int | None = None) -> None:
    """Change one byte, by default in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    written(path, bytes(data))


def stale_crc(path: Path) -> None:
    """Change the checksum of a file's first bytes."""
    beside = crc_of(path)
    data = bytearray(beside.read_bytes())
    data[8] ^= 0xFF
    beside.write_bytes(bytes(data))


def edited(path: Path, old: str, new: str) -> None:
    """Change a text."""
    text = path.read_text()
    assert old in text, (path, old)
    written(path, text.replace(old, new))


def tables_of(path: Path) -> list[Path]:
    """Return the SST files that a zip needs."""
    with zipfile.ZipFile(path) as archive:
        facts = json.loads(archive.read("metadata").decode().split("\n", 1)[1])
    return [path.parent / "SSTs" / table["dfsSstFileName"] for table in facts["sstFiles"]]


def only_file(folder: Path, pattern: str) -> Path:
    """Return the only file of a pattern that is not hidden."""
    (path,) = (path for path in folder.glob(pattern) if not path.name.startswith("."))
    return path


def settled(checkpoint: Path) -> Path:
    """Rewrite the addresses of schemas in a checkpoint that was copied."""
    for path in checkpoint.glob("state/*/_metadata/v2/*"):
        if path.name.isdecimal():
            version, text = path.read_text().split("\n", 1)
            facts = json.loads(text)
            for store in facts["stateStoreInfo"]:
                store["stateSchemaFilePaths"] = [
                    f"file:{checkpoint}/state/{address.rpartition('/state/')[2]}"
                    for address in store["stateSchemaFilePaths"]
                ]
            written(path, f"{version}\n{json.dumps(facts)}")
    return checkpoint
