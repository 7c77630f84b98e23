"""Whose a checkpoint is: the pipeline that it belongs to, and the process that runs on it now.

respool keeps a folder `_respool` in a checkpoint, which Spark ignores:

    run.json   the pipeline that ran last, what it reads and where it writes
    lock       held by the process that runs; the system lets go of it when that process ends, however it ends
"""

import fcntl
import json
import os
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from respool import __version__
from respool.errors import CheckpointError
from respool.pipeline import Pipeline

FOLDER = "_respool"


class Claim:
    """A checkpoint that is held until `close`."""

    def __init__(self, lock: IO[str] | None) -> None:
        """Take the locked file, or None for a checkpoint that cannot be locked."""
        self._lock = lock

    def close(self) -> None:
        """Let go of the checkpoint."""
        if self._lock is not None:
            self._lock.close()


def claim(checkpoint: str, pipeline: Pipeline) -> Claim | None:
    """Hold a checkpoint for a pipeline; None when another process holds it now.

    Raises CheckpointError when the checkpoint belongs to another pipeline. Only a checkpoint on a local disk can be
    held; one on an object store is left to the user's care.
    """
    folder = local_path(checkpoint)
    if folder is None:
        return Claim(None)
    check(checkpoint, pipeline)
    with ExitStack() as stack:
        try:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / FOLDER / "lock").open("a+", encoding="utf-8"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            _record(folder, pipeline)
        except BlockingIOError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {folder} cannot be written: {error.strerror}. "
                "Make room or change its permissions, or name another folder with --checkpoint."
            ) from error
        stack.pop_all()
        return Claim(lock)


def holder(checkpoint: str) -> str:
    """Return the id of the process that holds a checkpoint, for messages."""
    folder = local_path(checkpoint)
    lock = folder / FOLDER / "lock" if folder else None
    return lock.read_text(encoding="utf-8") if lock and lock.is_file() else "unknown"


def local_path(checkpoint: str) -> Path | None:
    """Return the folder of a checkpoint on a local disk, or None for a URL of another filesystem."""
    if checkpoint.startswith("file:"):
        return Path("/" + checkpoint.removeprefix("file:").lstrip("/"))
    return None if "://" in checkpoint else Path(checkpoint)


def check(checkpoint: str, pipeline: Pipeline) -> None:
    """Raise CheckpointError when a checkpoint is of another pipeline; nothing is changed."""
    folder = local_path(checkpoint)
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"The checkpoint {folder} is a file; expected a folder. Name another with --checkpoint.")
    way_out = "Run that pipeline, or name another folder with --checkpoint."
    ran = _read_json(folder / FOLDER / "run.json")
    if ran is not None:
        found = (ran.get("pipeline"), ran.get("topic"))
        if found != (pipeline.name, pipeline.topic):
            raise CheckpointError(
                f"The checkpoint {folder} belongs to the pipeline {found[0]}, which reads {found[1]}; "
                f"expected {pipeline.name}, which reads {pipeline.topic}. {way_out}"
            )
        return
    topics = _topics(folder)
    if topics is not None and pipeline.topic not in topics:
        raise CheckpointError(
            f"The checkpoint {folder} is of a query that reads {', '.join(sorted(topics)) or 'no Kafka topic'}; "
            f"the pipeline {pipeline.name} reads {pipeline.topic}. {way_out}"
        )


def _topics(folder: Path) -> set[str] | None:
    """Return the Kafka topics of a checkpoint that respool did not make, or None when it has run no batch."""
    offsets = folder / "offsets"
    batches = [int(one.name) for one in offsets.iterdir() if one.name.isdigit()] if offsets.is_dir() else []
    if not batches:
        return None
    topics: set[str] = set()
    for line in (offsets / str(max(batches))).read_text(encoding="utf-8", errors="replace").splitlines()[2:]:
        try:
            source = json.loads(line)
        except ValueError:
            continue
        topics |= set(source) if isinstance(source, dict) else set()
    return topics


def _record(folder: Path, pipeline: Pipeline) -> None:
    file = folder / FOLDER / "run.json"
    facts = {
        "respool": __version__,
        "pipeline": pipeline.name,
        "topic": pipeline.topic,
        "sink": pipeline.sink.describe(),
        "output_mode": pipeline.output_mode,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    new = file.with_suffix(".new")
    new.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    new.replace(file)


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(f"{file} cannot be read: {error}. Move it away, and run this again.") from error
    return found if isinstance(found, dict) else None
