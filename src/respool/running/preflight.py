"""Can this pipeline start from that savepoint? Told before Spark tries, with what has changed and what it means.

What state a pipeline keeps now is learned from Spark itself: it plans the pipeline's first batch, on a folder without
records, and writes down its state's schemas while doing so. Nothing is computed and nothing is written anywhere else.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from respool.checkpoint.compatibility import compare
from respool.checkpoint.query_shape import QueryShape, query_shape
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import PipelineError, RespoolError
from respool.format.positions import kafka_parts, kind_of, text_of
from respool.kafka.records import SCHEMA
from respool.pipeline import fingerprint
from respool.pipeline.definition import Pipeline
from respool.pipeline.fingerprint import Fingerprint
from respool.spark import failures
from respool.spark.session import session_of
from respool.storage.local import LocalReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORE = "spark.sql.streaming.stateStore"
_IDS = f"{_STORE}.checkpointFormatVersion"
_PARTITIONS = "spark.sql.shuffle.partitions"
_MANY = 12  # changes that are told one by one
# Nothing is computed in a trial: no store is committed to, and any will do that takes every operator.
_TRIAL = {
    _PARTITIONS: "1",
    _IDS: "1",
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.commitValidation.enabled": "false",
}
# What Spark does not compare, though results depend on it.
_SILENT = {
    "watermark": "Spark does not compare watermarks: what is open in the state closes by the new one.",
    "results": (
        "Spark does not compare windows or gaps: what is open in the state was begun by the old ones, and results of "
        "both come side by side until it is closed."
    ),
    "output mode": "Spark does not compare output modes: results come in the new one from the next batch on.",
    "event time": "What is in the state was read by another event time.",
    "fields of events": "What is in the state was read from other fields.",
    "time zone": "What is in the state was read in another time zone.",
}


@dataclass(frozen=True)
class Preflight:
    """What was found before a start.

    Attributes:
        changes: What has changed in the pipeline since the savepoint, a sentence for each.
        blocking: Why Spark would not start; none when it would.
        notes: What else is to be known.
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
) -> Preflight:
    """Return what a start of a pipeline from a checkpoint would come to; PipelineError when it starts from none.

    Args:
        spark: A session; the pipeline is planned in one of its own beside it.
        pipeline: The pipeline as it is now.
        checkpoint: The checkpoint, or the savepoint's copy of it; it is only read.
        batch: The batch after which it is to start.
        old: The fingerprint of the pipeline that made the checkpoint; None when it is not known.
        new: The fingerprint of the pipeline as it is now.
    """
    before = query_shape(checkpoint, batch)
    found = compare(before, shape_of(spark, pipeline, before.conf))
    blocking = [*_topics(pipeline, checkpoint, batch), *found.blocking]
    notes = list(found.notes)
    if before.operators:
        conf = _settings(spark, pipeline, [*before.conf, _PARTITIONS, _IDS])
        blocking += _ids(checkpoint, batch, conf)
        notes += [*_fixed(before, conf), *_silent(old, new)]
    if old is None:
        notes.append("It is not known which code and settings made the savepoint: only its state can be compared.")
    changes = fingerprint.changes(old, new) if old is not None else []
    return Preflight(tuple(changes), tuple(blocking), tuple(notes))


def lines(found: Preflight) -> list[str]:
    """Return what was found as lines for people."""
    told = [f"changed: {one}" for one in found.changes[:_MANY]]
    if len(found.changes) > _MANY:
        told.append(f"changed: … and {len(found.changes) - _MANY} more")
    if found.can_start:  # what would come of it else is of no use
        told += [f"note: {_sentence(one)}" for one in found.notes]
    told += [f"cannot start: {_sentence(one)}" for one in found.blocking]
    if found.blocking:
        told.append("Spark does not start this pipeline from the savepoint.")
    elif found.changes or found.notes:
        told.append(f"Spark starts the {'changed ' if found.changes else ''}pipeline from the savepoint.")
    else:
        told.append("Nothing has changed since the savepoint.")
    return told


def shape_of(spark: "SparkSession", pipeline: Pipeline, conf: Mapping[str, str]) -> QueryShape:
    """Return the shape of a pipeline's query as Spark plans it now; PipelineError when it cannot be planned.

    Args:
        spark: A session; the pipeline is planned in one of its own beside it.
        pipeline: The pipeline.
        conf: Spark's settings that are fixed in the checkpoint from which it is to start.
    """
    session = session_of(spark, pipeline)
    for name, value in {**conf, **_TRIAL}.items():
        session.conf.set(name, value)
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        _plan(session, pipeline, Path(folder) / "records", checkpoint)
        return query_shape(CheckpointSnapshot(LocalReader(checkpoint)), 0)


def _plan(session: "SparkSession", pipeline: Pipeline, folder: Path, checkpoint: Path) -> None:
    """Let Spark plan a pipeline's first batch, of a file without records."""
    folder.mkdir()
    (folder / "none.json").touch()

    def drop(frame: "DataFrame", _: int) -> None:
        pipeline.each_batch(frame)

    try:
        records = session.readStream.schema(SCHEMA).json(folder.as_uri())
        writer = pipeline.stream(records).writeStream.outputMode(pipeline.output_mode).foreachBatch(drop)
        query = writer.option("checkpointLocation", checkpoint.as_uri()).trigger(once=True).start()
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
            yield (
                f"the query read no Kafka topic but something else (source {source.source} stopped at "
                f"{text_of(source.end)}); the pipeline reads the topic {pipeline.topic}."
            )
        elif topics != [pipeline.topic]:
            yield (
                f"the query read the topic {', '.join(topics)}; the pipeline reads {pipeline.topic}, where its offsets "
                "mean nothing."
            )


def _settings(spark: "SparkSession", pipeline: Pipeline, names: list[str]) -> dict[str, str]:
    """Return what the pipeline's own session says of settings; those of which it says nothing are left out."""
    session = session_of(spark, pipeline)
    found = {name: session.conf.get(name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


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
            yield f"the state is in {many} and stays so: {name} = {conf[name]} does nothing here."
        else:
            yield f"{name} is fixed in the savepoint as {value}: the pipeline's {conf[name]} does nothing here."


def _silent(old: Fingerprint | None, new: Fingerprint) -> list[str]:
    if old is None:
        return []
    told = [meaning for name, meaning in _SILENT.items() if old.settings.get(name) != new.settings.get(name)]
    if old.code != new.code or (old.values != new.values and not told):
        told.append("Spark cannot tell whether the changed code takes what is in the state for the same as before.")
    return told


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if not text.startswith("spark.") else text
