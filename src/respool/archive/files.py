"""The data files of the archive."""

from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from itertools import pairwise
from typing import TYPE_CHECKING

from respool.archive.table import COLUMNS, require
from respool.errors import PipelineError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LARGE = 1 << 30  # bytes from which on Delta's compaction leaves a file alone, and those that it makes at most


@dataclass(frozen=True)
class File:
    """A data file of a table.

    Attributes:
        path: Its path in the table.
        size: In bytes.
        day: The date of its hour; None for rejected records.
        hour: The start of its hour.
    """

    path: str
    size: int
    day: date | None
    hour: datetime | None


def open_archive(table: str) -> "DeltaTable":
    """Open an archive's newest version by delta-rs; raise PipelineError when there is none, or it is something else."""
    from respool.delta.log import open_table

    require(table)
    opened = open_table(table)
    found = {one.name for one in opened.schema().fields}
    lacking = [name for name in COLUMNS if name not in found]
    if lacking:
        raise PipelineError(
            f"The table {table} is not an archive: it has no column {lacking[0]}. Name an archive with --table."
        )
    if opened.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise PipelineError(
            f"The table {table} has its columns under other names (delta.columnMapping.mode), which an archive of "
            "respool's own never has. Name another with --table."
        )
    return opened


def files_of(opened: "DeltaTable") -> list[File]:
    """Return the data files of a table, hour by hour, the rejected records last."""
    import pyarrow as pa

    actions = pa.table(opened.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "partition.event_date", "partition.event_hour")
    columns = (actions.column(name).to_pylist() for name in names)
    found = [File(path, size, day, _hour(day, hour)) for path, size, day, hour in zip(*columns, strict=True)]
    latest = datetime.max.replace(tzinfo=timezone.utc)
    return sorted(found, key=lambda one: (one.hour or latest, one.path))


def small_files(sizes: list[int]) -> int:
    """Return how many files of one hour Delta's compaction would put together."""
    few = sorted(size for size in sizes if size < _LARGE)
    together = [one + other <= _LARGE for one, other in pairwise(few)]
    return together.count(True) + 1 if any(together) else 0


def days_to_compact(files: list[File]) -> list[date | None]:
    """Return the dates that have an hour with files to put together; None stands for the rejected records."""
    hours: dict[tuple[date | None, datetime | None], list[int]] = {}
    for file in files:
        hours.setdefault((file.day, file.hour), []).append(file.size)
    return list(dict.fromkeys(day for (day, _), sizes in hours.items() if small_files(sizes)))


def _hour(day: date | None, hour: int | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(hour or 0), timezone.utc)
