"""What a rewind is planned from, beside the checkpoint itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from respool.checkpoint.processes import Process
from respool.checkpoint.sink import Replay
from respool.checkpoint.target import Target


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
        words: The request in the words of the command line, by which a rewind that was cut off is known again.
    """

    target: Target
    same_range: bool = False
    restore_sink: bool = False
    new_query_id: bool = False
    allow_data_loss: bool = False
    stopped: bool = False
    reason: str | None = None
    words: str = ""


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
