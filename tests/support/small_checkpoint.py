"""Checkpoints of a few short files, for tests of single rules."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.storage.local import LocalReader


def written(root: Path, files: Mapping[str, str | bytes]) -> CheckpointSnapshot:
    """Write files below a folder, and return it as a checkpoint."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return CheckpointSnapshot(LocalReader(root))


def offsets(*ends: Any, watermark: int = 0, planned: int = 0, version: str = "v1", **conf: str) -> str:
    """Return the text of a file of `offsets`: the end of each source; settings have `_` for `.` in their names."""
    settings = {"spark.sql." + name.replace("_", "."): value for name, value in conf.items()}
    head = {"batchWatermarkMs": watermark, "batchTimestampMs": planned, "conf": settings}
    lines = ["-" if end is None else json.dumps(end) for end in ends]
    return "\n".join([version, json.dumps(head), *lines])


def commit(watermark: int = 0, ids: Mapping[str, list[list[str]]] | None = None) -> str:
    """Return the text of a file of `commits`."""
    facts: dict[str, Any] = {"nextBatchWatermarkMs": watermark}
    return "v1\n" + json.dumps(facts | ({"stateUniqueIds": ids} if ids else {}))


def kafka(
    root: Path, batches: int = 5, committed: int | None = None, more: Mapping[str, str | bytes] | None = None
) -> CheckpointSnapshot:
    """Write a checkpoint of a query on the topic `visits`, with one partition of state.

    Batch N reads to offset 10 × (N + 1), is planned at second N + 1, and leaves the watermark of N seconds.

    Args:
        root: Its folder.
        batches: How many are planned.
        committed: How many are committed; all of them by default.
        more: More files.
    """
    files: dict[str, str | bytes] = {"metadata": '{"id":"8491b5b1-af43-4266-97d6-99e64b7a775c"}'}
    done = batches if committed is None else committed
    for batch in range(batches):
        end = {"visits": {"0": 10 * (batch + 1)}}
        files[f"offsets/{batch}"] = offsets(
            end, watermark=1000 * max(batch - 1, 0), planned=1000 * (batch + 1), shuffle_partitions="1"
        )
    for batch in range(done):
        files[f"commits/{batch}"] = commit(1000 * batch)
        files[f"state/0/0/{batch + 1}.delta"] = f"version {batch + 1}"
    return written(root, files | dict(more or {}))


def rocksdb_zip(tables: Mapping[str, int], logs: tuple[str, ...] = ()) -> bytes:
    """Return a snapshot of RocksDB that needs SST files of some sizes, and log files."""
    facts = {
        "sstFiles": [{"localSstFileName": name, "dfsSstFileName": name, "sizeBytes": n} for name, n in tables.items()],
        "logFiles": [{"localFileName": name, "dfsLogFileName": name, "sizeBytes": 1} for name in logs],
        "numKeys": 1,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(facts))
    return buffer.getvalue()
