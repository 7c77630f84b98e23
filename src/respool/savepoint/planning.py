"""What the plans of a restore, a fork and a promotion share. Planning reads, and changes nothing."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from respool.checkpoint import ownership, reachability
from respool.checkpoint.journal import history
from respool.checkpoint.journal.history import query_ids
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Operation, Replace, Step
from respool.checkpoint.ownership import RunRecord
from respool.checkpoint.planning import refusals
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, copy_identity
from respool.checkpoint.planning.rewind import read_again
from respool.checkpoint.planning.sources import Availability, Inputs, availability
from respool.checkpoint.snapshot import CheckpointSnapshot, require_listed
from respool.errors import CheckpointError, Refusal
from respool.format import logs, positions
from respool.format.model import SourceOffsets
from respool.format.positions import SourceRange
from respool.savepoint import install
from respool.savepoint.install import InstallSet
from respool.savepoint.store import StoredSavepoint
from respool.sinks.address import ReplayOutcome
from respool.storage.open import open_referenced

_NO_BATCHES = LogEnds(-1, -1)

ReadSince = tuple[tuple[SourceRange, ...], Mapping[str, Inputs]]


@dataclass(frozen=True)
class PlannedInstall:
    """The plan of a restore, a fork or a promotion, before anything is copied.

    Attributes:
        batch: The batch that will run next.
        newest: The newest planned batch of the checkpoint that is replaced; -1 for none.
        readings: The ranges that are read again or skipped, by source: from `batch` to where the query was.
        watermark_ms: The watermark at which the query starts.
        install_set: The files to install.
        aside: How many files are moved to `_respool/aside/`.
        aside_size: Their size in bytes.
        replay: What the sink will do with replayed batches; None when it is not known.
        refusals: Why the plan cannot be applied as it is.
        notes: Other remarks for the user.
        journal: The steps that will be carried out.
    """

    batch: int
    newest: int
    readings: tuple[SourceRange, ...]
    watermark_ms: int
    install_set: InstallSet
    aside: int
    aside_size: int
    replay: ReplayOutcome | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    journal: Journal


@dataclass(frozen=True)
class PendingReads:
    """What a query will read once it continues from a position, and whether its sources still have it."""

    readings: tuple[SourceRange, ...]
    available: Availability


def savepoint_files(savepoint: StoredSavepoint, location: str, query_id: str | None) -> InstallSet:
    """Return the files of a savepoint to install in a folder, with another query id; None keeps the query's own."""
    files = savepoint.manifest.files
    return install.install_set(savepoint.files(), files, [file.path for file in files], location, query_id)


def pending_reads(
    starts: Sequence[SourceOffsets],
    origin: CheckpointSnapshot,
    read_before: ReadSince | None,
    kept: KafkaRetention | None,
    to_end: bool,
) -> PendingReads:
    """Return what a query will read from some positions.

    Args:
        starts: The positions.
        origin: The checkpoint that continues there.
        read_before: What a query has already read from these positions; None when that is not known.
        kept: What Kafka has; None when no broker could be asked.
        to_end: Whether to count all that Kafka has, not only what was read before.
    """
    known = {reading.source: reading for reading in read_before[0]} if read_before else {}
    inputs = dict(read_before[1]) if read_before else {}
    readings = []
    for start in starts:
        kind = reachability.source_kind(origin, start.source, start.end)
        reading = known.get(start.source)
        if reading is None or reading.kind != kind or (to_end and kind in ("Kafka", "number")):
            reading = positions.reading(start.source, start.end, _newest(start.end, kept), kind)
        readings.append(reading)
    return PendingReads(tuple(readings), availability(readings, inputs, kept))


def read_since(starts: Sequence[SourceOffsets], checkpoint: CheckpointSnapshot) -> ReadSince | None:
    """Return what a checkpoint has read from some positions; None when it has planned no batch."""
    return read_again(checkpoint, {start.source: start.end for start in starts}) if checkpoint.offsets else None


def read_by_origin(savepoint: StoredSavepoint) -> ReadSince | None:
    """Return what the checkpoint of a savepoint has read since; None when that checkpoint cannot be read."""
    manifest = savepoint.manifest
    try:
        files = open_referenced(manifest.checkpoint, savepoint.location)
        if logs.query_id(logs.decode("metadata", files.read("metadata"))) != manifest.query_id:
            return None
        return read_since(manifest.sources, CheckpointSnapshot(files))
    except (OSError, CheckpointError):
        return None


def _newest(position: Any, kept: KafkaRetention | None) -> Any:
    parts = positions.kafka_parts(position)
    if not parts or kept is None:
        return position
    ends: dict[str, dict[str, int]] = {}
    for (topic, number), offset in parts.items():
        ends.setdefault(topic, {})[str(number)] = max(offset, kept.next.get((topic, number), offset))
    return ends


def install_refusals(
    checkpoint: CheckpointSnapshot | None,
    request: RewindRequest,
    context: RewindContext,
    reads: PendingReads,
    steps: Sequence[Step],
) -> list[Refusal]:
    """Return why files must not be installed in a checkpoint: a running query, lost records, or the sink."""
    moves = [step for step in steps if isinstance(step, Move) and step.target.startswith(history.ASIDE)]
    running = refusals.running(checkpoint, request, context, moves) if checkpoint is not None else []
    return [*running, *refusals.losses(request, reads.available), *refusals.at_sink(request, context)]


def run_record_steps(checkpoint: CheckpointSnapshot | None, run: RunRecord | None) -> list[Step]:
    """Return the steps that record a pipeline in a checkpoint."""
    if run is None:
        return []
    old = None
    if checkpoint is not None and checkpoint.files.facts([ownership.RUN]):
        old = checkpoint.files.read(ownership.RUN).decode()
    return [Replace(ownership.RUN, old, record_text(asdict(run)))]


def record_text(record: Any) -> str:
    """Return a record as the text of its file."""
    return json.dumps(record, indent=1) + "\n"


def few_names(names: Collection[str]) -> str:
    """Return the first of some file names, printable, and how many more there are."""
    shown = sorted(name if name.isprintable() else ascii(name)[1:-1] for name in names)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if shown[5:] else "")


def install_journal(
    operation: Operation,
    name: str,
    request: RewindRequest,
    now: datetime,
    checkpoint: CheckpointSnapshot | None,
    query_id: str,
    left: LogEnds,
    origin: str,
    steps: Sequence[Step],
) -> Journal:
    """Return the journal of a restore, a fork or a promotion.

    Args:
        operation: Which of them.
        name: The journal's id.
        request: What the user asked for.
        now: When.
        checkpoint: The checkpoint that is replaced; None for none.
        query_id: The query id afterwards.
        left: The newest planned and committed batch afterwards.
        origin: The location that the files are copied from.
        steps: The steps.
    """
    before = query_ids(checkpoint) if checkpoint is not None else ()
    newest = _NO_BATCHES
    if checkpoint is not None:
        require_listed(checkpoint)
        newest = LogEnds(max(checkpoint.offsets, default=-1), max(checkpoint.commits, default=-1))
    return Journal(
        id=name,
        operation=operation,
        of=None,
        request=request.words,
        reason=request.reason,
        started=now,
        batch=left.offsets + 1 if left.commits == left.offsets else left.offsets,
        same_range=False,
        newest=newest,
        left=left,
        steps=tuple(steps),
        query_ids=(*(earlier for earlier in before if earlier != query_id), query_id),
        asked=copy_identity(operation, origin),
    )


def install_plan(
    watermark_ms: int,
    install_set: InstallSet,
    context: RewindContext,
    reads: PendingReads,
    refused: Sequence[Refusal],
    notes: Sequence[str],
    journal: Journal,
) -> PlannedInstall:
    """Return a plan from its parts; notes about sources and the store are added."""
    aside = [move for move in journal.moves if move.target.startswith(f"{history.ASIDE}/")]
    return PlannedInstall(
        batch=journal.batch,
        newest=journal.newest.offsets,
        readings=reads.readings,
        watermark_ms=watermark_ms,
        install_set=install_set,
        aside=len(aside),
        aside_size=sum(move.size for move in aside),
        replay=context.replay,
        refusals=tuple(refused),
        notes=(*notes, *reads.available.notes, *refusals.simultaneous(context)),
        journal=journal,
    )
