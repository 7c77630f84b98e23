"""What a sink does with the batches that come again after a rewind, found without a JVM.

Spark's Delta sink and its file sink each note the batches that they have, and skip what they have without a word: the
rows are lost, and a stateful query writes no state for them. Other sinks write everything again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from respool.checkpoint.files import absolute
from respool.errors import CheckpointError, did_you_mean


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table.

    Attributes:
        table: Its folder or URL.
        app_id: The `txnAppId` of a foreachBatch function that gives a batch's id as `txnVersion`; None for Spark's
            own Delta sink, which takes the query's id.
    """

    table: str
    app_id: str | None = None


@dataclass(frozen=True)
class FileSink:
    """A folder of Parquet, JSON, CSV, ORC or text files, with a log of them in `_spark_metadata`."""

    folder: str


@dataclass(frozen=True)
class OtherSink:
    """A sink that remembers no batch.

    Attributes:
        kind: Its name for people.
        text: What it does with a batch that comes again.
    """

    kind: str
    text: str


Sink = DeltaSink | FileSink | OtherSink


@dataclass(frozen=True)
class RestoreTable:
    """Put a Delta table back to what it was before a batch, and let it take that batch again: in one commit.

    Attributes:
        table: The table's folder or URL.
        from_version: The version that the table must be at.
        to_version: The version whose rows it gets; None for no rows, `from_version` for those that it has.
        app_id: Whose batches the table notes: the query's id, or a `txnAppId`.
        from_batch: The newest batch that the table has noted; None for none.
        to_batch: The batch that it is to note as the newest, -1 for none.
    """

    table: str
    from_version: int
    to_version: int | None
    app_id: str
    from_batch: int | None
    to_batch: int


@dataclass(frozen=True)
class MoveSinkFiles:
    """Move a file sink's log entries, then the files that they name, out of its folder's sight.

    Attributes:
        folder: The sink's folder or URL.
        files: Paths in it, in the order in which they must move.
    """

    folder: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """What a sink will do with the batches that come again.

    Attributes:
        sink: The sink, for people.
        text: What will happen.
        blocked: Why the rewind is refused as it is; None when it is fine.
        remedy: What to do about it.
        restore: What `--restore-sink` does; None when it is not needed or not possible.
        new_query_id: Whether the remedy needs a new id for the query.
    """

    sink: str
    text: str
    blocked: str | None = None
    remedy: str | None = None
    restore: RestoreTable | MoveSinkFiles | None = None
    new_query_id: bool = False


_KINDS = "delta:TABLE, files:FOLDER, kafka:TOPIC, foreachBatch, console"


def parse_sink(text: str) -> Sink:
    """Return the sink that `--sink` names; raise CheckpointError, with the kinds that there are."""
    kind, _, place = text.strip().partition(":")
    makers: dict[str, Callable[[str], Sink]] = {
        "delta": _delta,
        "files": lambda folder: FileSink(absolute(folder)),
        "kafka": lambda topic: OtherSink(f"Kafka topic {topic}", f"Results are sent to {topic} again, as new records."),
    }
    if (make := makers.get(kind.lower())) is not None:
        if place:
            return make(place)
        raise CheckpointError(f"The sink {text} lacks its place. Name it like this: {_KINDS}.")
    match kind.lower():
        case "console":
            return OtherSink("console", "Results are printed again.")
        case "foreachbatch":
            return OtherSink("foreachBatch", "The function is called again, with the same batch ids.")
    near = did_you_mean(kind, [*makers, "console", "foreachBatch"])
    raise CheckpointError(f"There is no kind of sink {kind!r}.{near} Name one of {_KINDS}.")


def replay_of(sink: Sink, query_ids: Sequence[str], first_batch: int, *, new_query_id: bool = False) -> Replay:
    """Return what a sink will do when the batches from `first_batch` on come again.

    Args:
        sink: The sink.
        query_ids: All ids that the query had, the newest last: the table may have batches under an older one.
        first_batch: The first batch that comes again.
        new_query_id: Whether the query gets a new id with the rewind, as a user wants it.
    """
    match sink:
        case DeltaSink():
            from respool.checkpoint.delta_sink import replay

            return replay(sink, query_ids, first_batch, new_query_id)
        case FileSink(folder):
            from respool.checkpoint.file_sink import replay as replay_files

            return replay_files(folder, first_batch)
        case OtherSink(kind, text):
            return Replay(kind, text)


def run_restore(step: RestoreTable) -> None:
    """Restore a table; done before, by a run that was cut off, it is done.

    Raises:
        CheckpointError: The table has changed since the plan was made, or cannot be written.
    """
    from respool.checkpoint.delta_restore import run

    run(step)


def require_undoable(step: RestoreTable) -> None:
    """Raise CheckpointError when a restore cannot be taken back: to be asked before anything else is."""
    from respool.checkpoint.delta_restore import undoing

    undoing(step)


def undo_restore(step: RestoreTable) -> None:
    """Take a restore back; done before, or never begun, there is nothing to do.

    Raises:
        CheckpointError: Somebody has written to the table since, or it cannot be written.
    """
    from respool.checkpoint.delta_restore import undo

    undo(step)


def _delta(place: str) -> DeltaSink:
    table, _, app_id = place.partition("?txnAppId=")
    return DeltaSink(absolute(table), app_id or None)
