"""How far a query's output is: kept with a savepoint, to tell later what came after it."""

from collections.abc import Callable, Mapping, Sequence

from respool.checkpoint.delta_log import Log, open_table
from respool.errors import BrokerError, CheckpointError, TopicError
from respool.savepoint.manifest import SinkPosition

EndOffsets = Callable[[str], Mapping[int, int]]


def position_of(output: str, query_ids: Sequence[str], batch: int, end_offsets: EndOffsets | None) -> SinkPosition:
    """Return how far an output is, at or after a committed batch.

    Args:
        output: Where the query writes, as `kafka:TOPIC` or `delta:TABLE`; other words are kept as they are.
        query_ids: All ids that the query had.
        batch: The batch of the savepoint.
        end_offsets: Returns the end offsets of a topic; None when no broker can be asked.
    """
    kind, _, place = output.partition(":")
    try:
        if kind == "delta" and place:
            return _of_table(output, place, query_ids, batch)
        if kind == "kafka" and place and end_offsets is not None:
            return SinkPosition(output, offsets={str(one): end for one, end in sorted(end_offsets(place).items())})
    except (BrokerError, CheckpointError, TopicError) as error:  # a savepoint is worth having without it
        return SinkPosition(output, unknown=str(error))
    if kind == "kafka":
        return SinkPosition(output, unknown="No Kafka broker could be asked.")
    return SinkPosition(output, unknown="This kind of sink does not tell.")


def _of_table(output: str, place: str, query_ids: Sequence[str], batch: int) -> SinkPosition:
    location, _, app_id = place.partition("?txnAppId=")
    ids = [app_id] if app_id else list(query_ids)
    table = open_table(location)
    noted = {one: version for one in ids if (version := table.transaction_version(one)) is not None}
    version = table.version()
    if noted:  # the newest version without a later batch
        for commit in Log(location).lineage(table.version()):
            found = [commit.batches[one] for one in ids if one in commit.batches]
            if found and max(found) <= batch:
                version = commit.version
                break
    return SinkPosition(output, version=version, transactions=noted)
