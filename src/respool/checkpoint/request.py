"""What a rewind is planned from, beside the checkpoint itself."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from respool.checkpoint.processes import Process
from respool.checkpoint.sink import Replay
from respool.checkpoint.target import Last, Target, ToBatch, ToOffsets, ToTime
from respool.identity import FROM_TEXT, Identity
from respool.locations import canonical_location

if TYPE_CHECKING:
    from respool.checkpoint.steps import Journal


@dataclass(frozen=True)
class Kept:
    """What a Kafka still has, by topic and partition: the first offset that is there, and the next to be written."""

    first: Mapping[tuple[str, int], int]
    next: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class Request:
    """What the user wants.

    Attributes:
        target: Where to.
        same_range: Run the batch again on the very records that it had.
        restore_sink: Bring the sink back to where it was, too.
        new_query_id: Give the query a new id.
        allow_data_loss: Go on though records are lost to retention.
        stopped: The query has ended, though its checkpoint looks as if it ran.
        reason: Why, for the history.
        words: The request in the words of the command line, for messages.
    """

    target: Target
    same_range: bool = False
    restore_sink: bool = False
    new_query_id: bool = False
    allow_data_loss: bool = False
    stopped: bool = False
    reason: str | None = None
    words: str = ""

    def identity(self) -> Identity:
        """Return by what an interrupted rewind is recognized when the same is asked for again."""
        return rewind_identity(self.target, self.same_range, self.restore_sink, self.new_query_id)


@dataclass(frozen=True)
class World:
    """What is known beside the checkpoint's files.

    Attributes:
        now: The time.
        kept: What Kafka has; None when it could not be asked.
        replay: What the sink will do; None when it is not known.
        runs: Who runs on the checkpoint now, for people; None when nobody is known to.
        ours: Whether only respool runs it, so that `runs` is the whole truth.
        processes: Other processes of this machine that have files of the checkpoint open.
        exclusive: Whether the checkpoint's store lets exactly one of two simultaneous changes begin; None when that
            could not be determined.
    """

    now: datetime
    kept: Kept | None = None
    replay: Replay | None = None
    runs: str | None = None
    ours: bool = False
    processes: tuple[Process, ...] = ()
    exclusive: bool | None = True


def rewind_identity(target: Target, same_range: bool, restore_sink: bool, new_query_id: bool) -> Identity:
    """Return by what a rewind is recognized, however its options are spelled."""
    flags = {"same_range": same_range, "restore_sink": restore_sink, "new_query_id": new_query_id}
    return Identity("rewind", {"target": _target(target), **flags})


def copy_identity(operation: str, origin: str) -> Identity:
    """Return by what a change is recognized that copies files in: a restore, a fork or a promotion.

    Args:
        operation: Which of them.
        origin: The location of the savepoint or fork.
    """
    return Identity(operation, {"origin": canonical_location(origin)})


def _target(target: Target) -> dict[str, Any]:
    match target:
        case ToBatch(batch):
            return {"batch": batch}
        case Last(count):
            return {"last": count}
        case ToTime(time):
            return {"time": time}
        case ToOffsets(offsets):
            topics: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in offsets.items():
                topics.setdefault(topic, {})[str(partition)] = offset
            return {"offsets": topics}


def is_requested(journal: "Journal", identity: Identity, words: str) -> bool:
    """Return whether an interrupted change is the one that is asked for again.

    Args:
        journal: The change.
        identity: What is asked for.
        words: The name or path by which the user asks for it; only a journal of earlier versions of respool needs it.
    """
    if journal.asked is not None:
        return journal.asked == identity
    recorded = identity_from_words(journal.operation, journal.request)
    return recorded in (identity, Identity(identity.kind, {"words": words}, FROM_TEXT))


def identity_from_words(operation: str, words: str) -> Identity:
    """Return the identity of a request of earlier versions of respool, whose journals have only the words of commands.

    Those of a rewind are its options; those of another change name the place that it copies from, as the user did.
    """
    if operation == "rewind":
        try:
            option, value, *flags = shlex.split(words)
            return rewind_identity(
                _target_of(option, value),
                *(f"--{name}" in flags for name in ("same-range", "restore-sink", "new-query-id")),
            )
        except (ValueError, KeyError, AttributeError, TypeError):
            pass  # respool did not write these words: no request has them
    return Identity(operation, {"words": words}, FROM_TEXT)


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a JSON text such as `{"visits":{"0":120}}`, by topic and partition; ValueError if none."""
    try:
        topics = json.loads(text)
        offsets = {(str(t), int(n)): int(o) for t, parts in topics.items() for n, o in parts.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(text) from error
    if not offsets or any(number < 0 or offset < 0 for (_, number), offset in offsets.items()):
        raise ValueError(text)
    return offsets


def _target_of(option: str, value: str) -> Target:
    match option:
        case "--to-batch":
            return ToBatch(int(value))
        case "--last":
            return Last(int(value))
        case "--to-time":
            return ToTime(datetime.fromisoformat(value))
        case "--to-offsets":
            return ToOffsets(parse_offsets(value))
        case _:
            raise ValueError(option)
