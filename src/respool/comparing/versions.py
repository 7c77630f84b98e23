"""Which versions of a table are compared, and whether both queries have read the same records."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from respool.checkpoint.position import QueryPosition
from respool.comparing.model import ComparedOutput, DiffRequest
from respool.delta.log import open_table
from respool.errors import DiffError
from respool.text import did_you_mean, number_range
from respool.times import EPOCH, time_text

if TYPE_CHECKING:
    from deltalake import DeltaTable


def then_version(request: DiffRequest, side: ComparedOutput) -> int | None:
    """Return the version of a table at the cutoff; None when all rows are compared.

    Raises:
        DiffError: The table has no such version, or its log no longer reaches back to the time.
    """
    since = request.since
    if side.kind == "kafka":
        return None
    if since.version is not None and (since.output or request.a.address) == side.address:
        newest = open_table(side.place).version()
        if since.version > newest:
            raise DiffError(
                f"The {side} has no version {since.version}; its newest is {newest}. Available versions: "
                f"{number_range(0, newest)}."
            )
        return since.version
    return None if since.time is None else _version_at(open_table(side.place), side, since.time)


def check_columns(request: DiffRequest, side: ComparedOutput) -> None:
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


def _version_at(table: "DeltaTable", side: ComparedOutput, time: datetime) -> int | None:
    history = [commit for commit in table.history() if "timestamp" in commit]
    commits = sorted((int(commit["version"]), int(commit["timestamp"])) for commit in history)
    earlier = [version for version, stamp in commits if EPOCH + timedelta(milliseconds=stamp) < time]
    if earlier:
        return max(earlier)
    if commits and commits[0][0] == 0:
        return None
    raise DiffError(
        f"The log of the {side} does not reach back to {time_text(time)}: it starts at version "
        f"{commits[0][0] if commits else table.version()}. Name a later time, or a version with --since-version."
    )


def unequal(a: QueryPosition, b: QueryPosition) -> str | None:
    """Return which query has read more than the other, human-readable; None when both have read the same records.

    A partition that is missing in one of them counts as not read at all.
    """
    places = {*a.ends, *b.ends}
    ahead = {place: a.ends.get(place, 0) - b.ends.get(place, 0) for place in places}
    only_a = sum(count for count in ahead.values() if count > 0)
    only_b = -sum(count for count in ahead.values() if count < 0)
    if only_a and only_b:
        return f"A has read {_records(only_a)} that B has not, and B {_records(only_b)} that A has not"
    if only_a or only_b:
        behind, count = ("B", only_a) if only_a else ("A", only_b)
        return f"{behind} has read {_records(count)} less"
    if a.watermark != b.watermark:
        return f"Both have read the same, but the watermark of {'B' if _earlier(b, a) else 'A'} is earlier"
    return None


def _earlier(first: QueryPosition, second: QueryPosition) -> bool:
    return first.watermark is None or (second.watermark is not None and first.watermark < second.watermark)


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"
