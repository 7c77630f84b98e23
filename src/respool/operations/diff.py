"""What two runs have written, compared by key: `respool.diff`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from respool.comparing.model import ComparedOutput, Cutoff, DiffRequest, Kind, cutoff_after
from respool.comparing.report import DiffReport
from respool.errors import BrokerError, CheckpointError, CheckpointNotFoundError, DiffError, UsageError
from respool.kafka.topics import connect
from respool.operations.context import OnNote, locate, note_of, session, settings_of
from respool.settings import Settings
from respool.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.checkpoint.ownership import RunRecord
    from respool.kafka.cluster import KafkaCluster
    from respool.savepoint.manifest import SavepointManifest
    from respool.storage.folder import FolderReader


class Located(Protocol):
    """A handle for a place, such as a Checkpoint."""

    @property
    def location(self) -> str:
        """The folder or URL."""


class Saved(Protocol):
    """A savepoint."""

    @property
    def manifest(self) -> "SavepointManifest":
        """What it holds."""


def diff(
    a: "str | Located",
    b: "str | Located",
    *,
    since: "Saved | str | Cutoff | None" = None,
    since_batch: int | None = None,
    since_time: datetime | str | None = None,
    since_version: int | None = None,
    key: Sequence[str] = (),
    ignore: Sequence[str] = (),
    limit: int = 20,
    output: str | None = None,
    settings: Settings | None = None,
    spark: "SparkSession | None" = None,
    on_note: OnNote | None = None,
) -> DiffReport:
    """Compare what two runs have written, by key.

    >>> report = respool.diff("visit-counts", "kafka:totals-v2", ignore=["updated_at"])
    >>> for row in report.differences:
    ...     print(row.key, row.columns)

    Args:
        a: A checkpoint, by a handle or by its name, folder or URL; `kafka:TOPIC` or `delta:TABLE`.
        b: What it is compared with.
        since: Compare only rows that were written after this savepoint, given as a value or by its name, or after a
            Cutoff. By default, if a checkpoint is a fork, the savepoint that it was forked from.
        since_batch: Compare only rows of later batches.
        since_time: Compare only rows that were written at this time or later.
        since_version: Compare only rows that have changed since this version of the table A.
        key: The columns that identify a row, in place of the recorded key.
        ignore: Columns that are left out.
        limit: How many rows of each kind of difference are returned in full.
        output: A new folder for all differences, as Parquet.
        settings: The settings; by default those of respool.toml and of the environment.
        spark: The session to use; by default one is started.
        on_note: Called with what happens; by default it is logged.

    Raises:
        DiffError: An output does not exist, or the two cannot be compared.
    """
    from respool.comparing.compare import compare
    from respool.locations import absolute, is_occupied
    from respool.spark.internals import HadoopPath

    settings, note = settings_of(settings), note_of(on_note)
    names = tuple(place if isinstance(place, str) else place.location for place in (a, b))
    locator = OutputLocator(settings)
    sides = (locator.find(names[0]), locator.find(names[1]))
    moments = (since_batch, since_time, since_version)
    if since is not None and any(moment is not None for moment in moments):
        raise UsageError("--since names a moment: remove the other --since options")
    forked = cutoff_of_fork(names, settings) if since is None and moments == (None, None, None) else None
    if since is not None:
        cutoff = _cutoff_since(since, settings)
    elif forked is not None:
        cutoff, name = forked
        note(f"Only results written after the savepoint {name}, from which the fork was made, are compared.")
    else:
        cutoff = cutoff_of(*sides, since_batch, since_time, since_version, settings.timezone or "UTC")
    request = DiffRequest(*sides, cutoff, tuple(key), tuple(ignore))
    _check(request)
    kafka = locator.kafka if "kafka" in (request.a.kind, request.b.kind) else None
    place = None if output is None else absolute(output)
    occupied = DiffError(f"{place} already exists. Name a new folder with --output.")
    if place is not None and is_occupied(place):
        raise occupied
    places = [*(side.place for side in sides if side.kind == "delta"), *([place] if place else ())]
    with session(settings, spark, note, locations=places, jvm=False) as active:
        if place is not None and HadoopPath(active, place).is_occupied():
            raise occupied
        return replace(compare(active, kafka, request, limit, place), output=output)


def _cutoff_since(since: "Saved | str | Cutoff", settings: Settings) -> Cutoff:
    from respool.savepoint.store import SavepointStore, find

    if isinstance(since, Cutoff):
        return since
    savepoint = find(since, SavepointStore(settings.savepoint_store)) if isinstance(since, str) else since
    return cutoff_after(savepoint.manifest)


@dataclass(frozen=True)
class OutputLocator:
    """Finds outputs by the words of a user.

    Attributes:
        settings: The settings.
    """

    settings: Settings

    @cached_property
    def kafka(self) -> "KafkaCluster":
        """The cluster, which is contacted only to look up a topic."""
        return connect(self.settings)

    def find(self, text: str) -> ComparedOutput:
        """Return the output that a user names: `kafka:TOPIC`, `delta:TABLE`, a checkpoint, or a plain topic or table.

        Raises:
            RespoolError: There is none; the message lists where it was looked for.
        """
        kind, _, place = text.partition(":")
        if kind in ("kafka", "delta"):
            return self._existing("kafka" if kind == "kafka" else "delta", place)
        output = self._by_checkpoint(text) or self._table(text)
        if output is not None:
            return output
        searched = (
            f"no pipeline of that name has run in {self.settings.home}, and no folder of that name is a checkpoint"
        )
        searched += f" or a Delta table; nor is there one in {' or '.join(map(str, self._table_folders))}"
        try:
            from respool.kafka import topics

            if topics.topic_exists(self.kafka, text):
                return self._existing("kafka", text)
            searched += f"; there is no such topic at {self.kafka.bootstrap_servers}"
        except BrokerError as error:
            searched += f"; and no broker could be asked for such a topic ({error})"
        raise DiffError(
            f"There is nothing to compare at {text!r}: {searched}. Name a checkpoint, kafka:TOPIC or delta:TABLE."
        )

    def _existing(self, kind: Kind, place: str) -> ComparedOutput:
        """Return an output that must exist."""
        from respool.delta.log import open_table
        from respool.kafka import topics

        if not place:
            raise DiffError(f"{kind}: lacks its place. Name it like this: kafka:TOPIC or delta:TABLE.")
        if kind == "kafka":
            topics.require_topic(self.kafka, place)
            return ComparedOutput("kafka", place)
        table = self._table(place)
        if table is None:
            folders = " nor in ".join(self._table_folders)
            raise DiffError(
                f"There is no Delta table at {place}, nor in {folders}. Name the folder or URL that holds its "
                "_delta_log."
            )
        open_table(table.place)
        return table

    @property
    def _table_folders(self) -> tuple[str, ...]:
        return (self.settings.result_store, self.settings.archive_store)

    def _table(self, text: str) -> ComparedOutput | None:
        from respool.locations import absolute, under
        from respool.storage.open import new_writer

        for place in dict.fromkeys((absolute(text), *(under(store, text) for store in self._table_folders))):
            if new_writer(place).names("_delta_log"):
                return ComparedOutput("delta", place)
        return None

    def _by_checkpoint(self, text: str) -> ComparedOutput | None:
        from respool.checkpoint.ownership import read_run_record
        from respool.storage.open import open_reader

        try:
            where = locate(text, self.settings)
        except CheckpointNotFoundError:
            return None
        files = open_reader(where)
        run = read_run_record(files)
        if run is not None:
            return self._output(files, run)
        if files.names("offsets"):
            raise DiffError(
                f"{where} is the checkpoint of a query that respool did not start: it does not record where the query "
                "writes. Name that, as kafka:TOPIC or delta:TABLE."
            )
        return None

    def _output(self, files: "FolderReader", run: "RunRecord") -> ComparedOutput:
        from respool.checkpoint.snapshot import read_position

        kind, _, place = run.output.partition(":")
        if kind not in ("kafka", "delta"):
            raise DiffError(
                f"The pipeline {run.pipeline} on {files.root} writes to: {run.sink}. Only Kafka topics and Delta "
                "tables can be compared. Name one in place of the checkpoint, as kafka:TOPIC or delta:TABLE."
            )
        position = read_position(files)  # before the output is read, which may grow meanwhile
        output = self._existing("kafka" if kind == "kafka" else "delta", place)
        return replace(output, key=run.output_key, pipeline=run.pipeline, timezone=run.timezone, position=position)


def cutoff_of(
    a: ComparedOutput, b: ComparedOutput, batch: int | None, time: datetime | str | None, version: int | None, zone: str
) -> Cutoff:
    """Return which rows count, by a batch, a time or a version of A.

    Args:
        a: The first output.
        b: The second output.
        batch: Rows of later batches count.
        time: Rows that were written at this time or later count; text is in ISO 8601.
        version: Rows that have changed since this version of A count.
        zone: The zone of a time that names none.
    """
    if version is not None and a.kind != "delta":
        raise UsageError(f"--since-version is a version of A, which is not a table: {a}")
    if batch is not None and "kafka" not in (a.kind, b.kind):
        raise DiffError(
            "--since-batch needs records, whose headers name their batch; rows of tables have none. Name a version of "
            "A with --since-version, or a time with --since-time."
        )
    text = time.isoformat() if isinstance(time, datetime) else time
    return Cutoff(batch=batch, time=None if text is None else parse_time(text, ZoneInfo(zone)), version=version)


def cutoff_of_fork(checkpoints: Sequence[str], settings: Settings) -> tuple[Cutoff, str] | None:
    """Return which rows count if a checkpoint is a fork, and the savepoint's name; None if no checkpoint is a fork."""
    from respool.checkpoint.ownership import fork_of
    from respool.savepoint.store import read
    from respool.storage.open import open_reader

    for checkpoint in checkpoints:
        try:
            fork = fork_of(open_reader(locate(checkpoint, settings)))
        except CheckpointError:
            continue
        if fork is None:
            continue
        try:
            return cutoff_after(read(fork.location).manifest), fork.savepoint
        except (CheckpointError, FileNotFoundError):  # it was deleted since
            return Cutoff(batch=fork.batch, time=fork.created), fork.savepoint
    return None


def _check(request: DiffRequest) -> None:
    """Raise DiffError when two outputs cannot be compared, as far as that is known without a JVM."""
    from respool.comparing.rows import check_columns, then_version

    if request.a.address == request.b.address:
        raise DiffError(
            f"A and B are both the {request.a}. Name two outputs; a fork writes to a separate output when it is run "
            "with --sink-suffix."
        )
    for side in (request.a, request.b):
        check_columns(request, side)
        then_version(request, side)
