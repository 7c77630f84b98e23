"""Claim a checkpoint for a pipeline before it runs there."""

import json
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from respool._version import __version__
from respool.checkpoint.journal import history
from respool.checkpoint.ownership import RUN, RunRecord, fork_of, promotion_of, read_run_record
from respool.errors import CheckpointError, UnfinishedChangeError
from respool.format import layout, logs
from respool.locations import local_path
from respool.pipeline.fingerprint import changed
from respool.sinks import protocol
from respool.storage import lease
from respool.storage.folder import FolderReader, FolderWriter
from respool.storage.lease import Lease
from respool.storage.local import LocalWriter
from respool.storage.open import open_writer

if TYPE_CHECKING:
    from respool.pipeline.definition import Pipeline


def claim(checkpoint: str, pipeline: "Pipeline", home: Path | None = None, held: Lease | None = None) -> Lease | None:
    """Hold a checkpoint for a pipeline; None when another process holds it now.

    With the `home` of its sinks, where its results can be read is noted, too. `held` is the lease of a checkpoint that
    this process holds already.

    Raises CheckpointError when the checkpoint belongs to another pipeline, or when a rewind of it was cut off.
    """
    check(checkpoint, pipeline)
    held = held or lease.hold(checkpoint)
    if held is None or held.warning is not None:
        return held
    try:
        _record(_files(checkpoint), pipeline, home)
    except BaseException:
        held.close()
        raise
    return held


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
        found = read_run_record(files)
        cut_off = history.pending(files)
        topics = _topics(files) if found is None else None
        fork, promoted = fork_of(files), promotion_of(files)
    except CheckpointError:
        if folder is not None:
            raise
        return  # Spark may well reach what this process cannot
    if cut_off is not None:
        raise UnfinishedChangeError(checkpoint, cut_off)
    if promoted is not None:
        raise CheckpointError(
            f"The fork {checkpoint} was promoted: its query goes on in {promoted.checkpoint}. Run it there, or take "
            f"the promotion back with: respool checkpoint undo {promoted.checkpoint}."
        )
    taken = fork.sink_identity if fork is not None else None
    if fork is not None and taken is not None and taken.is_same(protocol.identity_of(pipeline.sink)):
        raise CheckpointError(
            f"The checkpoint {checkpoint} is a fork of {fork.checkpoint}, which writes to the {fork.sink}; both would "
            "write there. Let the fork write to a place of its own, such as with --sink-suffix -v2, or make it the "
            f"pipeline's checkpoint: respool promote {checkpoint} {fork.checkpoint}."
        )
    _require_same(checkpoint, pipeline, found, topics)


def _require_same(checkpoint: str, pipeline: "Pipeline", found: RunRecord | None, topics: set[str] | None) -> None:
    """Raise CheckpointError when a checkpoint is that of another pipeline, as far as it tells."""
    way_out = "Run that pipeline, or name another folder with --checkpoint."
    if found is not None and (found.pipeline, found.topic) != (pipeline.name, pipeline.topic):
        raise CheckpointError(
            f"The checkpoint {checkpoint} belongs to the pipeline {found.pipeline}, which reads {found.topic}; "
            f"expected {pipeline.name}, which reads {pipeline.topic}. {way_out}"
        )
    for name, value in (found.fixed if found is not None else {}).items():
        if pipeline.fixed.get(name) != value:
            raise CheckpointError(
                f"The checkpoint {checkpoint} was made with {name}={value}, which it keeps; found "
                f"{name}={pipeline.fixed.get(name, 'none')}. Run with --set {name}={value}, or name another folder "
                "with --checkpoint."
            )
    if topics is not None and pipeline.topic not in topics:
        raise CheckpointError(
            f"The checkpoint {checkpoint} is of a query that reads {', '.join(sorted(topics)) or 'no Kafka topic'}; "
            f"the pipeline {pipeline.name} reads {pipeline.topic}. {way_out}"
        )


def changed_since(checkpoint: str, pipeline: "Pipeline") -> list[str]:
    """Return what has changed in a pipeline since it ran last on a checkpoint; where it writes does not count."""
    from respool.pipeline.fingerprint import fingerprint_of

    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return []
    try:
        run = read_run_record(_files(checkpoint))
    except CheckpointError:
        return []  # Spark may well reach what this process cannot
    return changed(run.fingerprint, fingerprint_of(pipeline).to_json()) if run is not None else []


def _topics(files: FolderReader) -> set[str] | None:
    """Return the Kafka topics of a checkpoint that respool did not make, or None when it has run no batch."""
    batches = layout.batches(files.names("offsets"))
    if not batches:
        return None
    path = f"offsets/{batches[-1]}"
    try:
        newest = logs.parse_offset_log(path, logs.decode(path, files.read(path)))
    except CheckpointError:
        return None  # Spark will tell what is wrong with it
    return {topic for topic, _ in newest.kafka_ends()}


def _files(checkpoint: str) -> FolderWriter:
    folder = local_path(checkpoint)
    return open_writer(checkpoint) if folder is None else LocalWriter(folder)


def _record(files: FolderWriter, pipeline: "Pipeline", home: Path | None) -> None:
    from respool.pipeline.fingerprint import fingerprint_of

    facts = {
        "respool": __version__,
        **asdict(replace(RunRecord.of(pipeline, home), fingerprint=fingerprint_of(pipeline).to_json())),
        "output_mode": pipeline.output_mode,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    files.replace(RUN, (json.dumps(facts, indent=1) + "\n").encode())
    files.sync()
