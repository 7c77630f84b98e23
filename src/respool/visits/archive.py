"""The archives of visits: every record as it came, to a Delta table."""

from respool.archive.pipelines import archiving
from respool.pipeline import Pipeline
from respool.visits.events import BROWSER_VISIT, VISIT, VISITS_TOPIC


def visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `visits-archive`."""
    return archiving("visits-archive", topic, VISIT, table=table, timezone=timezone)


def browser_visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `browser-visits-archive`."""
    table = table or browser_table(topic)
    return archiving("browser-visits-archive", topic, BROWSER_VISIT, table=table, timezone=timezone)


def browser_table(topic: str) -> str:
    """Return the archive of a topic of visits with their browsers, which have another field for their time."""
    return f"browser_{topic}_table"
