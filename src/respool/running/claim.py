"""Claim a checkpoint for a pipeline before it runs there."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from respool._version import __version__
from respool.checkpoint.journal import history
from respool.checkpoint.ownership import RUN, RunRecord, fork_of, promotion_of, read_run_record
from respool.errors import CheckpointError, CheckpointInUseError, StoreError, UnfinishedChangeError
from respool.format import layout, logs
from respool.locations import OWN, local_path
from respool.pipeline.fingerprint import changed
from respool.sinks import protocol
from respool.sinks.protocol import ReadableSink, RecordingSink, SinkOutput
from respool.spark import installed
from respool.storage import lease
from respool.storage.folder import FolderReader, FolderWriter
from respool.storage.lease import JVM_PATIENCE, Lease
from respool.storage.local import LocalWriter
from respool.storage.open import open_writer

if TYPE_CHECKING:
    from respool.pipeline.definition import Pipeline
    from respool.running.options import RunOptions
    from respool.settings import Settings


def claim(
    checkpoint: str, pipeline: "Pipeline", settings: "Settings | None" = None, held: Lease | None = None
) -> Lease | None:
    """Hold a checkpoint for a pipeline; None when another process holds it now.

    With settings, run.json also records where its results can be read. `held` is the lease of a
    checkpoint that this process holds already.

    Raises CheckpointError when the checkpoint belongs to another pipeline, or when a change of it was interrupted.
    """
    check(checkpoint, pipeline)
    held = held or lease.hold(checkpoint)
    if held is None or held.warning is not None:
        return held
    try:
        _record(_files(checkpoint), pipeline, settings)
    except BaseException:
        held.close()
        raise
    return held


@contextmanager
def holding(pipelines: "Sequence[Pipeline]", options: "RunOptions", settings: "Settings") -> Iterator[dict[str, Lease]]:
    """Hold the checkpoints of pipelines for the length of a `with` block; return the leases, by checkpoint.

    They are held before Spark starts: a checkpoint in use is refused without that wait, and none is free before the
    JVM ends.

    Raises:
        CheckpointError: Another process holds one of them.
    """
    with ExitStack() as stack:
        held: dict[str, Lease] = {}
        new: list[Path] = []  # folders that a run makes, the outermost first
        try:
            for pipeline in pipelines:
                checkpoint = options.checkpoint_of(pipeline, settings)
                new += _missing(checkpoint)
                acquired = lease.hold(checkpoint, JVM_PATIENCE)
                if acquired is None:
                    raise checkpoint_in_use(pipeline, checkpoint)
                held[checkpoint] = stack.enter_context(acquired)
            yield held
        except BaseException:
            _remove_unused(new)
            raise


def checkpoint_in_use(pipeline: "Pipeline", checkpoint: str) -> CheckpointInUseError:
    """Return the error of a pipeline whose checkpoint another process holds."""
    remedy = f"Stop that run of the pipeline {pipeline.name} first, or name another folder with --checkpoint."
    return CheckpointInUseError(checkpoint, lease.holder(checkpoint), remedy)


def _missing(checkpoint: str) -> list[Path]:
    """Return the folders on the way to a local checkpoint that do not exist yet, the outermost first."""
    folder = local_path(checkpoint)
    if folder is None:
        return []
    return [above for above in (*reversed(folder.parents), folder) if not above.exists()]


def _remove_unused(folders: Sequence[Path]) -> None:
    """Delete folders that hold nothing but a lock: a run that could not start leaves no checkpoint behind."""
    for folder in reversed(folders):
        own = folder / OWN
        with suppress(OSError):
            if os.listdir(folder) == [OWN] and os.listdir(own) == ["lock"]:
                (own / "lock").unlink()
                own.rmdir()
            folder.rmdir()


def check(checkpoint: str, pipeline: "Pipeline") -> None:
    """Raise CheckpointError when a pipeline must not run on a checkpoint; nothing is changed."""
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        if folder.exists():
            raise CheckpointError(
                f"The checkpoint {folder} is a file; expected a folder. Name another with --checkpoint."
            )
        return
    try:
        files = _files(checkpoint)
        run = read_run_record(files)
        unfinished = history.pending(files)
        topics = _topics(files) if run is None else None
        fork, promoted = fork_of(files), promotion_of(files)
    except CheckpointError as error:
        if folder is not None or isinstance(error, StoreError):
            raise
        return  # Spark may reach a store that this process cannot
    if unfinished is not None:
        raise UnfinishedChangeError(checkpoint, unfinished)
    if promoted is not None:
        raise CheckpointError(
            f"The fork {checkpoint} was promoted: its query continues in {promoted.checkpoint}. Run it there, or undo "
            f"the promotion with: respool checkpoint undo {promoted.checkpoint}."
        )
    taken = fork.sink_identity if fork is not None else None
    if fork is not None and taken is not None and protocol.overlap(taken, protocol.identity_of(pipeline.sink)):
        raise CheckpointError(
            f"The checkpoint {checkpoint} is a fork of {fork.checkpoint}, which writes to the {fork.sink}; both would "
            "write there. Let the fork write to a separate place, such as with --sink-suffix -v2, or make it the "
            f"pipeline's checkpoint: respool promote {checkpoint} {fork.checkpoint}."
        )
    _require_same(checkpoint, pipeline, run, topics)


def _require_same(checkpoint: str, pipeline: "Pipeline", run: RunRecord | None, topics: set[str] | None) -> None:
    """Raise CheckpointError when a checkpoint belongs to another pipeline, as far as its files show."""
    way_out = "Run that pipeline, or name another folder with --checkpoint."
    if run is not None and (run.pipeline, run.topic) != (pipeline.name, pipeline.reads):
        raise CheckpointError(
            f"The checkpoint {checkpoint} belongs to the pipeline {run.pipeline}, which reads {run.topic}; "
            f"expected {pipeline.name}, which reads {pipeline.reads}. {way_out}"
        )
    for name, value in (run.fixed if run is not None else {}).items():
        if pipeline.fixed.get(name) != value:
            raise CheckpointError(
                f"The checkpoint {checkpoint} was created with {name}={value}, which cannot change; found "
                f"{name}={pipeline.fixed.get(name, 'none')}. Run with --set {name}={value}, or name another folder "
                "with --checkpoint."
            )
    if topics is not None and not pipeline.may_read(topics):
        raise CheckpointError(
            f"The checkpoint {checkpoint} is of a query that reads {', '.join(sorted(topics)) or 'no Kafka topic'}; "
            f"the pipeline {pipeline.name} reads {pipeline.reads}. {way_out}"
        )


def run_record(pipeline: "Pipeline", settings: "Settings | None" = None) -> RunRecord:
    """Return what run.json records of a pipeline, without its fingerprint.

    Args:
        pipeline: The pipeline.
        settings: Where the sink's tables are; None to leave out where results can be read.
    """
    results, sink = pipeline.results, pipeline.sink
    output = sink.output(settings) if settings is not None and isinstance(sink, ReadableSink) else SinkOutput("")
    return RunRecord(
        pipeline=pipeline.name,
        topic=pipeline.reads,
        sink=sink.describe(),
        on_replay=sink.replay_note(),
        timezone=pipeline.timezone,
        results=results.describe() if results is not None else "",
        output=output.address,
        output_key=output.key,
        spark=installed.version(),
        fixed=pipeline.fixed,
        sink_identity=protocol.identity_of(sink),
        results_identity=results.identity() if results is not None else None,
        recorded_at=sink.recorded_at(settings) if settings is not None and isinstance(sink, RecordingSink) else (),
    )


def newest_change(checkpoint: str) -> str:
    """Return the id of the newest change of a checkpoint; empty without a change, or when it cannot be read."""
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return ""
    try:
        return history.newest_change(_files(checkpoint))
    except CheckpointError:
        return ""  # Spark may reach a store that this process cannot


def changed_since(checkpoint: str, pipeline: "Pipeline") -> list[str]:
    """Return what has changed in a pipeline since it ran last on a checkpoint; a changed output does not count."""
    from respool.pipeline.fingerprint import fingerprint_of

    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return []
    try:
        run = read_run_record(_files(checkpoint))
    except CheckpointError:
        return []  # Spark may reach a store that this process cannot
    return changed(run.fingerprint, fingerprint_of(pipeline).to_json()) if run is not None else []


def _topics(files: FolderReader) -> set[str] | None:
    """Return the Kafka topics of a checkpoint that respool did not create, or None when it has run no batch."""
    batches = layout.batches(files.names("offsets"))
    if not batches:
        return None
    path = f"offsets/{batches[-1]}"
    try:
        newest = logs.parse_offset_log(path, logs.decode(path, files.read(path)))
    except CheckpointError:
        return None  # Spark reports what is wrong with it
    return {topic for topic, _ in newest.kafka_ends()}


def _files(checkpoint: str) -> FolderWriter:
    folder = local_path(checkpoint)
    return open_writer(checkpoint) if folder is None else LocalWriter(folder)


def _record(files: FolderWriter, pipeline: "Pipeline", settings: "Settings | None") -> None:
    from respool.pipeline.fingerprint import fingerprint_of

    facts = {
        "respool": __version__,
        **asdict(replace(run_record(pipeline, settings), fingerprint=fingerprint_of(pipeline).to_json())),
        "output_mode": pipeline.output_mode,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    files.replace(RUN, (json.dumps(facts, indent=1) + "\n").encode())
    files.sync()
