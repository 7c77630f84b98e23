"""A summary of a checkpoint, as `respool checkpoint show` prints it."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from respool.checkpoint import reachability
from respool.checkpoint.reachability import EarliestBatch
from respool.checkpoint.snapshot import CheckpointSnapshot, require_checkpoint
from respool.errors import CheckpointError
from respool.format import model, positions
from respool.format.model import InclusiveRange, OffsetLogEntry
from respool.format.positions import SourceRange

# Settings that a restarted query takes from its checkpoint, by a short name.
_SETTINGS = {
    "state store": "spark.sql.streaming.stateStore.providerClass",
    "shuffle partitions": "spark.sql.shuffle.partitions",
    "state compression": "spark.sql.streaming.stateStore.compression.codec",
    "RocksDB format": "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "state encoding": "spark.sql.streaming.stateStore.encodingFormat",
    "aggregation state format": "spark.sql.streaming.aggregation.stateFormatVersion",
    "join state format": "spark.sql.streaming.join.stateFormatVersion",
    "watermark policy": "spark.sql.streaming.multipleWatermarkPolicy",
}


@dataclass(frozen=True)
class BatchFacts:
    """One batch.

    Attributes:
        batch: Its id.
        planned_ms: When it was planned; None when its file is damaged.
        watermark_ms: The watermark at which it ran; 0 for no watermark.
        readings: What it read, by source.
        committed: Whether it is committed.
        problem: Why its files cannot be read; None if they can.
    """

    batch: int
    planned_ms: int | None
    watermark_ms: int | None
    readings: tuple[SourceRange, ...]
    committed: bool
    problem: str | None


@dataclass(frozen=True)
class OperatorFacts:
    """One stateful operator.

    Attributes:
        operator: Its number.
        stores: The names of its stores.
        partitions: How many partitions it has.
        versions: The oldest and the newest version of its files; None when it has no files.
        unique_ids: Whether it uses state format 2.
        kinds: The number of files of each kind, including SST files.
        size: Their size in bytes.
    """

    operator: int
    stores: tuple[str, ...]
    partitions: int
    versions: InclusiveRange | None
    unique_ids: bool
    kinds: Mapping[str, int]
    size: int


@dataclass(frozen=True)
class CheckpointSummary:
    """A checkpoint.

    >>> summary = checkpoint.summary()
    >>> summary.kept, summary.next_batch, len(summary.operators)
    (14, 14, 1)

    Attributes:
        root: Its folder or URL.
        query_id: The query's id; None when it is lost.
        settings: Spark's settings that are fixed in it.
        kept: How many batches are kept in `offsets`.
        oldest: The oldest of these batches.
        newest: The newest of these batches; -1 when `offsets` is empty.
        next_batch: The batch that a restarted query runs first.
        batches: The newest batches, the oldest of them first.
        operators: The stateful operators.
        reachable: The batches that can be rewound to.
        earliest: The earliest of these batches, and why no earlier batch can.
        earliest_same_range: The same for a batch that runs again on the same records.
        untested: A warning when a Spark version wrote it that respool is not tested with; None otherwise.
    """

    root: str
    query_id: str | None
    settings: Mapping[str, str]
    kept: int
    oldest: int
    newest: int
    next_batch: int
    batches: tuple[BatchFacts, ...]
    operators: tuple[OperatorFacts, ...]
    reachable: tuple[InclusiveRange, ...]
    earliest: EarliestBatch
    earliest_same_range: EarliestBatch
    untested: str | None

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"CheckpointSummary({self.root!r}, kept={self.kept}, next_batch={self.next_batch})"


def summarize(checkpoint: CheckpointSnapshot, newest: int | None = 100) -> CheckpointSummary:
    """Return a summary of a checkpoint with its newest batches, or with all batches if `newest` is None."""
    require_checkpoint(checkpoint)
    shown = checkpoint.offsets if newest is None else checkpoint.offsets[-newest:]
    before = [batch - 1 for batch in shown[:1] if checkpoint.has("offsets", batch - 1)]
    checkpoint.read_ahead([f"offsets/{batch}" for batch in (*before, *shown)])
    query_id = None
    with suppress(CheckpointError):
        query_id = checkpoint.query_id
    return CheckpointSummary(
        root=checkpoint.root,
        query_id=query_id,
        settings=_settings(checkpoint),
        kept=len(checkpoint.offsets),
        oldest=checkpoint.offsets[0] if checkpoint.offsets else -1,
        newest=checkpoint.offsets[-1] if checkpoint.offsets else -1,
        next_batch=checkpoint.next_batch,
        batches=tuple(_batch(checkpoint, batch) for batch in shown),
        operators=tuple(_operators(checkpoint)),
        reachable=tuple(reachability.reachable(checkpoint)),
        earliest=reachability.earliest(checkpoint),
        earliest_same_range=reachability.earliest(checkpoint, same_range=True),
        untested=_untested(checkpoint),
    )


def _untested(checkpoint: CheckpointSnapshot) -> str | None:
    try:
        return model.writer_of(checkpoint.newest_planned()).warning
    except CheckpointError:
        return None


def _settings(checkpoint: CheckpointSnapshot) -> dict[str, str]:
    try:
        conf = checkpoint.planned(checkpoint.offsets[-1]).conf if checkpoint.offsets else {}
    except CheckpointError:
        return {}
    return {name: conf[key].rpartition(".")[2] for name, key in _SETTINGS.items() if key in conf}


def _batch(checkpoint: CheckpointSnapshot, batch: int) -> BatchFacts:
    committed = checkpoint.has("commits", batch) or batch < max(checkpoint.commits, default=-1)
    try:
        entry = checkpoint.planned(batch)
    except CheckpointError as error:
        return BatchFacts(batch, None, None, (), committed, str(error))
    readings = tuple(
        positions.reading(
            source.source, start, source.end, reachability.source_kind(checkpoint, source.source, source.end)
        )
        for source, start in zip(entry.sources, _starts(checkpoint, batch, entry), strict=True)
    )
    return BatchFacts(batch, entry.timestamp_ms, entry.watermark_ms, readings, committed, None)


def _starts(checkpoint: CheckpointSnapshot, batch: int, entry: OffsetLogEntry) -> list[object]:
    """Return the start position of each source of a batch: the end position of the previous batch."""
    if batch == 0:
        return [reachability.initial_position(checkpoint, source.source) for source in entry.sources]
    try:
        before = checkpoint.planned(batch - 1)
    except CheckpointError:
        return [positions.UNKNOWN for _ in entry.sources]
    return [before.end(source.source) for source in entry.sources]


def _operators(checkpoint: CheckpointSnapshot) -> list[OperatorFacts]:
    facts_by_operator = []
    for number in sorted({store.operator for store in checkpoint.stores}):
        stores = [store for store in checkpoint.stores if store.operator == number]
        files = [(f"{store.folder}/{file.name}", file) for store in stores for file in store.files]
        tables = [f"{store.folder}/SSTs/{name}" for store in stores for name in store.tables if name.endswith(".sst")]
        kinds = Counter(file.kind for _, file in files) + Counter({"sst": len(tables)})
        facts = checkpoint.files.facts([*(path for path, _ in files), *tables])
        versions = [file.version for _, file in files]
        facts_by_operator.append(
            OperatorFacts(
                operator=number,
                stores=tuple(dict.fromkeys(store.name for store in stores)),
                partitions=len({store.partition for store in stores}),
                versions=InclusiveRange(min(versions), max(versions)) if versions else None,
                unique_ids=any(file.uid for _, file in files),
                kinds=dict(kinds),
                size=sum(info.size for info in facts.values()),
            )
        )
    return facts_by_operator
