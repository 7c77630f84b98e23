"""The inputs of a rewind plan other than the checkpoint itself."""

import json
import shlex
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, UsageError
from respool.identity import FROM_TEXT, Identity
from respool.locations import canonical_location
from respool.sinks.address import ReplayOutcome
from respool.storage.local_lock import Process
from respool.untrusted import Fields, decimal, parse_json

if TYPE_CHECKING:
    from respool.checkpoint.journal.steps import Journal


@dataclass(frozen=True)
class ToBatch:
    """Rewind to this batch."""

    batch: int


@dataclass(frozen=True)
class ToTime:
    """Rewind to the first batch planned at this time or after it."""

    time: datetime


@dataclass(frozen=True)
class ToOffsets:
    """Rewind to the first batch that read at or beyond any of these offsets, by topic and partition."""

    offsets: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class LastBatches:
    """Rewind so that this many of the newest batches run again."""

    count: int


RewindTarget = ToBatch | ToTime | ToOffsets | LastBatches
Offsets = Mapping[str, Mapping[int, int]]


def target_of(
    to_batch: int | None, to_time: datetime | None, to_offsets: Offsets | None, last: int | None
) -> tuple[RewindTarget, str]:
    """Return where a rewind goes, and the options of `respool checkpoint rewind` for that.

    Raises:
        UsageError: Not exactly one target is named, or it is not valid.
    """
    if len([value for value in (to_batch, to_time, to_offsets, last) if value is not None]) != 1:
        raise UsageError("name exactly one of to_batch, to_time, to_offsets and last")
    if to_batch is not None:
        return ToBatch(to_batch), f"--to-batch {to_batch}"
    if last is not None:
        return LastBatches(last), f"--last {last}"
    if to_time is not None:
        if to_time.tzinfo is None:
            raise UsageError(f"to_time {to_time.isoformat()}: expected a time with a time zone")
        return ToTime(to_time), f"--to-time {to_time.astimezone(timezone.utc).isoformat()}"
    assert to_offsets is not None
    offsets = {
        (topic, partition): offset
        for topic, partitions in to_offsets.items()
        for partition, offset in partitions.items()
    }
    if not offsets or any(partition < 0 or offset < 0 for (_, partition), offset in offsets.items()):
        raise UsageError(f"to_offsets {to_offsets}: expected offsets such as {{'visits': {{0: 120, 1: 95}}}}")
    plain = {topic: {str(number): offset for number, offset in parts.items()} for topic, parts in to_offsets.items()}
    return ToOffsets(offsets), f"--to-offsets '{json.dumps(plain, separators=(',', ':'))}'"


def resolve(checkpoint: CheckpointSnapshot, target: RewindTarget) -> int:
    """Return the batch that a target selects; raise CheckpointError when no batch matches."""
    offsets = checkpoint.offsets
    if not offsets:
        raise CheckpointError(f"The checkpoint {checkpoint.root} has planned no batch yet: there is nothing to rewind.")
    match target:
        case ToBatch(batch):
            return _kept(checkpoint, batch)
        case LastBatches(count):
            if not 0 < count <= offsets[-1] + 1:
                raise CheckpointError(f"--last {count}: expected 1 to {offsets[-1] + 1}, as many batches as there are.")
            return offsets[-1] + 1 - count
        case ToTime(time):
            wanted = time.timestamp() * 1000
            first = _first(offsets, lambda batch: checkpoint.planned(batch).timestamp_ms >= wanted)
            if first is None:
                newest = _time(checkpoint, offsets[-1])
                raise CheckpointError(
                    f"No batch was planned at or after {_text(time)}. The newest batch was planned at {newest}."
                )
            return first
        case ToOffsets(wanted_offsets):
            return _by_offsets(checkpoint, wanted_offsets)


def _kept(checkpoint: CheckpointSnapshot, batch: int) -> int:
    newest = checkpoint.offsets[-1]
    if batch < 0 or batch > newest + 1:
        raise CheckpointError(f"There is no batch {batch}: the newest is {newest}. See: respool checkpoint show.")
    return batch


def _by_offsets(checkpoint: CheckpointSnapshot, wanted: Mapping[tuple[str, int], int]) -> int:
    newest = checkpoint.planned(checkpoint.offsets[-1])
    known = newest.kafka_ends()
    strange = sorted(set(wanted) - set(known))
    if strange:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(known)) or "no Kafka topic"
        raise CheckpointError(f"The query does not read {strange[0][0]}-{strange[0][1]}; it reads {names}.")

    def read_any(batch: int) -> bool:
        ends = checkpoint.kafka_ends(batch)
        return any(ends.get(part, 0) > offset for part, offset in wanted.items())

    batch = _first(checkpoint.offsets, read_any)
    if batch is None:
        raise CheckpointError(
            f"No batch has read as far as these offsets; batch {checkpoint.offsets[-1]} ends at "
            f"{', '.join(f'{topic}-{number}: {end}' for (topic, number), end in known.items())}."
        )
    return batch


def _first(batches: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """Return the first batch for which a monotonic condition holds; few batches are read."""
    at = bisect_left(batches, True, key=holds)
    return batches[at] if at < len(batches) else None


def _time(checkpoint: CheckpointSnapshot, batch: int) -> str:
    ms = checkpoint.planned(batch).timestamp_ms
    try:
        return _text(datetime.fromtimestamp(ms / 1000, timezone.utc))
    except (ValueError, OverflowError):
        return f"{ms} ms since 1970"


def _text(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class KafkaRetention:
    """What Kafka still has, by topic and partition: the first available offset, and the next offset to be written."""

    first: Mapping[tuple[str, int], int]
    next: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class RewindRequest:
    """A request to rewind a checkpoint.

    Attributes:
        target: The batch to rewind to, or how to find it.
        same_range: Run the batch again on the same records.
        restore_sink: Restore the sink, too.
        new_query_id: Give the query a new id.
        allow_data_loss: Continue although records were deleted by retention.
        stopped: The user confirms that the query has ended, whatever its checkpoint suggests.
        reason: The reason, for the history.
        words: The request as command-line text, for messages.
    """

    target: RewindTarget
    same_range: bool = False
    restore_sink: bool = False
    new_query_id: bool = False
    allow_data_loss: bool = False
    stopped: bool = False
    reason: str | None = None
    words: str = ""

    def identity(self) -> Identity:
        """Return the identity that recognizes an interrupted rewind when it is requested again."""
        return rewind_identity(self.target, self.same_range, self.restore_sink, self.new_query_id)


@dataclass(frozen=True)
class RewindContext:
    """What a plan depends on other than the checkpoint's files.

    Attributes:
        now: The time.
        kept: The offsets that Kafka has; None when no broker could be asked.
        replay: What the sink will do with replayed batches; None when it is unknown.
        runs: Who runs on the checkpoint now, as text; None when no such process is known.
        ours: Whether only respool runs it, so that `runs` is authoritative.
        processes: Other processes of this machine that have files of the checkpoint open.
        exclusive: Whether the checkpoint's store lets exactly one of two simultaneous changes begin; None when that
            could not be determined.
    """

    now: datetime
    kept: KafkaRetention | None = None
    replay: ReplayOutcome | None = None
    runs: str | None = None
    ours: bool = False
    processes: tuple[Process, ...] = ()
    exclusive: bool | None = True


def rewind_identity(target: RewindTarget, same_range: bool, restore_sink: bool, new_query_id: bool) -> Identity:
    """Return the identity of a rewind, independent of how its options are spelled."""
    flags = {"same_range": same_range, "restore_sink": restore_sink, "new_query_id": new_query_id}
    return Identity("rewind", {"target": _target(target), **flags})


def copy_identity(operation: str, origin: str) -> Identity:
    """Return the identity of a change that copies files in: a restore, a fork or a promotion.

    Args:
        operation: The kind of change.
        origin: The location of the savepoint or fork.
    """
    return Identity(operation, {"origin": canonical_location(origin)})


def _target(target: RewindTarget) -> dict[str, Any]:
    match target:
        case ToBatch(batch):
            return {"batch": batch}
        case LastBatches(count):
            return {"last": count}
        case ToTime(time):
            return {"time": time}
        case ToOffsets(offsets):
            topics: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in offsets.items():
                topics.setdefault(topic, {})[str(partition)] = offset
            return {"offsets": topics}


def is_requested(journal: "Journal", identity: Identity, words: str) -> bool:
    """Return whether an interrupted change is the requested change.

    Args:
        journal: The change.
        identity: The identity of the request.
        words: The name or path in the request; only needed for journals of earlier versions of respool.
    """
    if journal.asked is not None:
        return journal.asked.is_same(identity)
    recorded = identity_from_words(journal.operation, journal.request)
    return recorded in (identity, Identity(identity.kind, {"words": words}, FROM_TEXT))


def identity_from_words(operation: str, words: str) -> Identity:
    """Return the identity of a request of earlier versions of respool, whose journals only have command-line text.

    For a rewind the text is its options; for another change the location it copies from, as the user wrote it.
    """
    if operation == "rewind":
        try:
            option, value, *flags = shlex.split(words)
            return rewind_identity(
                _target_of(option, value),
                *(f"--{name}" in flags for name in ("same-range", "restore-sink", "new-query-id")),
            )
        except (ValueError, KeyError, AttributeError, TypeError):
            pass  # respool did not write this text: no request matches it
    return Identity(operation, {"words": words}, FROM_TEXT)


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition from JSON such as `{"visits":{"0":120}}`; raise ValueError for others."""
    topics = Fields(parse_json(text))
    offsets = {
        (topic, decimal(partition, "a partition")): offset
        for topic in topics.names()
        for partition, offset in topics.whole_by_name(topic).items()
    }
    if not offsets:
        raise ValueError(text)
    return offsets


def _target_of(option: str, value: str) -> RewindTarget:
    match option:
        case "--to-batch":
            return ToBatch(int(value))
        case "--last":
            return LastBatches(int(value))
        case "--to-time":
            return ToTime(datetime.fromisoformat(value))
        case "--to-offsets":
            return ToOffsets(parse_offsets(value))
        case _:
            raise ValueError(option)
