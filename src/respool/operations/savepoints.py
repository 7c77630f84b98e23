"""What the commands on savepoints are given, turned into what the library takes."""

from typing import TYPE_CHECKING, Annotated

import typer

from respool.errors import BrokerError
from respool.operations.context import reach, world_at
from respool.settings import Settings

if TYPE_CHECKING:
    from respool.checkpoint.planning.request import RewindContext, RewindRequest
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.savepoint.create import Position
    from respool.savepoint.manifest import SavepointManifest
    from respool.savepoint.store import Savepoint
    from respool.sinks.registry import SinkPosition
    from respool.storage.folder import FolderWriter

SinkOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND[:PLACE]",
        help="Where the query writes, if respool did not run it: delta:PATH, files:PATH, kafka:TOPIC, …",
    ),
]


def find(name: str, settings: Settings) -> "Savepoint":
    """Return the savepoint that a user names."""
    from respool.savepoint.store import SavepointStore
    from respool.savepoint.store import find as find_in

    return find_in(name, SavepointStore(settings.savepoint_store))


def position(settings: Settings, sink: str | None) -> "Position":
    """Return what finds out how far the output of a query is."""
    from respool.checkpoint.journal.history import query_ids
    from respool.checkpoint.ownership import read_run_record
    from respool.kafka import topics
    from respool.sinks.registry import SinkPosition, position_of

    def end_offsets(topic: str) -> dict[int, int]:
        kafka = reach(settings)
        if kafka is None:
            raise BrokerError("No Kafka broker could be asked.")
        return topics.end_offsets(kafka, topic)

    def find_out(checkpoint: "CheckpointSnapshot", batch: int) -> "SinkPosition":
        run = read_run_record(checkpoint.files)
        output = sink or (run.output if run else "unknown")
        if not output and run is not None:  # what the sink says of itself is for people, and names no place
            return SinkPosition(run.sink, unknown="This kind of sink does not record its position.")
        return position_of(output, query_ids(checkpoint), batch, end_offsets)

    return find_out


def occupied(where: str) -> "tuple[FolderWriter, CheckpointSnapshot | None]":
    """Return a folder that a checkpoint is to be brought into, and what is there: None for nothing."""
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.locations import local_path
    from respool.storage import lease
    from respool.storage.open import new_writer

    lease.wait_for_jvm(where)
    path = local_path(where)
    files = new_writer(where)
    if path is not None and not path.exists():
        return files, None
    own = ("offsets", "commits", "state", "sources")
    if not files.names("") and not any(name in own for name in files.folders("")):
        return files, None
    return files, CheckpointSnapshot(files)


def world_for(
    manifest: "SavepointManifest",
    checkpoint: "CheckpointSnapshot | None",
    where: str,
    settings: Settings,
    sink: str | None,
    request: "RewindRequest",
) -> "RewindContext":
    """Find out what a restore or a fork must know beside the savepoint and the checkpoint."""
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import read_run_record
    from respool.format.positions import kafka_parts

    run = (read_run_record(checkpoint.files) if checkpoint else None) or manifest.run
    ids = history.query_ids(checkpoint) if checkpoint else ()
    topics = {topic for one in manifest.sources for topic, _ in kafka_parts(one.end)}
    return world_at(where, settings, sink, request, run, manifest.next_batch, ids or (manifest.query_id,), topics)
