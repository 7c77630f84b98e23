"""Which batches are sound: after a rewind to them, a restart has all files that it needs, undamaged."""

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from respool.checkpoint import operator_files, reachability, state_versions
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.log_scan import LogScan, SourceLogs
from respool.checkpoint.verify.state_scan import StateScan
from respool.format import layout, model
from respool.format.model import SNAPSHOTS, InclusiveRange, StateFile, StateStore, intersect


@dataclass(frozen=True)
class CheckpointScan:
    """The results of reading a whole checkpoint.

    Attributes:
        checkpoint: The checkpoint.
        logs: The content of its logs.
        state: The damage in its state files.
        sources: The logs of its file sources.
    """

    checkpoint: CheckpointSnapshot
    logs: LogScan
    state: StateScan
    sources: SourceLogs

    @cached_property
    def operators(self) -> list[int]:
        """The numbers of the stateful operators."""
        return sorted(reachability.operators_named(self.checkpoint))

    @cached_property
    def stores(self) -> dict[tuple[int, int, str], StateStore]:
        """The state stores, with the files of the checkpoint's state format only."""
        stores = {}
        for store in self.checkpoint.stores:
            own = tuple(file for file in store.files if (file.uid is not None) == self.has_ids)
            stores[store.operator, store.partition, store.name] = replace(store, files=own)
        return stores

    @cached_property
    def has_ids(self) -> bool:
        """Whether the state has unique ids: format 2."""
        if self.logs.committed:
            return self.logs.has_ids
        return any(file.uid for store in self.checkpoint.stores for file in store.files)

    @cached_property
    def unknown(self) -> str | None:
        """What respool does not support in the checkpoint, so that no batch can be called sound; None if nothing."""
        provider = self.checkpoint.unknown_provider
        if provider is not None:
            return model.unreadable_provider(provider)
        unread = [path for path, bad in self.logs.bad.items() if bad.unknown]
        unread += [flaw.path for flaw in self._flaws if flaw.unknown]
        return f"{unread[0]} has a format version that respool does not support" if unread else None

    @cached_property
    def _flaws(self) -> list[operator_files.OperatorFlaw]:
        checkpoint, operators = self.checkpoint, self.operators
        runs = [operator for operator in operators if operator_files.has_runs(checkpoint, operator)]
        flaws = (operator_files.flaw_of_run(checkpoint, operator, checkpoint.next_batch) for operator in runs)
        return [flaw for flaw in flaws if flaw is not None]

    @cached_property
    def newest_now(self) -> int:
        """The newest batch in `offsets`, listed again: a running query has continued since the first listing."""
        return max(layout.batches(self.checkpoint.files.names("offsets")), default=-1)

    def partitions(self, version: int) -> int | None:
        """Return how many partitions a version of the state has; None when the checkpoint does not record it."""
        planned = self.logs.planned.get(version - 1)
        return planned.partitions if planned else None

    def expected(self, partitions: int | None) -> list[StateStore]:
        """Return the stores that must exist; a store that is missing has no files."""
        return reachability.stores_of(self.checkpoint, self.operators, partitions, self.stores.values())

    def undamaged(self, store: StateStore) -> StateStore:
        """Return a store without its damaged files."""
        return replace(store, files=tuple(file for file in store.files if self.damage(store, file) is None))

    def damage(self, store: StateStore, file: StateFile) -> str | None:
        """Return the damage of a file of a store; None if it has no damage."""
        return self.state.damaged.get(f"{store.folder}/{file.name}")


class Soundness:
    """Which batches are sound."""

    def __init__(self, known: CheckpointScan) -> None:
        """Keep the scan; nothing is computed yet."""
        self._known = known
        self._common: dict[int | None, list[InclusiveRange]] = {}
        self._newest: dict[int, int | None] = {}

    @property
    def unknown(self) -> str | None:
        """What respool does not support in the checkpoint; None if nothing."""
        return self._known.unknown

    def newest(self, most: int | None = None) -> int | None:
        """Return the newest sound batch, at most `most` if that is given; None if only batch 0 is sound."""
        checkpoint = self._known.checkpoint
        if self.unknown is not None:
            return None
        most = checkpoint.next_batch if most is None else min(most, checkpoint.next_batch)
        if most not in self._newest:
            candidates = (batch + 1 for batch in reversed(checkpoint.offsets) if batch + 1 <= most)
            self._newest[most] = next((candidate for candidate in candidates if self.is_sound(candidate)), None)
        return self._newest[most]

    def remedy(self, most: int | None = None) -> str:
        """Return the remedy when the checkpoint cannot be used as it is."""
        root = self._known.checkpoint.root
        if self._known.unknown is not None:
            return f"Restore it from a copy. Which batch is sound is unknown: {self._known.unknown}."
        if not self._known.checkpoint.offsets:
            return "Restore the checkpoint from a copy, or start the query on an empty folder."
        batch = self.newest(most)
        if batch is None:
            over = rewind_command(root, 0)
            return f"No kept batch is sound. Restore the checkpoint from a copy, or start over with: {over}"
        return f"Rewind to batch {batch}, the newest sound batch: {rewind_command(root, batch)}"

    def is_sound(self, batch: int) -> bool:
        """Return whether a restart would have all files that it needs after a rewind to a batch."""
        known, logs = self._known, self._known.logs
        last, before = logs.planned.get(batch - 1), logs.planned.get(batch - 2)
        if last is None or (batch > 1 and before is None) or batch - 1 not in logs.committed:
            return False
        if before is not None and (last.back or (last.version == 1 and len(last.sources) != len(before.sources))):
            return False
        return (
            any(batch in span for span in self._sound_versions(last.partitions))
            and all(known.sources.wrong(source, end) is None for source, end in last.log_ends)
            and not any(self._flawed(operator, batch) for operator in known.operators)
        )

    def _flawed(self, operator: int, batch: int) -> bool:
        checkpoint = self._known.checkpoint
        if not operator_files.has_runs(checkpoint, operator):
            return False
        flaw = operator_files.flaw_of_run(checkpoint, operator, batch)
        return flaw is not None and not flaw.elsewhere

    def _sound_versions(self, partitions: int | None) -> list[InclusiveRange]:
        if partitions not in self._common:
            versions = [InclusiveRange(0, self._known.checkpoint.next_batch)]
            for store in self._known.expected(partitions):
                versions = intersect(versions, self._versions(store))
            self._common[partitions] = versions
        return self._common[partitions]

    def _versions(self, store: StateStore) -> list[InclusiveRange]:
        """Return the versions of a store that Spark can load after a rewind."""
        known = self._known
        versions = state_versions.loadable(known.checkpoint, known.undamaged(store))
        if known.logs.repairs:
            return versions  # Spark falls back to an older snapshot on its own
        kept = state_versions.committed_files(known.checkpoint, store)
        snapshots = sorted({file.version for file in kept if file.kind in SNAPSHOTS})
        for file in kept:
            path = f"{store.folder}/{file.name}"
            if file.kind in SNAPSHOTS and path in known.state.damaged and path not in known.state.movable:
                versions = intersect(versions, _all_but(file.version, _after(snapshots, file.version)))
        return versions


def users(snapshots: Sequence[int], file: StateFile) -> InclusiveRange | None:
    """Return the versions that are loaded with a file, given the versions that have a snapshot."""
    if file.kind not in SNAPSHOTS and file.version in snapshots:
        return None
    return InclusiveRange(file.version, _after(snapshots, file.version) - 1)


def clip(span: InclusiveRange | None, within: Iterable[InclusiveRange]) -> list[InclusiveRange]:
    """Return the parts of a range that lie in other ranges."""
    return intersect([span], within) if span is not None else []


def by_path(known: CheckpointScan) -> Mapping[str, tuple[StateStore, StateFile]]:
    """Return the files of all stores by their paths."""
    return {f"{store.folder}/{file.name}": (store, file) for store in known.stores.values() for file in store.files}


def _after(snapshots: Sequence[int], version: int) -> int:
    at = bisect_right(snapshots, version)
    return snapshots[at] if at < len(snapshots) else _NEVER


_NEVER = 1 << 62


def _all_but(first: int, after: int) -> list[InclusiveRange]:
    return [InclusiveRange(0, first - 1), InclusiveRange(after, _NEVER)]


def rewind_command(root: str, batch: int, *flags: str) -> str:
    """Return the command that rewinds a checkpoint."""
    return " ".join(["respool checkpoint rewind", shlex.quote(root), f"--to-batch {batch}", *flags])
