"""Read the state of a checkpoint with Spark's state reader, also of a checkpoint that was moved or copied.

Operator metadata of version 2 names the state schema files by the address where the query ran. In a folder that was
moved or copied, these addresses are wrong. A relocated view is a folder of links to such a checkpoint in which the
metadata names the checkpoint's own files; the checkpoint itself is not changed.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.checkpoint.state.columns import StateColumn, columns_of, condition, flat, order, select
from respool.checkpoint.state.selection import StateReading
from respool.errors import CheckpointError
from respool.format import logs
from respool.locations import OWN, for_spark, local_path
from respool.sessions.log import keeps_sessions, sessions_of
from respool.spark.connect import separate_session
from respool.spark.failures import innermost_message
from respool.spark.internals import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession


@contextmanager
def relocated_view(root: Path) -> Iterator[Path]:
    """Create a relocated view of a checkpoint on a local disk, for the duration of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="respool-state-") as name:
        folder = Path(name)
        _link(root.absolute(), folder, without=("state", OWN))
        (folder / "state").mkdir()
        for operator in (root / "state").iterdir():
            if operator.is_dir():
                _view_operator(operator.absolute(), folder / "state" / operator.name, folder)
        yield folder


def _view_operator(source: Path, target: Path, view: Path) -> None:
    runs = "_metadata/v2"
    target.mkdir()
    _link(source, target, without=("_metadata",))
    if not (source / "_metadata").is_dir():
        return
    (target / runs).mkdir(parents=True) if (source / runs).is_dir() else (target / "_metadata").mkdir()
    _link(source / "_metadata", target / "_metadata", without=("v2",))
    for run in (source / runs).glob("[0-9]*"):
        text = run.read_text(encoding="utf-8")
        for address in logs.schema_paths(str(run), text):
            text = text.replace(address, f"file:{view}/state/{address.rpartition('/state/')[2]}")
        (target / runs / run.name).write_text(text, encoding="utf-8")


def _link(source: Path, target: Path, without: tuple[str, ...]) -> None:
    for entry in source.iterdir():
        if entry.name not in without:
            (target / entry.name).symlink_to(entry)


FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
_ENCODED = re.compile(r"""[\s%"<>\\^`{|}#?]""")  # characters that Spark's state reader encodes, and does not decode
_TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


@dataclass(frozen=True)
class StateRows:
    """Rows of a state.

    >>> respool.StateRows(("key", "count"), [{"key": "a", "count": 3}], total=9)
    StateRows(columns=('key', 'count'), rows=1, total=9)

    Attributes:
        columns: The names of the columns, the key's first; for changes, the batch and the kind of change precede them.
        rows: The rows by key, or the first rows; times are aware, in UTC.
        total: How many rows there are.
    """

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    total: int

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"StateRows(columns={self.columns!r}, rows={len(self.rows)}, total={self.total})"


def rows(
    spark: "SparkSession", reading: StateReading, only: Mapping[str, str], zone: tzinfo, limit: int | None = None
) -> StateRows:
    """Return the rows of a reading.

    Args:
        spark: A session; the state is read in a separate session of the same application.
        reading: What to read.
        only: The values that columns must have, as text.
        zone: The zone of times in `only` that name no offset.
        limit: How many rows to return at most.
    """
    with translate_errors(partial(_unreadable, reading), connection=True), _address(reading) as address:
        frame, columns, count = _table(spark, reading, address, only, zone)
        frame = _sorted(frame, columns) if limit is None else _first(frame, columns, limit)
        shown = [column for column in columns if column.name not in reading.hidden]
        records = select(frame, shown).toArrow().to_pylist()
        return StateRows(tuple(column.name for column in shown), records[:limit], int(count.get["rows"]))


def write(spark: "SparkSession", reading: StateReading, only: Mapping[str, str], zone: tzinfo, file: Path) -> int:
    """Write the rows of a reading atomically to one file, in the format of its suffix; return their number.

    Raises:
        CheckpointError: The file exists, or cannot be written.
    """
    check_output(file)
    new = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with translate_errors(partial(_unreadable, reading), connection=True), _address(reading) as address:
            frame, columns, count = _table(spark, reading, address, only, zone)
            kind = FORMATS[file.suffix]
            shown = [column for column in columns if column.name not in reading.hidden]
            frame = select(_sorted(frame, columns), shown, nested=kind != "csv")
            options = {"timestampFormat": _TIMES, "timeZone": str(zone), "ignoreNullFields": "false", "header": "true"}
            frame.write.format(kind).options(**({} if kind == "parquet" else options)).save(new.absolute().as_uri())
            total = int(count.get["rows"])
        parts = list(new.glob("part-*"))
        if not parts and total:
            raise CheckpointError(
                f"Spark's workers wrote {file} on disks of their own. Run this with --master 'local[*]'."
            )
        part = parts[0] if parts else new / "part-0"
        part.touch()  # Spark writes no file for no rows in JSON
        _move(part, file)
        return total
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_output(file: Path) -> None:
    """Raise CheckpointError when a state cannot be written to a file."""
    if file.suffix not in FORMATS:
        raise CheckpointError(
            f"{file.name} has the suffix '{file.suffix}'; expected one of {', '.join(FORMATS)}, which selects the "
            "format."
        )
    if file.exists():
        raise CheckpointError(f"{file} already exists. Name another file, or move it away.")
    if not file.parent.is_dir():
        raise CheckpointError(f"There is no folder {file.parent}. Create it, or name another file.")


def _table(
    spark: "SparkSession", reading: StateReading, address: str, only: Mapping[str, str], zone: tzinfo
) -> "tuple[DataFrame, tuple[StateColumn, ...], Observation]":
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    session = separate_session(spark)
    for name, value in reading.conf.items():
        session.conf.set(name, value)
    _ = (
        session.streams.active
    )  # its first use starts the coordinator that state stores report to, for the whole application
    frame = session.read.format("statestore").options(**reading.options).load(address)
    if keeps_sessions(frame.schema):
        if reading.changes is not None:
            raise CheckpointError(
                "The sessions are kept as a log of all changes, which has no row for a visit. Read them after two "
                "batches with --batch, and compare."
            )
        frame = sessions_of(frame)
    columns = columns_of(frame.schema)
    count = Observation("respool-state")
    rows = flat(frame, columns, condition(columns, only, zone))
    return rows.observe(count, F.count(F.lit(1)).alias("rows")), columns, count


def _sorted(frame: "DataFrame", columns: tuple[StateColumn, ...]) -> "DataFrame":
    """Return all rows, sorted by one task, which spills to disk: they are read once and written to one file."""
    return frame.repartition(1).sortWithinPartitions(*order(columns))


def _first(frame: "DataFrame", columns: tuple[StateColumn, ...], limit: int) -> "DataFrame":
    return frame.orderBy(*order(columns)).limit(max(limit, 1))  # with a limit of 0, no row would be counted


def _move(part: Path, file: Path) -> None:
    try:
        try:
            os.link(part, file)  # unlike a rename, it does not replace an existing file
        except FileExistsError:
            raise
        except OSError:  # a filesystem without links
            check_output(file)
            part.rename(file)
    except FileExistsError as error:
        raise CheckpointError(f"{file} already exists. Name another file, or move it away.") from error


@contextmanager
def _address(reading: StateReading) -> Iterator[str]:
    """Yield the address of the checkpoint for Spark."""
    path = local_path(reading.root)
    encoded = _ENCODED.search(reading.root)
    if path is None and encoded:
        raise CheckpointError(
            f"Spark cannot read the state of {reading.root}: its address has {encoded[0]!r}, which Spark's state "
            "reader misreads. Fork a savepoint of it to another address, and read the state of the fork."
        )
    if path is not None and (reading.moved or encoded):
        with relocated_view(path) as view:
            yield for_spark(str(view))
    else:
        yield for_spark(reading.root)


def _unreadable(reading: StateReading, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"Spark cannot read the state after batch {reading.batch} of {reading.root}: {innermost_message(str(error))}\n"
        "If the query runs, it may have removed that batch meanwhile: run this again. Otherwise see: respool "
        "checkpoint verify."
    )
