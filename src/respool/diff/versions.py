"""The versions of a table that a comparison reads; no JVM."""

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from respool.checkpoint.delta_log import open_table
from respool.diff.model import Request, Side
from respool.errors import DiffError, did_you_mean
from respool.span import time_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def then_version(request: Request, side: Side) -> int | None:
    """Return the version of a table at the moment since which rows count; None when all rows do.

    Raises:
        DiffError: The table has no such version, or its log no longer tells.
    """
    since = request.since
    if side.kind == "kafka":
        return None
    if since.version is not None and (since.output or request.a.address) == side.address:
        newest = open_table(side.place).version()
        if since.version > newest:
            raise DiffError(
                f"The {side} has no version {since.version}: its newest is {newest}. Name one of 0 to {newest}."
            )
        return since.version
    return None if since.time is None else _version_at(open_table(side.place), side, since.time)


def check_columns(request: Request, side: Side) -> None:
    """Raise DiffError when a table lacks a column of the key."""
    if side.kind == "kafka":
        return
    names = [field.name for field in open_table(side.place).schema().fields]
    for name in request.key_columns():
        if name not in names:
            raise DiffError(
                f"The {side} has no column {name}.{did_you_mean(name, names)} It has {', '.join(names)}. Name the "
                "columns that identify a row with --key."
            )


def _version_at(table: "DeltaTable", side: Side, time: datetime) -> int | None:
    commits = sorted((int(one["version"]), int(one["timestamp"])) for one in table.history() if "timestamp" in one)
    earlier = [version for version, stamp in commits if _EPOCH + timedelta(milliseconds=stamp) < time]
    if earlier:
        return max(earlier)
    if commits and commits[0][0] == 0:
        return None
    raise DiffError(
        f"The log of the {side} no longer tells what it held at {time_text(time)}: it begins with version "
        f"{commits[0][0] if commits else table.version()}. Name a later time, or a version with --since-version."
    )
