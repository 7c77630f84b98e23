"""The archive of visits: every record as it came, to a Delta table."""

from functools import partial

from respool.archive import ArchiveSink, to_archive
from respool.pipeline import Pipeline
from respool.visits.events import VISIT, VISITS_TOPIC


def visits_archive(*, topic: str = VISITS_TOPIC, table: str = "visits_table", timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `visits-archive`; rejected records are in the archive too, and need no topic of their own."""
    return Pipeline(
        name="visits-archive",
        summary="Archives every record as it came, by hour of event time",
        topic=topic,
        transform=partial(to_archive, decoder=VISIT),
        sink=ArchiveSink(table),
        timezone=timezone,
    )
