"""What `respool diff` is given, turned into what the library compares; no JVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from respool.errors import BrokerError, CheckpointError, CheckpointNotFoundError, DiffError, UsageError
from respool.kafka.connect import connect
from respool.operations.context import locate
from respool.settings import Settings

if TYPE_CHECKING:
    from respool.checkpoint.ownership import RunRecord
    from respool.diff.model import ComparedOutput, Cutoff, DiffRequest, Kind
    from respool.kafka.cluster import KafkaCluster
    from respool.storage.folder import FolderReader


@dataclass(frozen=True)
class OutputLocator:
    """Finds outputs by the words of a user.

    Attributes:
        settings: The settings.
    """

    settings: Settings

    @cached_property
    def kafka(self) -> "KafkaCluster":
        """The cluster; nobody asks for it before a topic is looked for."""
        return connect(self.settings)

    def find(self, text: str) -> "ComparedOutput":
        """Return the output that a user names: `kafka:TOPIC`, `delta:TABLE`, a checkpoint, or a plain topic or table.

        Raises:
            RespoolError: There is none; the message tells where it was looked for.
        """
        kind, _, place = text.partition(":")
        if kind in ("kafka", "delta"):
            return self._known("kafka" if kind == "kafka" else "delta", place)
        found = self._by_checkpoint(text) or self._table(text)
        if found is not None:
            return found
        told = f"no pipeline of that name has run in {self.settings.home}, and no folder of that name is a checkpoint"
        told += f" or a Delta table; nor is there one in {' or '.join(map(str, self._table_folders))}"
        try:
            from respool.kafka import topics

            if topics.topic_exists(self.kafka, text):
                return self._known("kafka", text)
            told += f"; there is no such topic at {self.kafka.bootstrap_servers}"
        except BrokerError as error:
            told += f"; and no broker could be asked for such a topic ({error})"
        raise DiffError(
            f"There is nothing to compare at {text!r}: {told}. Name a checkpoint, kafka:TOPIC or delta:TABLE."
        )

    def _known(self, kind: "Kind", place: str) -> "ComparedOutput":
        """Return an output that must be there."""
        from respool.delta.log import open_table
        from respool.diff.model import ComparedOutput
        from respool.kafka import topics

        if not place:
            raise DiffError(f"{kind}: lacks its place. Name it like this: kafka:TOPIC or delta:TABLE.")
        if kind == "kafka":
            topics.require_topic(self.kafka, place)
            return ComparedOutput("kafka", place)
        found = self._table(place)
        if found is None:
            folders = " nor in ".join(map(str, self._table_folders))
            raise DiffError(
                f"There is no Delta table at {place}, nor in {folders}. Name the folder or URL that holds its "
                "_delta_log."
            )
        open_table(found.place)
        return found

    @property
    def _table_folders(self) -> tuple[Path, ...]:
        return (self.settings.home / "results", self.settings.home / "archive")

    def _table(self, text: str) -> "ComparedOutput | None":
        from respool.diff.model import ComparedOutput
        from respool.locations import local_path
        from respool.storage.open import open_reader

        path = local_path(text)
        if path is None:
            return ComparedOutput("delta", text.rstrip("/")) if open_reader(text).names("_delta_log") else None
        for one in (path.expanduser(), *(folder / path for folder in self._table_folders)):
            if (one / "_delta_log").is_dir():
                return ComparedOutput("delta", str(one.absolute()))
        return None

    def _by_checkpoint(self, text: str) -> "ComparedOutput | None":
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
                f"{where} is the checkpoint of a query that respool did not start: nothing tells where it writes. Name "
                "that, as kafka:TOPIC or delta:TABLE."
            )
        return None

    def _output(self, files: "FolderReader", run: "RunRecord") -> "ComparedOutput":
        from dataclasses import replace

        from respool.checkpoint.position import read_reach

        kind, _, place = run.output.partition(":")
        if kind not in ("kafka", "delta"):
            raise DiffError(
                f"The pipeline {run.pipeline} on {files.root} writes to: {run.sink}. Where that can be read again is "
                "not noted. Name a topic or a table in place of the checkpoint, as kafka:TOPIC or delta:TABLE."
            )
        reach = read_reach(files)  # before the output is looked at, which may grow meanwhile
        found = self._known("kafka" if kind == "kafka" else "delta", place)
        return replace(found, key=run.output_key, pipeline=run.pipeline, timezone=run.timezone, reach=reach)


def since_of(
    a: "ComparedOutput",
    b: "ComparedOutput",
    batch: int | None,
    time: str | None,
    version: int | None,
    settings: Settings,
) -> "Cutoff":
    """Return which rows count, by the options `--since-batch`, `--since-time` and `--since-version`."""
    from respool.diff.model import Cutoff
    from respool.times import parse_time

    if version is not None and a.kind != "delta":
        raise UsageError(f"--since-version is a version of A, which is no table: {a}")
    if batch is not None and "kafka" not in (a.kind, b.kind):
        raise DiffError(
            "--since-batch is a batch that records tell in their headers; rows of tables tell none. Name a version of "
            "A with --since-version, or a time with --since-time."
        )
    moment = None if time is None else parse_time(time, ZoneInfo(settings.timezone or "UTC"))
    return Cutoff(batch=batch, time=moment, version=version)


def since_savepoint(name: str, settings: Settings) -> "Cutoff":
    """Return which rows count since a savepoint: those of later batches."""
    from respool.diff.model import cutoff_after
    from respool.operations.savepoints import find

    return cutoff_after(find(name, settings).manifest)


def since_fork(texts: Sequence[str], settings: Settings) -> "tuple[Cutoff, str] | None":
    """Return which rows count when one of two checkpoints is a fork, and the savepoint's name; None when none is."""
    from respool.checkpoint.ownership import fork_of
    from respool.diff.model import Cutoff, cutoff_after
    from respool.savepoint.store import read
    from respool.storage.open import open_reader

    for text in texts:
        try:
            fork = fork_of(open_reader(locate(text, settings)))
        except CheckpointError:
            continue
        if fork is None:
            continue
        try:
            return cutoff_after(read(fork.location).manifest), fork.savepoint
        except (CheckpointError, FileNotFoundError):  # it was deleted since
            return Cutoff(batch=fork.batch, time=datetime.fromisoformat(fork.created)), fork.savepoint
    return None


def check_request(request: "DiffRequest") -> None:
    """Raise DiffError when two outputs cannot be compared, as far as can be told without a JVM."""
    from respool.diff.versions import check_columns, then_version

    if request.a.address == request.b.address:
        raise DiffError(
            f"A and B are both the {request.a}. Name two outputs; a fork writes to one of its own when it is run with "
            "--sink-suffix."
        )
    for side in (request.a, request.b):
        check_columns(request, side)
        then_version(request, side)
