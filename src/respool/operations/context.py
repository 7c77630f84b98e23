"""What operations share: the session and the notes of a call, and the context of a plan."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from respool.errors import BrokerError, CheckpointError, CheckpointInUseError, CheckpointNotFoundError, TopicError
from respool.settings import Settings, load
from respool.storage import object_store
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.checkpoint.ownership import RunRecord
    from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.kafka.cluster import KafkaCluster
    from respool.pipeline.definition import Pipeline
    from respool.savepoint.create import Position
    from respool.savepoint.manifest import SavepointManifest
    from respool.sinks.address import ReplayOutcome
    from respool.sinks.protocol import Sink
    from respool.sinks.registry import SinkPosition
    from respool.storage.folder import FolderWriter
    from respool.storage.lease import Lease
    from respool.storage.local_lock import Process

OnNote = Callable[[str], None]


def settings_of(settings: Settings | None) -> Settings:
    """Return the settings of a call, by default those of respool.toml and of the environment, and use their stores."""
    return object_store.use(settings if settings is not None else load())


def note_of(on_note: OnNote | None) -> OnNote:
    """Return a function that logs a message, and passes it to a caller's function."""
    return partial(note, on_note=on_note)


@contextmanager
def session(
    settings: Settings,
    spark: "SparkSession | None",
    on_note: OnNote,
    why: str = "",
    locations: Iterable[str] = (),
    *,
    jvm: bool = True,
) -> "Iterator[SparkSession]":
    """Yield the session of the caller, which stays open, or a session that lasts as long as the `with` block.

    Args:
        settings: Spark's master and its settings.
        spark: The caller's session.
        on_note: Called before Spark is started.
        why: What it is started for.
        locations: Folders and URLs that it reads and writes, besides those of the settings.
        jvm: The session needs a JVM; otherwise it may be on a Spark Connect server.

    Raises:
        SettingsError: It needs a JVM and would be on a server.
    """
    from respool.spark import connect
    from respool.spark.session import any_session, require_connectors, spark_session, stores_of

    if spark is not None:
        if jvm:
            connect.require_jvm(spark)
        require_connectors(spark, stores_of(settings, locations))
        yield spark
        return
    server = None if jvm else connect.server_of(settings)
    what = f"Connecting to {connect.shown(server)}" if server else f"Starting Spark ({settings.master})"
    on_note(f"{what} {why}{' ' * bool(why)}…")
    starting = spark_session(settings, locations=locations) if jvm else any_session(settings, locations)
    with starting as started:
        yield started


OnProgress = Callable[[int, int], None]

_LOGGER = logging.getLogger("respool")
_LOGGER.addHandler(logging.NullHandler())  # without one, Python prints warnings to standard error


def note(message: str, on_note: OnNote | None = None, level: int = logging.INFO) -> None:
    """Log a message, and pass it to a caller's function."""
    _LOGGER.log(level, "%s", message)
    if on_note is not None:
        on_note(message)


def locate(name: str, settings: Settings) -> str:
    """Return the folder or URL of a checkpoint; raise CheckpointNotFoundError when a local one does not exist.

    Args:
        name: A pipeline's name, a folder or a URL.
        settings: Where the checkpoints of pipelines are.
    """
    from respool.locations import local_path
    from respool.storage.open import new_writer

    local = local_path(name)
    if local is None:
        return name
    if "/" not in name and _exists(own := settings.checkpoint_of(name)):
        return own
    if local.exists():
        return str(local)
    names = sorted(new_writer(settings.checkpoint_store).folders(""))
    pipelines = (
        f"Pipelines that have run in {_place(settings)}: {', '.join(names)}."
        if names
        else f"No pipeline has run in {_place(settings)}."
    )
    remedy = f"{pipelines}{did_you_mean(name, names)} Or name a folder or a URL."
    raise CheckpointNotFoundError(name, remedy=remedy)


def _exists(checkpoint: str) -> bool:
    from respool.locations import local_path
    from respool.storage.open import open_reader

    path = local_path(checkpoint)
    return path.is_dir() if path is not None else bool(open_reader(checkpoint).folders(""))


def _place(settings: Settings) -> str:
    """Return where the checkpoints of pipelines are, for messages."""
    at_home = settings.checkpoints is None and settings.storage is None
    return str(settings.home) if at_home else settings.checkpoint_store


def location_of(name: str, settings: Settings) -> str:
    """Return the absolute folder or URL of a checkpoint, which need not exist: a restore can create it."""
    from respool.locations import absolute

    try:
        return absolute(locate(name, settings))
    except CheckpointNotFoundError:
        return absolute(name if "/" in name else settings.checkpoint_of(name))


def open_target(location: str) -> "tuple[FolderWriter, CheckpointSnapshot | None]":
    """Return a folder to install a checkpoint in, and the checkpoint there now; None when it is empty."""
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.locations import local_path
    from respool.storage import lease
    from respool.storage.open import new_writer

    lease.wait_for_jvm(location)
    path = local_path(location)
    files = new_writer(location)
    if path is not None and not path.exists():
        return files, None
    of_spark = ("offsets", "commits", "state", "sources")
    if not files.names("") and not any(name in of_spark for name in files.folders("")):
        return files, None
    return files, CheckpointSnapshot(files)


def hold(location: str, name: str) -> "Lease":
    """Hold a checkpoint for a change; raise CheckpointInUseError when another process holds it.

    Args:
        location: Its folder or URL.
        name: The same as the user named it, for the message.
    """
    from respool.storage import lease

    held = lease.hold(location)
    if held is None:
        raise CheckpointInUseError(name, lease.holder(location))
    return held


def rewind_context(
    checkpoint: "CheckpointSnapshot", location: str, settings: Settings, sink: str | None, request: "RewindRequest"
) -> "RewindContext":
    """Return what a rewind is planned from besides the checkpoint; Kafka and the sink are asked."""
    from respool.checkpoint import snapshot
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import read_run_record
    from respool.checkpoint.planning import request as planning_request

    ids, topics = history.query_ids(checkpoint), snapshot.topics(checkpoint)
    run = read_run_record(checkpoint.files)
    asks_sink = sink is not None or (run is not None and run.recorded_at)
    batch = planning_request.resolve(checkpoint, request.target) if asks_sink else 0
    return change_context(location, settings, sink, request, run, batch, ids, topics)


def install_context(
    manifest: "SavepointManifest",
    checkpoint: "CheckpointSnapshot | None",
    location: str,
    settings: Settings,
    sink: str | None,
    request: "RewindRequest",
    *,
    forks: bool = False,
) -> "RewindContext":
    """Return what a restore or a fork is planned from besides the savepoint and the checkpoint."""
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import read_run_record
    from respool.format.positions import kafka_parts

    run = (read_run_record(checkpoint.files) if checkpoint else None) or manifest.run
    if forks and run is not None:
        run = replace(run, recorded_at=())  # a fork writes elsewhere
    ids = (history.query_ids(checkpoint) if checkpoint else ()) or (manifest.query_id,)
    topics = {topic for source in manifest.sources for topic, _ in kafka_parts(source.end)}
    return change_context(location, settings, sink, request, run, manifest.next_batch, ids, topics)


def change_context(
    location: str,
    settings: Settings,
    sink: str | None,
    request: "RewindRequest",
    run: "RunRecord | None",
    batch: int,
    query_ids: Sequence[str],
    topics: set[str],
) -> "RewindContext":
    """Return what a change is planned from besides the checkpoint's files.

    Args:
        location: The checkpoint's folder or URL.
        settings: Where Kafka is.
        sink: The sink, if the user names it.
        request: What the user wants.
        run: The pipeline, if respool runs the query.
        batch: The batch that will run next.
        query_ids: All ids that the query had.
        topics: The Kafka topics that it reads.
    """
    from respool.checkpoint.planning.request import RewindContext
    from respool.storage import lease

    kafka_named = settings.bootstrap_servers is not None or "bootstrap.servers" in settings.kafka
    return RewindContext(
        now=datetime.now(timezone.utc),
        kept=_kafka_retention(topics, settings) if topics and (run is not None or kafka_named) else None,
        replay=_replay(sink, run, query_ids, batch, request.new_query_id),
        runs=lease.holder(location),
        ours=run is not None,
        processes=processes_using(location) if run is None else (),
        exclusive=_is_exclusive(location),
    )


def kafka_for(pipelines: "Sequence[Pipeline]", settings: Settings) -> "KafkaCluster":
    """Return the Kafka of these settings; `NO_KAFKA` when no pipeline reads from Kafka or writes to it."""
    from respool.kafka.cluster import NO_KAFKA
    from respool.kafka.topics import cluster
    from respool.sinks.protocol import identity_of
    from respool.sinks.several import all_sinks

    writes = any(identity_of(sink).kind == "kafka" for pipeline in pipelines for sink in all_sinks(pipeline.sink))
    uses = writes or any(pipeline.kafka_sources for pipeline in pipelines)
    return cluster(settings) if uses else NO_KAFKA


def _replay(
    sink: str | None, run: "RunRecord | None", query_ids: Sequence[str], batch: int, new_query_id: bool
) -> "ReplayOutcome | None":
    """Return what the sink that the user names, or else the pipeline's sinks, will do with replayed batches."""
    from respool.sinks.address import ReplayOutcome
    from respool.sinks.protocol import places_of
    from respool.sinks.registry import parse_sink, replay_of

    if sink is not None:
        return replay_of(parse_sink(sink), query_ids, batch, new_query_id=new_query_id)
    if run is None:
        return None
    outcomes = [
        replay_of(parse_sink(address), query_ids, batch, new_query_id=new_query_id, may_be_missing=True)
        for address in run.recorded_at
    ]
    places = places_of(run.sink_identity) if run.sink_identity is not None else ()
    if len(places) > len(outcomes) or not outcomes:
        outcomes.insert(0, ReplayOutcome(run.sink, run.on_replay))
    return replace(outcomes[0], others=tuple(outcomes[1:]))


def table_of(sink: "Sink", settings: Settings) -> str | None:
    """Return the folder or URL of the Delta table that a sink writes to; None for another kind of sink."""
    from respool.sinks.protocol import ReadableSink

    kind, _, place = sink.output(settings).address.partition(":") if isinstance(sink, ReadableSink) else ("",) * 3
    return place if kind == "delta" else None


def processes_using(location: str) -> "tuple[Process, ...]":
    """Return the other processes of this machine that have files of a checkpoint open."""
    from respool.locations import local_path
    from respool.storage.local_lock import processes_in

    folder = local_path(location)
    return processes_in(folder) if folder is not None else ()


def sink_position(settings: Settings, sink: str | None) -> "Position":
    """Return the function that determines how far the output of a query is; `sink` names the output."""
    from respool.checkpoint.journal.history import query_ids
    from respool.checkpoint.ownership import read_run_record
    from respool.kafka import topics
    from respool.kafka.topics import connect_if_named
    from respool.sinks.registry import SinkPosition, position_of

    def end_offsets(topic: str) -> dict[int, int]:
        kafka = connect_if_named(settings)
        if kafka is None:
            raise BrokerError("No Kafka broker could be asked.")
        return topics.end_offsets(kafka, topic)

    def position(checkpoint: "CheckpointSnapshot", batch: int) -> "SinkPosition":
        run = read_run_record(checkpoint.files)
        output = sink or (run.output if run else "unknown")
        if not output and run is not None:  # `run.sink` is a description, which names no location
            return SinkPosition(run.sink, unknown="This kind of sink does not report its position.")
        return position_of(output, query_ids(checkpoint), batch, end_offsets)

    return position


def savepoints_of(
    checkpoint: "CheckpointSnapshot", settings: Settings, on_note: OnNote | None = None
) -> "list[SavepointManifest]":
    """Return the savepoints of a checkpoint and of queries that had its location before, the oldest first."""
    from respool.checkpoint.journal.history import query_ids
    from respool.locations import absolute, canonical_location
    from respool.savepoint.store import SavepointStore

    try:
        ids, root = query_ids(checkpoint), absolute(checkpoint.root)
        manifests = [savepoint.manifest for savepoint in SavepointStore(settings.savepoint_store).all()]
    except CheckpointError as error:
        note(f"warning: The savepoints cannot be listed: {error}", on_note, logging.WARNING)
        return []
    return [
        manifest
        for manifest in manifests
        if manifest.query_id in ids or canonical_location(manifest.checkpoint) == root
    ]


def _is_exclusive(location: str) -> bool | None:
    from respool.storage.open import new_writer

    try:
        return new_writer(location).exclusive()
    except CheckpointError:  # such as of an account that may only read, for which a plan can still be made
        return None


def _kafka_retention(names: set[str], settings: Settings) -> "KafkaRetention | None":
    """Return which offsets of topics Kafka still has; None when no Kafka is named."""
    from respool.checkpoint.planning.request import KafkaRetention
    from respool.kafka import topics
    from respool.kafka.topics import connect_if_named

    kafka = connect_if_named(settings)
    if kafka is None:
        return None
    first: dict[tuple[str, int], int] = {}
    end: dict[tuple[str, int], int] = {}
    for name in names:
        try:
            first |= {(name, number): offset for number, offset in topics.start_offsets(kafka, name).items()}
            end |= {(name, number): offset for number, offset in topics.end_offsets(kafka, name).items()}
        except TopicError:
            continue  # the plan reports a topic that is gone
    return KafkaRetention(first, end)
