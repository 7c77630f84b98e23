"""Whether a pipeline can start from a savepoint, before Spark tries it: what has changed, and what that means.

The shape of the pipeline's state comes from Spark itself: it plans the pipeline's first batch, on a folder without
records, and writes the schemas of its state to a temporary checkpoint. Nothing is computed, nothing else is written.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from respool.checkpoint.compatibility import compare
from respool.checkpoint.operator_files import QueryShape, query_shape
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import PipelineError, RespoolError
from respool.format.positions import kafka_parts, kind_of, text_of
from respool.kafka.cluster import NO_KAFKA
from respool.kafka.records import SCHEMA
from respool.locations import for_spark
from respool.pipeline import fingerprint
from respool.pipeline.definition import Pipeline
from respool.pipeline.fingerprint import Fingerprint
from respool.pipeline.inputs import Input
from respool.pipeline.session import pipeline_session
from respool.running.dataflow import source_reader, start_query
from respool.settings import Settings
from respool.spark import failures
from respool.storage.local import LocalReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORE = "spark.sql.streaming.stateStore"
_IDS = f"{_STORE}.checkpointFormatVersion"
_PARTITIONS = "spark.sql.shuffle.partitions"
_MANY = 12  # changes that are listed individually
# Nothing is computed in a trial: no store is committed to, and any store that supports every operator will do.
_TRIAL = {
    _PARTITIONS: "1",
    _IDS: "1",
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.commitValidation.enabled": "false",
}
# Settings that Spark does not compare, although results depend on them.
_SILENT = {
    "watermark": "Spark does not compare watermarks: open results in the state close by the new watermark.",
    "results": (
        "Spark does not compare windows or gaps: open results in the state keep the old windows or gaps, and results "
        "of both kinds are written until these are closed."
    ),
    "output mode": "Spark does not compare output modes: results are written in the new mode from the next batch on.",
    "event time": "The state was built with another event-time column.",
    "fields of events": "The state was built from other fields of events.",
    "time zone": "The state was built in another time zone.",
}


@dataclass(frozen=True)
class Preflight:
    """The result of the comparison before a start.

    Attributes:
        changes: What has changed in the pipeline since the savepoint, a sentence for each.
        blocking: Why Spark would not start; empty when it would.
        notes: Other remarks for the user.
    """

    changes: tuple[str, ...]
    blocking: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def can_start(self) -> bool:
        """Whether Spark starts the pipeline from the savepoint."""
        return not self.blocking


def preflight(
    spark: "SparkSession",
    pipeline: Pipeline,
    checkpoint: CheckpointSnapshot,
    batch: int,
    old: Fingerprint | None,
    new: Fingerprint,
    settings: Settings | None = None,
) -> Preflight:
    """Return whether a pipeline can start from a checkpoint; raise PipelineError when Spark cannot plan it at all.

    Args:
        spark: A session; the pipeline is planned in a new session of the same application.
        pipeline: The pipeline as it is now.
        checkpoint: The checkpoint, or the savepoint's copy of it; it is only read.
        batch: The batch after which it is to start.
        old: The fingerprint of the pipeline that made the checkpoint; None when it is unknown.
        new: The fingerprint of the pipeline as it is now.
        settings: Where tables are that the pipeline reads by a relative path.
    """
    before = query_shape(checkpoint, batch)
    comparison = compare(before, shape_of(spark, pipeline, before.conf, settings))
    blocking = [*_topics(pipeline, checkpoint, batch), *comparison.blocking]
    notes = list(comparison.notes)
    if before.operators:
        conf = _settings(spark, pipeline, [*before.conf, _PARTITIONS, _IDS])
        blocking += _ids(checkpoint, batch, conf)
        notes += [*_fixed(before, conf), *_silent(old, new)]
    if old is None:
        notes.append("It is unknown which code and settings made the savepoint: only its state can be compared.")
    changes = fingerprint.changes(old, new) if old is not None else []
    return Preflight(tuple(changes), tuple(blocking), tuple(notes))


def lines(result: Preflight) -> list[str]:
    """Return a result as lines of text."""
    lines = [f"changed: {sentence}" for sentence in result.changes[:_MANY]]
    if len(result.changes) > _MANY:
        lines.append(f"changed: … and {len(result.changes) - _MANY} more")
    if result.can_start:  # otherwise they do not matter
        lines += [f"note: {_sentence(sentence)}" for sentence in result.notes]
    lines += [f"cannot start: {_sentence(sentence)}" for sentence in result.blocking]
    if result.blocking:
        lines.append("Spark does not start this pipeline from the savepoint.")
    elif result.changes or result.notes:
        lines.append(f"Spark starts the {'changed ' if result.changes else ''}pipeline from the savepoint.")
    else:
        lines.append("Nothing has changed since the savepoint.")
    return lines


def shape_of(
    spark: "SparkSession", pipeline: Pipeline, conf: Mapping[str, str], settings: Settings | None = None
) -> QueryShape:
    """Return the shape of a pipeline's query as Spark plans it now; PipelineError when it cannot be planned.

    Args:
        spark: A session; the pipeline is planned in a new session of the same application.
        pipeline: The pipeline.
        conf: Spark's settings that are fixed in the checkpoint from which it is to start.
        settings: Where tables are that the pipeline reads by a relative path.
    """
    session = pipeline_session(spark, pipeline)
    for name, value in {**conf, **_TRIAL}.items():
        session.conf.set(name, value)
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        _plan(session, pipeline, Path(folder) / "records", checkpoint, settings or Settings())
        return query_shape(CheckpointSnapshot(LocalReader(checkpoint)), 0)


def _plan(session: "SparkSession", pipeline: Pipeline, folder: Path, checkpoint: Path, settings: Settings) -> None:
    """Let Spark plan a pipeline's first batch, of a file without records."""
    folder.mkdir()
    (folder / "none.json").touch()

    sources = source_reader(NO_KAFKA, pipeline, settings)

    def read(session: "SparkSession", name: str, each: Input) -> "DataFrame":
        if each.static:
            return sources(session, name, each)
        schema = SCHEMA if each.kafka is not None else sources(session, name, each).schema
        return session.readStream.schema(schema).json(for_spark(str(folder)))

    def drop(results: "DataFrame", batch: int) -> None:
        """Write nothing."""

    try:
        query = start_query(session, pipeline, read, drop, str(checkpoint), {"once": True})
        try:
            query.awaitTermination()
        finally:
            query.stop()
    except RespoolError:
        raise
    except Exception as error:
        what = failures.innermost_message(failures.without_plan(error))
        raise PipelineError(
            f"Spark cannot plan the pipeline {pipeline.name} as it is now: {what}\n"
            "Correct it, and see it run on a few records with respool.testing."
        ) from error


def _topics(pipeline: Pipeline, checkpoint: CheckpointSnapshot, batch: int) -> Iterator[str]:
    for source in checkpoint.planned(batch).sources:
        if source.end is None:
            continue
        topics = sorted({topic for topic, _ in kafka_parts(source.end)})
        if kind_of(source.end) != "Kafka":
            if len(pipeline.kafka_sources) == sum(not each.static for each in pipeline.streams.values()):
                yield (
                    f"the query read no Kafka topic but something else (source {source.source} stopped at "
                    f"{text_of(source.end)}); the pipeline reads the topic {pipeline.reads}."
                )
        elif not any(all(map(each.matches, topics)) for each in pipeline.kafka_sources):
            yield (
                f"the query read the topic {', '.join(topics)}; the pipeline reads {pipeline.reads}, where its offsets "
                "mean nothing."
            )


def _settings(spark: "SparkSession", pipeline: Pipeline, names: list[str]) -> dict[str, str]:
    """Return what the pipeline's own session says of settings; those of which it says nothing are left out."""
    session = pipeline_session(spark, pipeline)
    conf = {name: session.conf.get(name, None) for name in names}
    return {name: value for name, value in conf.items() if value is not None}


def _ids(checkpoint: CheckpointSnapshot, batch: int, conf: Mapping[str, str]) -> Iterator[str]:
    wanted = "2" if checkpoint.committed(batch).state_ids else "1"
    if conf.get(_IDS, "1") != wanted:
        yield f"the state is of format {wanted}, and {_IDS} is {conf.get(_IDS, '1')}. Set it to {wanted}."


def _fixed(before: QueryShape, conf: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(before.conf.items()):
        if conf.get(name, value) == value:
            continue
        if name == _PARTITIONS:
            many = f"{value} partition" + ("" if value == "1" else "s")
            yield f"the state is in {many} and is not converted: {name} = {conf[name]} does nothing here."
        else:
            yield f"{name} is fixed in the savepoint as {value}: the pipeline's {conf[name]} does nothing here."


def _silent(old: Fingerprint | None, new: Fingerprint) -> list[str]:
    if old is None:
        return []
    notes = [meaning for name, meaning in _SILENT.items() if old.settings.get(name) != new.settings.get(name)]
    if old.code != new.code or (old.values != new.values and not notes):
        notes.append("Spark cannot check whether the changed code interprets the state as before.")
    return notes


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if not text.startswith("spark.") else text
