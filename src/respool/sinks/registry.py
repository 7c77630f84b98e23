"""The kinds of sinks, by the name in an address such as `delta:TABLE`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from respool.delta.log import DeltaLog, open_table
from respool.errors import BrokerError, CheckpointError, TopicError
from respool.locations import absolute
from respool.sinks.address import DeltaAddress, FileAddress, OtherAddress, ReplayOutcome, SinkAddress
from respool.text import did_you_mean


@dataclass(frozen=True)
class SinkPosition:
    """How far the output was when the savepoint was made: it holds at least all results of the savepoint's batch.

    Attributes:
        output: Where the query writes, as `kafka:TOPIC`, `delta:TABLE` or in words.
        offsets: The end offsets of the output topic, by partition.
        version: The version of the Delta table: the version that holds the savepoint's batch where the table records
            batches, otherwise the newest.
        transactions: The newest batch that the Delta table has recorded, by the query's id.
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
        output: Where the query writes, as `kafka:TOPIC` or `delta:TABLE`; another text is kept as it is.
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
    except (BrokerError, CheckpointError, TopicError) as error:  # a savepoint is useful without it
        return SinkPosition(output, unknown=str(error))
    if kind == "kafka":
        return SinkPosition(output, unknown="No Kafka broker could be asked.")
    return SinkPosition(output, unknown="This kind of sink does not record its position.")


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


_KINDS = "delta:TABLE, files:FOLDER, kafka:TOPIC, foreachBatch, console"


def parse_sink(text: str) -> SinkAddress:
    """Return the sink that `--sink` names; raise CheckpointError for an unknown kind."""
    kind, _, place = text.strip().partition(":")
    makers: dict[str, Callable[[str], SinkAddress]] = {
        "delta": _delta,
        "files": lambda folder: FileAddress(absolute(folder)),
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
    sink: SinkAddress, query_ids: Sequence[str], first_batch: int, *, new_query_id: bool = False
) -> ReplayOutcome:
    """Return what a sink will do when the batches from `first_batch` on are replayed.

    Args:
        sink: The sink.
        query_ids: All ids that the query had, the newest last: the table may have batches under an older one.
        first_batch: The first replayed batch.
        new_query_id: Whether the query gets a new id with the rewind, as a user wants it.
    """
    match sink:
        case DeltaAddress():
            from respool.sinks.delta import replay

            return replay(sink, query_ids, first_batch, new_query_id)
        case FileAddress(folder):
            from respool.sinks.file_replay import replay as replay_files

            return replay_files(folder, first_batch)
        case OtherAddress(kind, text):
            return ReplayOutcome(kind, text)


def _delta(place: str) -> DeltaAddress:
    table, _, app_id = place.partition("?txnAppId=")
    return DeltaAddress(absolute(table), app_id or None)
