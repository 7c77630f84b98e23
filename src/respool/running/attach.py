"""`respool.attach`: a query that a user's own code has started gets a lease, a run record and a fingerprint."""

import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from respool.errors import PipelineError, UsageError
from respool.settings import Settings, load

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from respool.storage.lease import Lease


_LOGGER = logging.getLogger("respool")


@dataclass(frozen=True)
class Attachment:
    """A registered query. Its checkpoint is held until the query has ended, or until `close`.

    Attributes:
        name: The name under which the query is registered.
        checkpoint: Its checkpoint, a folder or URL.
        changes: What has changed since it was registered last, a sentence for each.
    """

    name: str
    checkpoint: str
    changes: tuple[str, ...]
    _lease: "Lease" = field(repr=False)

    def close(self) -> None:
        """Release the checkpoint, although the query may still run."""
        self._lease.close()

    def __enter__(self) -> "Attachment":
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Release the checkpoint."""
        self.close()


def attach(
    query: "StreamingQuery",
    *,
    name: str | None = None,
    sink: str | None = None,
    key: str | Sequence[str] = (),
    code: Callable[..., object] | Sequence[Callable[..., object]] = (),
    settings: Settings | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Attachment:
    """Register a query that was started by your own code, so that savepoints, forks, rewinds and diffs know it.

    >>> query = totals.writeStream.option("checkpointLocation", "/data/checkpoint").toTable("totals")
    >>> respool.attach(query, name="totals", key="shop")
    Attachment(name='totals', checkpoint='/data/checkpoint', changes=())

    The checkpoint is held until the query has ended: no other process can change it or run on it. It records where the
    query writes, and the code that makes it.

    Args:
        query: The running query.
        name: The name under which it is registered; by default the query's own name.
        sink: Where it writes, as the option --sink of `respool checkpoint rewind`: needed for a query with a function
            for each batch, such as `delta:PATH?txnAppId=ID`. By default as Spark reports it.
        key: The columns that identify a result, for `respool diff`.
        code: The functions that make the query; by default the function that calls this.
        settings: The settings; by default those of respool.toml and of the environment.
        on_note: Called with what has changed; by default it is logged.

    Raises:
        CheckpointError: The checkpoint is of another query, in use, or has an unfinished change. The query runs on.
        PipelineError: The query has no name, and none is given.
    """
    from pyspark.sql.streaming.query import StreamingQuery as LocalQuery

    from respool.locations import absolute
    from respool.pipeline.fingerprint import summarize_changes
    from respool.pipeline.job import JobPipeline, JobSink, sink_of
    from respool.running.claim import changed_since, checkpoint_in_use, claim
    from respool.spark.internals import running_facts, running_jvm
    from respool.storage import lease, object_store

    if not isinstance(query, LocalQuery):
        raise UsageError(
            f"attach() needs a running query with a JVM in this process; this is a {type(query).__name__}. Call it "
            "with what start() returns"
        )
    settings = object_store.use(settings if settings is not None else load())

    def note(message: str) -> None:
        _LOGGER.info("%s", message)
        if on_note is not None:
            on_note(message)

    facts = running_facts(query)
    name = name or query.name
    if not name:
        raise PipelineError("The query has no name. Give it one with queryName(…), or name= of attach().")
    if not facts.checkpoint:
        raise PipelineError(f"The query {name} has no checkpoint yet. Call attach() after start() has returned.")
    key = (key,) if isinstance(key, str) else tuple(key)
    functions = tuple(code) if isinstance(code, Sequence) else (code,)
    job = JobPipeline(
        name,
        sink=JobSink(sink, key) if sink is not None else sink_of(facts.format, facts.options, key),
        output_mode=facts.output_mode,
        code=functions or _caller(inspect.currentframe()),
    )
    checkpoint = absolute(facts.checkpoint)
    lease.register_jvm(running_jvm)
    changes = changed_since(checkpoint, job)
    held = claim(checkpoint, job, settings)
    if held is None:
        raise checkpoint_in_use(job, checkpoint)
    if held.warning:
        note(held.warning)
    held.on_lost(lambda reason: note(f"{name}: {reason}"))
    if changes:
        note(f"{name} has changed since it ran last: {summarize_changes(changes)}")
    threading.Thread(target=_release_at_end, args=(query, held), name=f"attached-{name}", daemon=True).start()
    return Attachment(name, checkpoint, tuple(changes), held)


def _release_at_end(query: "StreamingQuery", held: "Lease") -> None:
    with suppress(Exception):  # how the query ended is for whoever waits for it
        query.awaitTermination()
    held.close()


def _caller(frame: FrameType | None) -> tuple[object, ...]:
    """Return the function that called `attach`, if it is one of a module; a script's own lines are no function."""
    caller = frame.f_back if frame is not None else None
    function = caller.f_globals.get(caller.f_code.co_name) if caller is not None else None
    return (function,) if caller is not None and getattr(function, "__code__", None) is caller.f_code else ()
