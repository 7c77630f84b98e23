"""The kinds of sinks, by the name in an address such as `delta:TABLE`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from respool.delta.log import DeltaLog, open_table
from respool.errors import CheckpointError, PipelineError, RespoolError
from respool.locations import absolute, local_path
from respool.sinks.address import DeltaAddress, FileAddress, JdbcAddress, OtherAddress, ReplayOutcome, SinkAddress
from respool.storage.open import open_reader
from respool.text import did_you_mean


@dataclass(frozen=True)
class SinkPosition:
    """How far the output was when the savepoint was made: it holds at least all results of the savepoint's batch.

    Attributes:
        output: Where the query writes, as `kafka:TOPIC`, `delta:TABLE`, `files:FOLDER`, `jdbc:…` or in words.
        offsets: The end offsets of the output topic, by partition.
        version: The version of the Delta table: the version that holds the savepoint's batch where the table records
            batches, otherwise the newest.
        transactions: The newest batch that a table has recorded, by the query's id; of a folder, by its name.
        unknown: Why the position is unknown; None when it is known.
    """

    output: str
    offsets: Mapping[str, int] | None = None
    version: int | None = None
    transactions: Mapping[str, int] | None = None
    unknown: str | None = None


EndOffsets = Callable[[str], Mapping[int, int]]


def position_of(output: str, query_ids: Sequence[str], batch: int, end_offsets: EndOffsets | None) -> SinkPosition:
    """Return the position of an output, at or after a committed batch.

    Args:
        output: Where the query writes, as `--sink` names it; another text is kept as it is.
        query_ids: All ids that the query had.
        batch: The batch of the savepoint.
        end_offsets: Returns the end offsets of a topic; None when no broker can be asked.
    """
    kind, _, place = output.partition(":")
    try:
        if kind == "delta" and place:
            return _of_table(output, place, query_ids, batch)
        if kind == "kafka" and place and end_offsets is not None:
            return SinkPosition(
                output, offsets={str(partition): end for partition, end in sorted(end_offsets(place).items())}
            )
        if kind == "files" and place:
            return _of_folder(output, place)
        if kind == "jdbc" and place:
            from respool.sinks.postgres.place import PostgresPlace
            from respool.sinks.postgres.sink import recorded_batches

            return SinkPosition(output, transactions=recorded_batches(PostgresPlace.parse(output), tuple(query_ids)))
    except RespoolError as error:  # a savepoint is useful without it
        return SinkPosition(output, unknown=str(error))
    if kind == "kafka":
        return SinkPosition(output, unknown="No Kafka broker could be asked.")
    return SinkPosition(output, unknown="This kind of sink does not record its position.")


def _of_folder(output: str, folder: str) -> SinkPosition:
    from respool.sinks.file_replay import newest_batch

    newest = newest_batch(folder)
    if newest < 0:
        return SinkPosition(output, unknown=f"The folder {folder} has no log of a file sink.")
    return SinkPosition(output, transactions={folder: newest})


def _of_table(output: str, place: str, query_ids: Sequence[str], batch: int) -> SinkPosition:
    location, _, app_id = place.partition("?txnAppId=")
    ids = [app_id] if app_id else list(query_ids)
    table = open_table(location)
    noted = {query_id: version for query_id in ids if (version := table.transaction_version(query_id)) is not None}
    version = table.version()
    if noted:  # the newest version without a later batch
        for commit in DeltaLog(location).lineage(table.version()):
            batches = [commit.batches[query_id] for query_id in ids if query_id in commit.batches]
            if batches and max(batches) <= batch:
                version = commit.version
                break
    return SinkPosition(output, version=version, transactions=noted)


_KINDS = "delta:TABLE, files:FOLDER, kafka:TOPIC, jdbc:postgresql://…, foreachBatch, console"


def parse_sink(text: str) -> SinkAddress:
    """Return the sink that `--sink` names; raise CheckpointError for an unknown kind."""
    kind, _, place = text.strip().partition(":")
    makers: dict[str, Callable[[str], SinkAddress]] = {
        "delta": _delta,
        "files": lambda folder: FileAddress(absolute(folder)),
        "jdbc": _jdbc,
        "kafka": lambda topic: OtherAddress(
            f"Kafka topic {topic}", f"Results are sent to {topic} again, as new records."
        ),
    }
    if (make := makers.get(kind.lower())) is not None:
        if place:
            return make(place)
        raise CheckpointError(f"The sink {text} needs a location. Name a sink like this: {_KINDS}.")
    match kind.lower():
        case "console":
            return OtherAddress("console", "Results are printed again.")
        case "foreachbatch":
            return OtherAddress("foreachBatch", "The function is called again, with the same batch ids.")
    near = did_you_mean(kind, [*makers, "console", "foreachBatch"])
    raise CheckpointError(f"Unknown sink kind {kind!r}.{near} Name one of {_KINDS}.")


def replay_of(
    sink: SinkAddress,
    query_ids: Sequence[str],
    first_batch: int,
    *,
    new_query_id: bool = False,
    may_be_missing: bool = False,
) -> ReplayOutcome:
    """Return what a sink will do when the batches from `first_batch` on are replayed.

    Args:
        sink: The sink.
        query_ids: All ids that the query had, the newest last: the table may have batches under an older one.
        first_batch: The first replayed batch.
        new_query_id: Whether the query gets a new id with the rewind, as a user wants it.
        may_be_missing: Whether the sink may not exist yet, or have no batch of the query: its pipeline names it.
    """
    if may_be_missing and _has_no_batch(sink, query_ids):
        return ReplayOutcome(_label(sink), f"It has no batch from {first_batch} on: they are written as new.")
    match sink:
        case DeltaAddress():
            from respool.sinks.delta_replay import replay

            return replay(sink, query_ids, first_batch, new_query_id)
        case FileAddress(folder):
            from respool.sinks.file_replay import replay as replay_files

            return replay_files(folder, first_batch)
        case JdbcAddress():
            return ReplayOutcome(
                _label(sink),
                f"The batches from {first_batch} on are written again after this change: their results replace the "
                "rows of the same keys. Rows of keys that they no longer have stay.",
            )
        case OtherAddress(kind, text):
            return ReplayOutcome(kind, text)


def _has_no_batch(sink: SinkAddress, query_ids: Sequence[str]) -> bool:
    match sink:
        case DeltaAddress(table, app_id):
            path = local_path(table)
            if (path is not None and not path.is_dir()) or not open_reader(table).names("_delta_log"):
                return True
            opened = open_table(table)
            return all(opened.transaction_version(name) is None for name in ([app_id] if app_id else query_ids))
        case FileAddress(folder):
            from respool.sinks.file_replay import newest_batch

            return newest_batch(folder) < 0
        case _:
            return False


def _label(sink: SinkAddress) -> str:
    match sink:
        case DeltaAddress(table):
            return f"Delta table {table}"
        case FileAddress(folder):
            return f"files in {folder}"
        case JdbcAddress(address):
            from respool.sinks.postgres.place import PostgresPlace

            place = PostgresPlace.parse(address)
            return f"PostgreSQL table {place.table} of {place.database}"
        case OtherAddress(kind):
            return kind


def _jdbc(place: str) -> JdbcAddress:
    from respool.sinks.postgres.place import PostgresPlace

    try:
        return JdbcAddress(PostgresPlace.parse(f"jdbc:{place}").address)
    except PipelineError as error:
        raise CheckpointError(f"The sink is not a table of PostgreSQL. {error}") from error


def _delta(place: str) -> DeltaAddress:
    table, _, app_id = place.partition("?txnAppId=")
    return DeltaAddress(absolute(table), app_id or None)
