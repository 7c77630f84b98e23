"""One of two processes that create the same file: `python -m support.contender`.

Each line of stdin names a kind of file, a URL, and whether to skip the look at what exists; each answer is "won" or
"lost". What was won is kept until the next line.
"""

import os
import sys
from contextlib import ExitStack
from datetime import datetime, timezone

from respool.checkpoint.journal import apply
from respool.checkpoint.journal.steps import Journal, LogEnds
from respool.errors import CheckpointError
from respool.savepoint.manifest import SavepointManifest
from respool.savepoint.store import SavepointStore, new_folder
from respool.sinks.registry import SinkPosition
from respool.storage import lease
from respool.storage.remote import RemoteWriter

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ME = f"process-{os.getpid()}"
JOURNAL = Journal(
    id=ME,
    operation="rewind",
    of=None,
    request="",
    reason=None,
    started=NOW,
    batch=4,
    same_range=False,
    newest=LogEnds(4, 4),
    left=LogEnds(3, 3),
    steps=(),
)
_is_file = RemoteWriter._is_file


def create(kind: str, where: str) -> None:
    """Create a file; raise CheckpointError when another process has."""
    if kind == "fence":
        apply._fence(JOURNAL, RemoteWriter(where))
    elif kind == "journal":
        apply.begin(JOURNAL, RemoteWriter(where))
    elif kind == "manifest":
        SavepointStore(where).add(_manifest())
    else:
        held = lease.hold(where)
        if held is None:
            raise CheckpointError("It is held.")
        assert held.warning is None, held.warning
        kept.enter_context(held)


def _manifest() -> SavepointManifest:
    return SavepointManifest(
        name="one",
        created=NOW,
        reason=ME,
        data=new_folder(),
        checkpoint="s3://plain/checkpoint",
        query_id="an-id",
        batch=4,
        planned_ms=0,
        watermark_ms=0,
        sources=(),
        conf={},
        operators=0,
        files=(),
        sink=SinkPosition("unknown"),
        run=None,
        spark=None,
        respool="1",
    )


if __name__ == "__main__":
    kept = ExitStack()
    RemoteWriter("s3://plain/warm-up").exclusive()
    print("ready", flush=True)
    for line in sys.stdin:
        kept.close()
        kind, where, blind = line.split()
        RemoteWriter._is_file = (lambda self, path: False) if blind == "blind" else _is_file  # type: ignore[method-assign]
        try:
            create(kind, where)
            print("won", flush=True)
        except CheckpointError as error:
            print("lost:", " ".join(str(error).split()), flush=True)
    kept.close()
