"""The live query of a pipeline, by its checkpoint: its position, and whether its results have the same keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from respool.checkpoint.ownership import RunRecord, read_run_record
from respool.checkpoint.snapshot import read_position, topic_ends
from respool.errors import CheckpointError, ReprocessError
from respool.locations import local_path
from respool.running.claim import run_record
from respool.sinks.protocol import is_among
from respool.storage.open import open_reader

if TYPE_CHECKING:
    from respool.decoders.protocol import Decoder
    from respool.pipeline.definition import Pipeline


@dataclass(frozen=True)
class LiveQuery:
    """A live query at its newest committed batch.

    Attributes:
        checkpoint: Its checkpoint.
        batch: The batch.
        watermark: The watermark at which the batch ran; None if the query had none yet.
        ends: The next offset to read, by partition of the pipeline's topic.
    """

    checkpoint: str
    batch: int
    watermark: datetime | None
    ends: Mapping[int, int]


def topic_of(pipeline: "Pipeline") -> str:
    """Return the topic that a pipeline reads; raise ReprocessError when it does not read exactly one by its name."""
    if pipeline.topics and pipeline.reads == pipeline.topics[0]:
        return pipeline.topics[0]
    raise ReprocessError(
        f"The pipeline {pipeline.name} cannot be reprocessed: it reads {pipeline.reads}. Expected a pipeline that "
        "reads one Kafka topic by its name, since only that has an archive."
    )


def archive_of(pipeline: "Pipeline") -> str:
    """Return the archive of the topic that a pipeline reads."""
    own = next((each.archive for each in pipeline.streams.values() if each.kafka is not None), None)
    return own or f"{topic_of(pipeline)}_table"


def decoder_of(pipeline: "Pipeline") -> "Decoder":
    """Return the decoder of a pipeline that reads one topic; raise ReprocessError when it has none."""
    decoders = [each.decode for each in pipeline.streams.values() if each.kafka is not None]
    if len(decoders) == 1 and decoders[0] is not None:
        return decoders[0]
    raise ReprocessError(
        f"The pipeline {pipeline.name} cannot be reprocessed: its records have no decoder, so they have no event time. "
        "Give it one."
    )


def read_live(checkpoint: str, pipeline: "Pipeline") -> LiveQuery | None:
    """Return the live query of a pipeline; None when it has never committed a batch on that checkpoint.

    Raises CheckpointError when results of this pipeline would have other keys than those of the live query.
    """
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return None
    files = open_reader(checkpoint)
    run = read_run_record(files)
    if run is not None:
        _check(checkpoint, run, pipeline)
    position = read_position(files)
    if position.batch is None:
        return None
    return LiveQuery(checkpoint, position.batch, position.watermark, topic_ends(position.ends, topic_of(pipeline)))


def _check(checkpoint: str, run: RunRecord, pipeline: "Pipeline") -> None:
    """Raise CheckpointError when results would have other keys or windows than those of the live query."""
    mine = run_record(pipeline)
    for what, live, here, step in (
        ("is of the pipeline", run.pipeline, mine.pipeline, "name its checkpoint with --checkpoint"),
        ("reads", run.topic, mine.topic, "use the same --set topic=…"),
        ("renders times in", run.timezone, mine.timezone, f"add --timezone {run.timezone}"),
    ):
        if live and live != here:
            raise _refused(checkpoint, f"{what} {live}; this would be {here}", step)
    for what, recorded, current, live, here in (
        ("writes to the", run.sink_identity, mine.sink_identity, run.sink, mine.sink),
        ("computes", run.results_identity, mine.results_identity, run.results, mine.results),
    ):
        if recorded is None or (current is not None and is_among(current, recorded)):
            continue
        more = f" ({recorded.differences(current)})" if current is not None and live == here else ""
        raise _refused(checkpoint, f"{what} {live}; this would be {here}{more}", "use the same --set as the live query")


def _refused(checkpoint: str, difference: str, step: str) -> CheckpointError:
    return CheckpointError(
        f"The live query on {checkpoint} {difference}, so its results would have other keys than the live query's. "
        f"To correct the live query's results, {step}."
    )
