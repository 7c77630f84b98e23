"""What the commands of `respool checkpoint` are given, turned into what the library takes."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from respool.cli.render.output import print_note
from respool.errors import BrokerError, CheckpointError, CheckpointNotFoundError, TopicError, UsageError
from respool.kafka.connect import connect
from respool.settings import Settings
from respool.text import did_you_mean

if TYPE_CHECKING:
    from respool.checkpoint.ownership import RunRecord
    from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, RewindTarget
    from respool.checkpoint.snapshot import CheckpointSnapshot
    from respool.kafka.cluster import KafkaCluster
    from respool.savepoint.manifest import SavepointManifest
    from respool.storage.local_lock import Process


def locate(path: str, settings: Settings) -> str:
    """Return the folder or URL of a checkpoint that a user names."""
    from respool.locations import local_path

    local = local_path(path)
    if local is None:
        return path
    own = settings.checkpoints / path
    if "/" not in path and own.is_dir():
        return str(own)
    if local.exists():
        return str(local)
    names = sorted(one.name for one in settings.checkpoints.iterdir()) if settings.checkpoints.is_dir() else []
    known = (
        f"Pipelines that have run in {settings.home}: {', '.join(names)}."
        if names
        else f"No pipeline has run in {settings.home}."
    )
    remedy = f"{known}{did_you_mean(path, names)} Or name a folder or a URL."
    raise CheckpointNotFoundError(path, remedy=remedy)


def target_of(
    to_batch: int | None, to_time: str | None, to_offsets: str | None, last: int | None, zone: str
) -> "tuple[RewindTarget, str]":
    """Return where a rewind goes, and the words that say so."""
    from respool.checkpoint.planning.request import LastBatches, ToBatch, ToOffsets, ToTime, parse_offsets
    from respool.times import parse_time

    given = [one for one in (to_batch, to_time, to_offsets, last) if one is not None]
    if len(given) != 1:
        raise UsageError("name one of --to-batch, --to-time, --to-offsets and --last")
    if to_batch is not None:
        return ToBatch(to_batch), f"--to-batch {to_batch}"
    if last is not None:
        return LastBatches(last), f"--last {last}"
    if to_time is not None:
        moment = parse_time(to_time, ZoneInfo(zone))
        return ToTime(moment), f"--to-time {moment.astimezone(timezone.utc).isoformat()}"
    assert to_offsets is not None
    try:
        return ToOffsets(parse_offsets(to_offsets)), f"--to-offsets '{to_offsets}'"
    except ValueError:
        raise UsageError(f'--to-offsets {to_offsets}: expected JSON such as {{"visits":{{"0":120,"1":95}}}}') from None


def world_of(
    checkpoint: "CheckpointSnapshot", where: str, settings: Settings, sink: str | None, request: "RewindRequest"
) -> "RewindContext":
    """Find out what a rewind must know beside the checkpoint: Kafka, the sink, who runs it."""
    from respool.checkpoint import snapshot
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import read_run_record
    from respool.checkpoint.planning import request as planning_request

    batch = planning_request.resolve(checkpoint, request.target) if sink is not None else 0
    ids, topics = history.query_ids(checkpoint), snapshot.topics(checkpoint)
    return world_at(where, settings, sink, request, read_run_record(checkpoint.files), batch, ids, topics)


def world_at(
    where: str,
    settings: Settings,
    sink: str | None,
    request: "RewindRequest",
    run: "RunRecord | None",
    batch: int,
    ids: Sequence[str],
    topics: set[str],
) -> "RewindContext":
    """Find out what a change of a checkpoint must know beside it.

    Args:
        where: The checkpoint's folder or URL.
        settings: Where Kafka is.
        sink: The sink, if the user names it.
        request: What the user wants.
        run: The pipeline, if respool runs the query.
        batch: The batch that will run next.
        ids: All ids that the query had.
        topics: The Kafka topics that it reads.
    """
    from respool.checkpoint.planning.request import RewindContext
    from respool.sinks.address import ReplayOutcome
    from respool.sinks.registry import parse_sink, replay_of
    from respool.storage import lease

    if sink is not None:
        replay: ReplayOutcome | None = replay_of(parse_sink(sink), ids, batch, new_query_id=request.new_query_id)
    else:
        replay = ReplayOutcome(run.sink, run.on_replay) if run else None
    asked = run is not None or settings.bootstrap_servers is not None or "bootstrap.servers" in settings.kafka
    return RewindContext(
        now=datetime.now(timezone.utc),
        kept=_kept(topics, settings) if asked and topics else None,
        replay=replay,
        runs=lease.holder(where),
        ours=run is not None,
        processes=users_of(where) if run is None else (),
        exclusive=_exclusive(where),
    )


def _exclusive(where: str) -> bool | None:
    from respool.storage.open import new_writer

    try:
        return new_writer(where).exclusive()
    except CheckpointError:  # such as of an account that may only read, for which a plan can still be made
        return None


def users_of(where: str) -> "tuple[Process, ...]":
    """Return the other processes of this machine that have files of a checkpoint open."""
    from respool.locations import local_path
    from respool.storage.local_lock import processes_in

    folder = local_path(where)
    return processes_in(folder) if folder is not None else ()


def _kept(names: set[str], settings: Settings) -> "KafkaRetention | None":
    """Return what Kafka still has of topics; None when it cannot be asked."""
    from respool.checkpoint.planning.request import KafkaRetention
    from respool.kafka import topics

    kafka = reach(settings)
    if kafka is None:
        return None
    first: dict[tuple[str, int], int] = {}
    upto: dict[tuple[str, int], int] = {}
    for name in names:
        try:
            first |= {(name, number): offset for number, offset in topics.start_offsets(kafka, name).items()}
            upto |= {(name, number): offset for number, offset in topics.end_offsets(kafka, name).items()}
        except TopicError:
            continue  # the plan names a topic that is gone
    return KafkaRetention(first, upto)


def savepoints_of(checkpoint: "CheckpointSnapshot", settings: Settings) -> "list[SavepointManifest]":
    """Return the savepoints of a checkpoint, also those of a query that had its place before, the oldest first."""
    from respool.checkpoint.journal.history import query_ids
    from respool.locations import absolute
    from respool.savepoint.store import SavepointStore

    try:
        ids, root = query_ids(checkpoint), absolute(checkpoint.root)
        found = [one.manifest for one in SavepointStore(settings.savepoint_store).all()]
    except CheckpointError as error:
        print_note(f"warning: The savepoints cannot be listed: {error}")
        return []
    return [one for one in found if one.query_id in ids or one.checkpoint == root]


def reach(settings: Settings) -> "KafkaCluster | None":
    """Return the Kafka of these settings; None when none was named, and no embedded broker runs."""
    try:
        return connect(settings)
    except BrokerError:
        if settings.bootstrap_servers is not None:
            raise
        return None
