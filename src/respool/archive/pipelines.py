"""Pipelines that archive a topic."""

from functools import partial

from respool.archive.sink import ArchiveSink
from respool.archive.table import to_archive
from respool.decode import JsonDecoder
from respool.errors import PipelineError
from respool.pipeline import Pipeline

# A batch has records of a few hours: with a file open for each of them, its records need not be sorted by hour first.
# One of more hours is.
_SPARK = {"spark.sql.maxConcurrentOutputFileWriters": "8"}


def archiving(
    name: str, topic: str, decoder: JsonDecoder, *, table: str | None = None, timezone: str = "UTC"
) -> Pipeline:
    """Return a pipeline that archives a topic; rejected records are in the archive too, and need no topic of their own.

    Args:
        name: The pipeline's name.
        topic: The topic.
        decoder: How its event times are read.
        table: The archive's path or URL; `<topic>_table` under the home's `archive` by default.
        timezone: The zone in which event times without a zone are read.
    """
    table = table or f"{topic}_table"
    return Pipeline(
        name=name,
        summary="Archives every record as it came, by hour of event time",
        topic=topic,
        transform=partial(to_archive, decoder=decoder),
        sink=ArchiveSink(table, decoder),
        timezone=timezone,
        spark=_SPARK,
        archive=table,
    )


def archive_of(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline that archives what another one reads, where `respool reprocess` will look for it."""
    if pipeline.decode is None:
        raise PipelineError(f"The pipeline {pipeline.name} has no decoder, so its records have no event time.")
    return archiving(
        f"{pipeline.name}-archive",
        pipeline.topic,
        pipeline.decode,
        table=pipeline.archive,
        timezone=pipeline.timezone,
    )
