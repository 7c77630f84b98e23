"""Files in a checkpoint that Spark does not define.

A Delta source with `schemaTrackingLocation` keeps its schemas in `_schema_log_<table id>`, which has to be inside the
checkpoint; a restarted query needs them. They are part of a savepoint. All other files are left out and listed: only
the user can decide whether they belong to the query.

Each entry of a schema log names the folder of its source in the checkpoint, and Delta compares the two. Entries that
are copied to another checkpoint are rewritten to name the folder in that checkpoint.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.format import layout

_SPARK = frozenset({"offsets", "commits", "sources", "state"})
_SCHEMA_LOG = "_schema_log"
_ENTRY = re.compile(rf"(?:.*/)?{_SCHEMA_LOG}[^/]*/\d+")
_SOURCE = re.compile(r'("sourceMetadataPath"\s*:\s*)("(?:[^"\\]|\\.)*")')
_MOST_BYTES = 64 * 2**20  # of schema logs, each entry of which has the size of a schema
_MOST_FILES = 10_000
_MOST_NAMED = 100  # entries listed, before the rest is summed up


@dataclass(frozen=True)
class NotIncluded:
    """Files of a checkpoint that are not in a savepoint.

    Attributes:
        path: A file or a folder at the top of the checkpoint, printable.
        files: The number of files.
        size: Their size in bytes.
    """

    path: str
    files: int
    size: int


def schema_logs(checkpoint: CheckpointSnapshot) -> list[str]:
    """Return the files of the schema logs of Delta sources; an empty list if they are too large to be schema logs."""
    folders = [folder for folder in sorted(checkpoint.folders) if _is_schema_log(folder)]
    paths = [f"{folder}/{name}" for folder in folders for name in sorted(checkpoint.folders[folder]) if _counts(name)]
    if len(paths) > _MOST_FILES or sum(info.size for info in checkpoint.files.facts(paths).values()) > _MOST_BYTES:
        return []
    return paths


def not_included(checkpoint: CheckpointSnapshot, included: Collection[str]) -> tuple[NotIncluded, ...]:
    """Return the files of a checkpoint that are neither Spark's nor included, grouped by top-level name."""
    in_savepoint = set(included)
    left_out: dict[str, list[str]] = defaultdict(list)
    for folder, names in checkpoint.folders.items():
        top = folder.split("/")[0]
        if top not in _SPARK:
            for path in (f"{folder}/{name}" if folder else name for name in names):
                if path not in in_savepoint and path != "metadata" and _counts(path.rpartition("/")[2]):
                    left_out[path.split("/")[0]].append(path)
    for path in checkpoint.listing.unreadable:
        if path and path.split("/")[0] not in _SPARK:
            left_out[path.split("/")[0]].append(path)
    result = []
    for top, paths in sorted(left_out.items()):
        infos = checkpoint.files.facts(dict.fromkeys(paths))
        name = top if top.isprintable() else ascii(top)[1:-1]
        result.append(NotIncluded(name, len(set(paths)), sum(info.size for info in infos.values())))
    named, more = result[:_MOST_NAMED], result[_MOST_NAMED:]
    if more:
        rest = NotIncluded(f"{len(more):,} more", sum(extra.files for extra in more), sum(extra.size for extra in more))
        named.append(rest)
    return tuple(named)


def files_that_stay(paths: Iterable[str], installed: Iterable[str]) -> list[str]:
    """Return the files that stay when others are installed: those Spark does not define, outside installed folders."""
    replaced = set(installed)
    folders = {path.rpartition("/")[0] for path in replaced} - {""}
    extras = (path for path in paths if _is_extra(path))
    return [path for path in extras if path not in replaced and path.rpartition("/")[0] not in folders]


def is_schema_log_entry(path: str) -> bool:
    """Return whether a file is an entry of the schema log of a Delta source."""
    return bool(_ENTRY.fullmatch(path))


def moved_schema_log(new_address: Callable[[str], str], text: str) -> str:
    """Return an entry of a schema log for another checkpoint.

    Args:
        new_address: Returns the address of that checkpoint, of the same kind as the old address that it is given.
        text: The entry.
    """

    def adapted(match: re.Match[str]) -> str:
        try:
            old = str(json.loads(match[2]))
        except ValueError:
            return match[0]
        before, sources, source = old.rpartition("/sources/")
        new = f"{new_address(before)}{sources}{source}"
        return match[1] + json.dumps(new) if sources and new != old else match[0]

    return _SOURCE.sub(adapted, text)


def _is_schema_log(folder: str) -> bool:
    parts = folder.split("/")
    return parts[0] not in _SPARK and any(part.startswith(_SCHEMA_LOG) for part in parts)


def _counts(name: str) -> bool:
    return not layout.is_companion(name) and not layout.is_leftover(name)


def _is_extra(path: str) -> bool:
    """Return whether Spark does not define a file of a checkpoint."""
    top, slash, _ = path.partition("/")
    return top not in _SPARK if slash else top not in ("metadata", ".metadata.crc")
