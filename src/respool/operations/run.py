"""`respool run --from-savepoint`: a pipeline, perhaps changed, that goes on from a savepoint as a fork."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from respool.cli.render.output import print_note
from respool.errors import CheckpointError, PipelineError
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.kafka.cluster import KafkaCluster
    from respool.pipeline.definition import Pipeline
    from respool.savepoint.store import Savepoint


def start_from(
    name: str, path: str, wanted: "Pipeline", kafka: "KafkaCluster", settings: Settings, allow_data_loss: bool = False
) -> "Callable[[SparkSession, Pipeline], None] | None":
    """Return what makes the fork once Spark runs; None when it is there already, and only goes on.

    Args:
        name: The savepoint.
        path: The fork's folder or URL.
        wanted: The pipeline, with the output that it will have.
        kafka: The cluster.
        settings: Where savepoints are.
        allow_data_loss: Go on though the source has lost records.

    Raises:
        CheckpointError: The savepoint is not there, is of another pipeline, or the fork's folder or output is taken.
    """
    from respool.checkpoint.journal import history
    from respool.checkpoint.ownership import fork_of
    from respool.locations import absolute
    from respool.operations.checkpoint import Checkpoint
    from respool.operations.savepoints import find, require_free
    from respool.storage.open import new_writer

    found, where = find(name, settings), absolute(path)
    files = new_writer(where)
    fork = fork_of(files)
    if fork is not None and history.pending(files) is None:
        if fork.location != found.location:
            raise CheckpointError(
                f"{path} is a fork of the savepoint {fork.savepoint} at {fork.location}, not of {found.location}. "
                "Name a new folder with --checkpoint."
            )
        print_note(f"{path} is a fork of the savepoint {name} already, and goes on.")
        return None
    _require_same(found, wanted)

    def start(spark: "SparkSession", pipeline: "Pipeline") -> None:
        require_startable(spark, pipeline, found)
        plan = found.plan_fork(where, allow_data_loss=allow_data_loss)
        print_note(str(plan))
        Checkpoint(where, settings=settings).apply(plan)
        print_note(f"Batch {plan.batch:,} is the next to run.")

    require_free(where, path, found)
    _require_new_output(wanted, kafka, settings)
    return start


def _require_new_output(pipeline: "Pipeline", kafka: "KafkaCluster", settings: Settings) -> None:
    """Raise CheckpointError when another run has written where a fork is to write: their results would mix."""
    from respool.kafka import topics
    from respool.sinks.protocol import ReadableSink
    from respool.storage.open import new_writer

    sink = pipeline.sink
    kind, _, place = sink.output(settings.home).address.partition(":") if isinstance(sink, ReadableSink) else ("",) * 3
    taken = kind == "delta" and bool(new_writer(place).names("_delta_log"))
    if kind == "kafka" and topics.topic_exists(kafka, place):
        taken = topics.start_offsets(kafka, place) != topics.end_offsets(kafka, place)
    if taken:
        raise CheckpointError(
            f"The {sink.describe()} has results of another run: a fork's would be mixed with them. "
            "Choose another --sink-suffix."
        )


def _require_same(found: "Savepoint", pipeline: "Pipeline") -> None:
    run = found.manifest.run
    if run is not None and (run.pipeline, run.topic) != (pipeline.name, pipeline.topic):
        raise CheckpointError(
            f"The savepoint {found.manifest.name} is of the pipeline {run.pipeline}, which reads {run.topic}; expected "
            f"{pipeline.name}, which reads {pipeline.topic}. Name another savepoint, or run that pipeline."
        )


def require_startable(spark: "SparkSession", pipeline: "Pipeline", found: "Savepoint") -> None:
    """Tell what has changed since the savepoint; raise PipelineError when Spark could not start from it."""
    from respool.pipeline.fingerprint import Fingerprint, fingerprint_of
    from respool.running.preflight import lines, preflight

    run = found.manifest.run
    old = Fingerprint.from_json(run.fingerprint) if run is not None and run.fingerprint else None
    result = preflight(spark, pipeline, found.checkpoint(), found.manifest.batch, old, fingerprint_of(pipeline))
    for line in lines(result):
        print_note(line)
    if not result.can_start:
        raise PipelineError(
            f"The pipeline {pipeline.name} cannot start from the savepoint {found.manifest.name}, as told above. "
            "Nothing was changed. Undo those changes, or start it from the beginning with a new --checkpoint."
        )
