"""Which batches can be rewound to."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from respool.checkpoint import state_versions
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.state_versions import StateLoad
from respool.errors import BatchUnavailableError, CheckpointError
from respool.format import layout, logs, model
from respool.format.model import InclusiveRange, StateStore, intersect, spans, spans_text
from respool.format.positions import SourceKind, kind_of

_MOST_LOADS = 2_000  # pairs of a batch and a store whose files are read for a message


@dataclass(frozen=True)
class EarliestBatch:
    """The earliest batch that can be rewound to.

    Attributes:
        batch: The batch; None when no batch can be rewound to.
        why: Why no earlier batch can.
        unknown: Whether respool cannot read the state: then no batch is recommended.
    """

    batch: int | None
    why: str
    unknown: bool = False


def why_unreachable(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> str | None:
    """Return why Spark could not start at a batch after a rewind; None if it could."""
    return log_obstacle(checkpoint, batch, same_range) or _state_obstacle(checkpoint, batch)


def log_obstacle(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> str | None:
    """Return which log file is missing or damaged for a start at a batch; None if none is."""
    missing = _missing_log(checkpoint, batch, same_range)
    if missing is not None:
        return f"{missing} is not kept"
    try:
        for folder, number in _needed_logs(checkpoint, batch, same_range):
            (checkpoint.planned if folder == "offsets" else checkpoint.committed)(number)
        # Spark 4.2.0 omits the number in the first run of a query with offsets of version 2, but needs it here.
        if same_range and checkpoint.planned(batch).version > 1 and checkpoint.partitions(batch) is None:
            return f"offsets/{batch} lacks the number of partitions, without which Spark cannot run it as it was"
    except CheckpointError as error:
        return error.summary
    return None


def state_loads(checkpoint: CheckpointSnapshot, version: int) -> tuple[list[StateLoad], dict[str, str]]:
    """Return the files from which a version of the state is loaded, by store, and the snapshots that must not be used.

    A damaged snapshot is not needed when an older snapshot and all increments since then exist. Raise CheckpointError
    when the version cannot be loaded.
    """
    if version == 0:
        return [], {}
    if checkpoint.unknown_provider is not None:
        raise BatchUnavailableError(model.unreadable_provider(checkpoint.unknown_provider))
    stores = expected_stores(checkpoint, version)
    bad: dict[str, str] = {}
    while True:
        loads = [state_versions.load_of(checkpoint, _without(store, bad), version) for store in stores]
        worse = state_versions.damaged_snapshots(checkpoint, loads)
        if not worse:
            return loads, bad
        bad |= worse
        for store in stores:
            try:
                state_versions.load_of(checkpoint, _without(store, bad), version)
            except CheckpointError as error:
                path = next(path for path in bad if path.startswith(f"{store.folder}/"))
                raise BatchUnavailableError(f"{bad[path]}. {error.summary}") from error


def reachable(checkpoint: CheckpointSnapshot, same_range: bool = False) -> list[InclusiveRange]:
    """Return the batches that can be rewound to, judged by file names alone: no content is read."""
    if not checkpoint.offsets or checkpoint.unknown_provider is not None:
        return []
    last = checkpoint.offsets[-1]
    kept = (_candidates(checkpoint, span, last) for span in _loadable_everywhere(checkpoint))
    return spans(
        [batch for batches in kept for batch in batches if _missing_log(checkpoint, batch, same_range) is None]
    )


def reachable_text(checkpoint: CheckpointSnapshot, same_range: bool = False, shift: int = 0) -> str:
    """Return the batches that can be rewound to as text, such as "3, 5 to 12"; empty when there are no such batches.

    Args:
        checkpoint: The checkpoint.
        same_range: Whether a batch is to run on the records that it had.
        shift: The number to add to each batch; numbers below 0 are omitted.
    """
    candidates = [batch for span in reachable(checkpoint, same_range) for batch in range(span.first, span.last + 1)]
    checkpoint.read_ahead(
        dict.fromkeys(f"{f}/{n}" for b in candidates for f, n in _needed_logs(checkpoint, b, same_range))
    )
    # A list in a message must not take minutes: state files are read only when there are few of them.
    reads_state = len(candidates) * len(checkpoint.stores) <= _MOST_LOADS
    why = why_unreachable if reads_state else log_obstacle
    shown = spans(
        [batch + shift for batch in candidates if batch + shift >= 0 and not why(checkpoint, batch, same_range)]
    )
    text = spans_text(shown)
    return f"{text} (as far as can be seen without reading all state files)" if text and not reads_state else text


def earliest(checkpoint: CheckpointSnapshot, same_range: bool = False) -> EarliestBatch:
    """Return the earliest batch that can be rewound to, judged by the logs and the names of the state files."""
    if not checkpoint.offsets:
        return EarliestBatch(None, "no batch was planned yet")
    if checkpoint.unknown_provider is not None:
        return EarliestBatch(None, model.unreadable_provider(checkpoint.unknown_provider), unknown=True)
    last = checkpoint.offsets[-1] + (0 if same_range else 1)
    for span in _loadable_everywhere(checkpoint):
        for batch in _candidates(checkpoint, span, last):
            if why_unreachable(checkpoint, batch, same_range) is None:
                if batch == 0:
                    return EarliestBatch(0, "it is the first batch")
                why = why_unreachable(checkpoint, batch - 1, same_range) or "no earlier batch is kept"
                return EarliestBatch(batch, f"batch {batch - 1} cannot: {why}")
    return EarliestBatch(None, why_unreachable(checkpoint, last, same_range) or "no batch can be loaded")


def _candidates(checkpoint: CheckpointSnapshot, span: InclusiveRange, last: int) -> list[int]:
    """Return the batches of a range that are planned or follow a planned batch: no other can be rewound to."""
    kept = checkpoint.offsets
    at, end = bisect_left(kept, span.first - 1), bisect_left(kept, min(span.last, last) + 1)
    near = {batch for planned in kept[at:end] for batch in (planned, planned + 1)}
    return sorted(batch for batch in near if max(span.first, kept[0]) <= batch <= min(span.last, last))


def expected_stores(checkpoint: CheckpointSnapshot, version: int) -> list[StateStore]:
    """Return the stores that a version of the state must have; a store that is missing has no files."""
    operators = {store.operator for store in checkpoint.stores} | operators_named(checkpoint)
    return stores_of(checkpoint, operators, checkpoint.partitions(version - 1), checkpoint.stores)


def stores_of(
    checkpoint: CheckpointSnapshot, operators: Iterable[int], partitions: int | None, existing: Iterable[StateStore]
) -> list[StateStore]:
    """Return the stores that operators must have with a number of partitions; a store that is missing has no files.

    Args:
        checkpoint: The checkpoint.
        operators: The numbers of the operators.
        partitions: The query's number of partitions; None when it is unknown.
        existing: The stores that exist.
    """
    by_place = {(store.operator, store.partition, store.name): store for store in existing}
    stores = []
    for operator in sorted(operators):
        for partition in range(checkpoint.partitions_of(operator, partitions)):
            for name in checkpoint.store_names(operator) or ("default",):
                empty = StateStore(operator, partition, name, layout.store_folder(operator, partition, name), ())
                stores.append(by_place.get((operator, partition, name), empty))
    return stores


def initial_position(checkpoint: CheckpointSnapshot, source: str) -> Any:
    """Return the position at which a Kafka source began; None for a source that does not record it."""
    path = f"sources/{source}/0"
    if "0" not in checkpoint.folders.get(f"sources/{source}", ()):
        return None
    data = checkpoint.files.read(path)
    return logs.initial_offsets(path, data) if data.startswith(b"\0") else None


def source_kind(checkpoint: CheckpointSnapshot, source: str, position: Any) -> SourceKind:
    """Return the kind of a source, from its position and from its files in the checkpoint.

    Spark's rate source keeps its start time in `sources/<source>/0`. Memory and socket sources keep no file: their
    positions are bare numbers, like those of some custom sources.
    """
    kind = kind_of(position)
    if kind != "number" or "0" not in checkpoint.folders.get(f"sources/{source}", ()):
        return kind
    try:
        text = checkpoint.files.read(f"sources/{source}/0")[:100]
    except (OSError, CheckpointError):
        return kind
    return "rate" if re.fullmatch(rb"v1\n\d+\s*", text) else kind


def operators_named(checkpoint: CheckpointSnapshot) -> set[int]:
    """Return the stateful operators that have a folder, whether or not it holds a store."""
    parts = (folder.split("/") for folder in checkpoint.folders if folder.startswith("state/"))
    return {number for part in parts if (number := layout.operator(part[1])) is not None}


def _needed_logs(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> list[tuple[str, int]]:
    if batch == 0 and not same_range:
        return []
    wanted = [batch - 1, batch] if same_range else [batch - 2, batch - 1]
    needed = [("offsets", number) for number in wanted if number >= 0]
    # Without a commit before it, Spark runs the newest planned batch as it was; only unique ids need the commit.
    if batch > 0 and (not same_range or _has_ids(checkpoint)):
        needed.append(("commits", batch - 1))
    return needed


def _missing_log(checkpoint: CheckpointSnapshot, batch: int, same_range: bool) -> str | None:
    missing = (log for log in _needed_logs(checkpoint, batch, same_range) if not checkpoint.has(*log))
    return next((f"{folder}/{number}" for folder, number in missing), None)


def _state_obstacle(checkpoint: CheckpointSnapshot, batch: int) -> str | None:
    try:
        state_loads(checkpoint, batch)
    except CheckpointError as error:
        return error.summary
    return None


def _loadable_everywhere(checkpoint: CheckpointSnapshot) -> list[InclusiveRange]:
    """Return the versions that every existing store can load, judged by file names."""
    common = [InclusiveRange(0, checkpoint.offsets[-1] + 1)]
    for store in checkpoint.stores:
        common = intersect(common, state_versions.loadable(checkpoint, store))
    return common


def _without(store: StateStore, bad: Mapping[str, str]) -> StateStore:
    if not any(path.startswith(f"{store.folder}/") for path in bad):
        return store
    return replace(store, files=tuple(file for file in store.files if f"{store.folder}/{file.name}" not in bad))


def _has_ids(checkpoint: CheckpointSnapshot) -> bool:
    return any(file.uid for store in checkpoint.stores[:1] for file in store.files[-1:])
